"""`outbox topology`: what the contexts publish and read, held against what the broker has (T2)."""

from __future__ import annotations

import asyncio

import attrs
import click

from outbox_kernel.infrastructure.brokers.discovery import discover_topology
from outbox_kernel.infrastructure.cli.at_broker import broker_of
from outbox_kernel.infrastructure.cli.output import json_option, print_json, print_rows
from outbox_kernel.infrastructure.settings import Settings


@click.command("topology")
@click.option(
    "--check", "apply", flag_value=False, type=bool, default=False, help="Only look. This is the default."
)
@click.option("--apply", "apply", flag_value=True, type=bool, help="Make what is missing.")
@click.option(
    "--with", "optional", multiple=True, metavar="QUEUE", help="Also this optional queue; may be repeated."
)
@json_option
def command(*, apply: bool, optional: tuple[str, ...], as_json: bool) -> None:
    """Compare the exchanges and queues of the contexts with those of RABBITMQ_URL.

    The exit code is 1 if something is missing, is there in another form, or may not be made. What binds queues to
    exchanges cannot be seen by AMQP; --apply makes it again, which changes nothing where it is there.
    """
    settings = Settings.from_environment()
    broker = broker_of(settings)
    topology = discover_topology(settings).with_optional(optional)
    found = asyncio.run(broker.survey(topology, apply=apply))
    if as_json:
        print_json([attrs.asdict(each) for each in found])
    else:
        print_rows([attrs.asdict(each) for each in found])
    if any(each.is_wrong for each in found):
        raise SystemExit(1)
