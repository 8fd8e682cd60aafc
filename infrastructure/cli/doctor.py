"""`outbox doctor`: look at everything, and say what to do."""

from __future__ import annotations

import asyncio

import attrs
import click

from infrastructure.cli.output import json_option, print_json, print_rows
from infrastructure.operations.health import examine
from infrastructure.relay import RelaySettings
from infrastructure.settings import Settings
from infrastructure.telemetry import silence_clients


@click.command("doctor")
@json_option
def command(*, as_json: bool) -> None:
    """Check the installation, the database, the relays, the work and the broker; say what to do about each finding.

    The exit code is 1 if a check failed; a warning alone is 0.
    """
    silence_clients()
    checks = asyncio.run(examine(Settings.from_environment(), RelaySettings.from_environment()))
    failed = any(check.state == "fail" for check in checks)
    if as_json:
        print_json({"healthy": not failed, "checks": [attrs.asdict(check) for check in checks]})
    else:
        print_rows([attrs.asdict(check) for check in checks])
    if failed:
        raise SystemExit(1)
