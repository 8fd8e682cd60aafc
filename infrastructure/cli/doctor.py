"""`outbox doctor`: look at everything, and say what to do."""

from __future__ import annotations

import asyncio

import attrs
import click

from outbox_kernel.infrastructure.application import buildable_handlers
from outbox_kernel.infrastructure.cli.output import json_option, print_json, print_rows
from outbox_kernel.infrastructure.operations.health import examine
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.infrastructure.telemetry import silence_clients


@click.command("doctor")
@json_option
def command(*, as_json: bool) -> None:
    """Check the installation, the database, the relays, the work and the broker; say what to do about each finding.

    The exit code is 1 if a check failed; a warning alone is 0.
    """
    silence_clients()
    checks = asyncio.run(
        examine(Settings.from_environment(), RelaySettings.from_environment(), buildable_handlers)
    )
    failed = any(check.state == "fail" for check in checks)
    if as_json:
        print_json({"healthy": not failed, "checks": [attrs.asdict(check) for check in checks]})
    else:
        print_rows([attrs.asdict(check) for check in checks])
    if failed:
        raise SystemExit(1)
