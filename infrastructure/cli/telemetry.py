"""`outbox telemetry`: print what draws and watches the metrics (O4)."""

from __future__ import annotations

import click

from outbox_kernel.infrastructure.cli.numbers import Number
from outbox_kernel.infrastructure.cli.output import json_option, print_json
from outbox_kernel.infrastructure.telemetry.alerts import RUNBOOK, as_yaml, rules
from outbox_kernel.infrastructure.telemetry.limits import LAG_SECONDS


@click.group("telemetry")
def command() -> None:
    """Print what draws and watches the metrics that --metrics serves."""


@command.command("grafana")
@json_option
def grafana(*, as_json: bool) -> None:  # noqa: ARG001 - it is JSON in any case
    """Print a dashboard that Grafana imports."""
    from outbox_kernel.infrastructure.telemetry.grafana import dashboard

    print_json(dashboard())


@command.command("alerts")
@click.option(
    "--lag-seconds",
    type=Number(min=1.0),
    default=LAG_SECONDS,
    show_default=True,
    help="An event is old that has waited for so long.",
)
@click.option(
    "--runbook", default=RUNBOOK, show_default=True, help="Where the runbook is, for the links to it."
)
@json_option
def alerts(*, lag_seconds: float, runbook: str, as_json: bool) -> None:
    """Print rules that Prometheus loads, each named after the heading of the runbook that says what to do."""
    found = rules(lag_seconds, runbook)
    print_json(found) if as_json else click.echo(as_yaml(found), nl=False)
