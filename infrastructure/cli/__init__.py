"""The `outbox` command."""

from infrastructure.cli.command_line import main

__all__ = ["main"]
