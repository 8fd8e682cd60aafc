"""The `outbox` command."""

from outbox_kernel.infrastructure.cli.command_line import main

__all__ = ["main"]
