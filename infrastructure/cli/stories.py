"""`outbox events`, `show`, `history`, `failed`: what happened, for people to look at."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from outbox_kernel.infrastructure.cli.at_desk import AGGREGATE, EVENT, LIMIT, MOMENT, TEXT, at_desk
from outbox_kernel.infrastructure.cli.output import (
    is_at_terminal,
    json_option,
    print_json,
    print_rows,
    print_title,
    when,
)
from outbox_kernel.infrastructure.operations import stories
from outbox_kernel.infrastructure.outbox.views import EVENT_STATES
from outbox_kernel.infrastructure.plain_text import count
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from uuid import UUID

    from outbox_kernel.infrastructure.operations import AggregateKey
    from outbox_kernel.infrastructure.operations.overview import Row
    from outbox_kernel.infrastructure.operations.selection import Moment

ERROR_CHARACTERS_MAX = 80
# More of one value fills a terminal and shows nothing.
VALUE_CHARACTERS_MAX = 4_000


@click.command("events")
@click.option(
    "--type", "event_type", type=TEXT, metavar="TYPE", help="Only events of this type; * stands for any part."
)
@click.option("--aggregate", type=AGGREGATE, help="Only events of this aggregate: TYPE:ID, or ID.")
@click.option("--status", type=click.Choice(EVENT_STATES), help="Only events in this state.")
@click.option("--since", type=MOMENT, help="Only events stored since: a moment, or an age such as 24h.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
@json_option
def events(
    *,
    event_type: str | None,
    aggregate: AggregateKey | None,
    status: str | None,
    since: Moment | None,
    limit: int,
    as_json: bool,
) -> None:
    """List events, the newest first."""
    rows = at_desk(
        lambda desk: stories.events(
            desk, event_type=event_type, aggregate=aggregate, status=status, since=since, limit=limit
        )
    )
    if as_json:
        print_json(rows)
    elif rows:
        print_rows([_event(row) for row in rows])
    else:
        click.echo("there is no such event", err=True)


@click.command("show")
@click.argument("event", type=EVENT)
@json_option
def show(*, event: UUID | int, as_json: bool) -> None:
    """Show one EVENT, by its id or its position: what it says, who has handled it, what it waits for.

    Secrets are masked.
    """
    stories.know_events(Settings.from_environment())
    story = at_desk(lambda desk: stories.show(desk, event))
    if as_json:
        print_json(story)
        return
    deliveries, receipts = story.pop("deliveries"), story.pop("receipts")
    print_rows([{"field": name, "value": _told(value)} for name, value in _facts(story).items()])
    if deliveries:
        print_title("deliveries")
        print_rows([_delivery(row) for row in deliveries])
    if receipts:
        print_title("receipts")
        print_rows(
            [
                {"handler": row["handler"], "outcome": row["outcome"], "at": when(row["created_at"])}
                for row in receipts
            ]
        )


@click.command("history")
@click.argument("aggregate", type=AGGREGATE, metavar="AGGREGATE")
@json_option
def history(*, aggregate: AggregateKey, as_json: bool) -> None:
    """Tell everything that happened to AGGREGATE (TYPE:ID, or ID), in order. Secrets are masked."""
    stories.know_events(Settings.from_environment())
    rows = at_desk(lambda desk: stories.history(desk, aggregate))
    if as_json:
        print_json(rows)
        return
    print_rows(
        [
            {
                "n": row["aggregate_version"],
                "event": row["event_type"],
                "occurred at": when(row["occurred_at"]),
                "status": row["status"],
                "unsettled": ", ".join(each["handler"] for each in row["deliveries"] if not each["settled"]),
                "payload": _told(row["payload"]),
            }
            for row in rows
        ]
    )


@click.command("failed")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="How many.")
@json_option
def failed(*, limit: int, as_json: bool) -> None:
    """List what is dead or will be tried again, the oldest event first, with how many wait behind each."""
    rows = at_desk(lambda desk: stories.failed(desk, limit))
    total = rows[0]["total"] if rows else 0
    for row in rows:
        del row["total"]
    if as_json:
        print_json({"total": total, "failed": rows})
        return
    if not rows:
        click.echo("nothing has failed", err=True)
        return
    print_rows(
        [
            {
                "event": row["event_id"],
                "type": row["event_type"],
                "handler": row["handler"],
                "status": row["status"],
                "attempts": row["attempts"],
                "next": when(row["next_at"]),
                "behind": row["behind"],
                "error": _short(row["error_message"]),
            }
            for row in rows
        ]
    )
    if total > len(rows):
        click.echo(f"and {count(total - len(rows), 'more', 'more')}: --limit shows them", err=True)


def _event(row: Row) -> Row:
    return {
        "position": row["position"],
        "event": row["event_id"],
        "type": row["event_type"],
        "aggregate": _aggregate(row),
        "n": row["aggregate_version"],
        "status": row["status"],
        "failures": row["retry_count"],
        "stored": when(row["created_at"]),
        "not before": when(row["not_before"]),
        "error": _short(row["error_message"]),
    }


def _delivery(row: Row) -> Row:
    return {
        "handler": row["handler"],
        "status": row["status"],
        "attempts": row["attempts"],
        "held by": row["held_by"],
        "waits for": row["waits_for"],
        "error": row["error_message"],
    }


def _facts(story: Row) -> Row:
    """Leave out what is empty, and what is told by other lines."""
    told = {**story, "aggregate": _aggregate(story), "headers": story["headers"] or None}
    if not told.pop("class_known"):
        told["masked"] = (
            "every field, since this event's class is not known here: run it where the contexts are"
        )
    for name in ("aggregate_type", "aggregate_id", "aggregate_key", "lease_relay", "lease_epoch"):
        told.pop(name)
    return {name: value for name, value in told.items() if value not in (None, "", 0)}


def _aggregate(row: Row) -> str | None:
    identity = row["aggregate_key"] or row["aggregate_id"]
    return f"{row['aggregate_type']}:{identity}" if identity else None


def _told(value: object) -> object:
    if isinstance(value, dict):
        value = json.dumps(value, default=str, ensure_ascii=False)
    if isinstance(value, str) and len(value) > VALUE_CHARACTERS_MAX:
        return f"{value[:VALUE_CHARACTERS_MAX]}… ({len(value)} characters; --json prints all)"
    return value


def _short(text: str | None) -> str | None:
    """Cut an error for a column on a terminal; its remedy stands at its end, and whoever reads a pipe gets it all."""
    if not is_at_terminal():
        return text
    line = text.partition("\n")[0] if text else None
    return line and (line if len(line) <= ERROR_CHARACTERS_MAX else line[: ERROR_CHARACTERS_MAX - 1] + "…")
