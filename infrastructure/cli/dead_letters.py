"""`outbox dead-letters`: what could not be stored, or what the broker gave up; and back with it (O1, T3)."""

from __future__ import annotations

import asyncio

import attrs
import click

from outbox_kernel.infrastructure.brokers.discovery import discover_topology
from outbox_kernel.infrastructure.brokers.operated import Choice
from outbox_kernel.infrastructure.brokers.topology import DEAD_LETTER_QUEUE
from outbox_kernel.infrastructure.cli.at_broker import QUEUE_NAME, broker_of
from outbox_kernel.infrastructure.cli.at_desk import TEXT
from outbox_kernel.infrastructure.cli.limits import LISTED_MAX
from outbox_kernel.infrastructure.cli.numbers import Whole
from outbox_kernel.infrastructure.cli.output import json_option, print_json, print_rows, progress
from outbox_kernel.infrastructure.plain_text import count
from outbox_kernel.infrastructure.settings import Settings

_from = click.option(
    "--dead-letter-queue",
    "source",
    type=QUEUE_NAME,
    default=DEAD_LETTER_QUEUE,
    show_default=True,
    help="Where the dead letters are.",
)
_id = click.option(
    "--id", "message_id", type=TEXT, metavar="ID", help="Only the message with this id, the event's own."
)
_queue = click.option("--queue", type=QUEUE_NAME, metavar="NAME", help="Only what came from this queue.")


@click.group("dead-letters")
def command() -> None:
    """Look at the dead letters of RABBITMQ_URL, or send them back. Those of handlers are `outbox failed`."""


@command.command("list")
@_from
@_id
@_queue
@click.option("--limit", type=Whole(1), default=LISTED_MAX, show_default=True, help="How many.")
@json_option
def list_(*, source: str, message_id: str | None, queue: str | None, limit: int, as_json: bool) -> None:
    """List them with their reasons, the oldest first; they stay where they are."""
    broker = broker_of(Settings.from_environment())
    found, left = asyncio.run(broker.listed(source, most=limit, choice=Choice(message_id, queue)))
    rows = [attrs.asdict(each) for each in found]
    if as_json:
        print_json(rows)
        return
    print_rows(rows)
    if not rows:
        click.echo("there is no such dead letter", err=True)
    if left:
        click.echo(f"{count(left, 'more', 'more')} not looked at: --limit shows them", err=True)


@command.command("replay")
@_from
@_id
@_queue
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option(
    "--to",
    type=QUEUE_NAME,
    metavar="QUEUE",
    help="To this queue instead of the one that each came from, which is to be one that a context declares.",
)
@json_option
def replay(
    *, source: str, message_id: str | None, queue: str | None, everything: bool, to: str | None, as_json: bool
) -> None:
    """Send messages back to the queue that each came from, once what kept them from being stored is mended."""
    if (message_id is None and queue is None) != everything:
        raise click.UsageError("say which: --id ID, --queue NAME, or --all")
    settings = Settings.from_environment()
    broker, choice = broker_of(settings), Choice(message_id, queue)
    # Who says where to needs no context to say it.
    declared = set() if to else {each.name for each in discover_topology(settings).queues}
    with progress("replay") as begin:
        number = asyncio.run(broker.replayed(source, choice=choice, declared=declared, to=to, begin=begin))
    if as_json:
        print_json({"replayed": number})
    else:
        click.echo(f"{count(number, 'message')} sent back")
    if not number:
        raise SystemExit(1)
