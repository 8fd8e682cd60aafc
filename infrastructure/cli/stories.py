"""`outbox events`, `show`, `history`, `failed`: what happened, for people to look at."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import click

from outbox_kernel.infrastructure.cli.at_desk import AGGREGATE, EVENT, LIMIT, MOMENT, TEXT, at_desk
from outbox_kernel.infrastructure.cli.limits import ERROR_CHARACTERS_MAX, VALUE_CHARACTERS_MAX
from outbox_kernel.infrastructure.cli.output import (
    is_at_terminal,
    json_option,
    print_json,
    print_rows,
    print_title,
    when,
)
from outbox_kernel.infrastructure.operations import masking, stories
from outbox_kernel.infrastructure.outbox.views import EVENT_STATES
from outbox_kernel.infrastructure.plain_text import count
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from uuid import UUID

    from outbox_kernel.infrastructure.operations import AggregateKey
    from outbox_kernel.infrastructure.operations.selection import Moment
    from outbox_kernel.infrastructure.operations.stories import Delivery, Event, Failure, Story, ToldEvent

    Row = dict[str, object]


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
        print_json([attrs.asdict(each) for each in rows])
    elif rows:
        print_rows([_event(each) for each in rows])
    else:
        click.echo("there is no such event", err=True)


@click.command("show")
@click.argument("event", type=EVENT)
@json_option
def show(*, event: UUID | int, as_json: bool) -> None:
    """Show one EVENT, by its id or its position: what it says, who has handled it, what it waits for.

    Secrets are masked.
    """
    masking.know_events(Settings.from_environment())
    story = at_desk(lambda desk: stories.show(desk, event))
    if as_json:
        print_json(_plain(story))
        return
    print_rows([{"field": name, "value": _told(value)} for name, value in _facts(story).items()])
    if story.subscriptions:
        print_title("subscriptions")
        print_rows(
            [
                {
                    "name": each.name,
                    "state": each.state,
                    "at": when(each.passed_at),
                    "waits for": each.waits_for,
                }
                for each in story.subscriptions
            ]
        )
    if story.deliveries:
        print_title("deliveries")
        print_rows([_delivery(each) for each in story.deliveries])
    if story.receipts:
        print_title("receipts")
        print_rows(
            [
                {"handler": each.handler, "outcome": each.outcome, "at": when(each.created_at)}
                for each in story.receipts
            ]
        )


@click.command("history")
@click.argument("aggregate", type=AGGREGATE, metavar="AGGREGATE")
@json_option
def history(*, aggregate: AggregateKey, as_json: bool) -> None:
    """Tell everything that happened to AGGREGATE (TYPE:ID, or ID), in order. Secrets are masked."""
    masking.know_events(Settings.from_environment())
    told = at_desk(lambda desk: stories.history(desk, aggregate))
    if as_json:
        print_json([_plain(each) for each in told])
        return
    print_rows(
        [
            {
                "n": each.aggregate_version,
                "event": each.event_type,
                "occurred at": when(each.occurred_at),
                "status": each.status,
                "unsettled": ", ".join(one.handler for one in each.deliveries if not one.settled),
                "payload": _told(each.payload),
            }
            for each in told
        ]
    )


def _plain(told: ToldEvent) -> Row:
    """Return it as JSON takes it; what it says is that already, and may be deeper than Python walks."""
    as_stored = ("payload", "headers")
    plain = attrs.asdict(told, filter=lambda attribute, _: attribute.name not in as_stored)
    names = (each.name for each in attrs.fields(type(told)))
    return {name: getattr(told, name) if name in as_stored else plain[name] for name in names}


@click.command("failed")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="How many.")
@json_option
def failed(*, limit: int, as_json: bool) -> None:
    """List what is dead or will be tried again, the oldest event first, with how many wait behind each."""
    found = at_desk(lambda desk: stories.failed(desk, limit))
    if as_json:
        print_json(attrs.asdict(found))
        return
    if not found.failed:
        click.echo("nothing has failed", err=True)
        return
    print_rows([_failure(each) for each in found.failed])
    if left := found.total - len(found.failed):
        click.echo(f"and {count(left, 'more', 'more')}: --limit shows them", err=True)


def _failure(each: Failure) -> Row:
    return {
        "event": each.event_id,
        "type": each.event_type,
        "handler": each.handler,
        "status": each.status,
        "attempts": each.attempts,
        "next": when(each.next_at),
        "behind": each.behind,
        "error": _short(each.error_message),
    }


def _event(each: Event) -> Row:
    return {
        "position": each.position,
        "event": each.event_id,
        "type": each.event_type,
        "aggregate": _aggregate(each),
        "n": each.aggregate_version,
        "status": each.status,
        "failures": each.retry_count,
        "stored": when(each.created_at),
        "not before": when(each.not_before),
        "error": _short(each.error_message),
    }


def _delivery(each: Delivery) -> Row:
    return {
        "handler": each.handler,
        "status": each.status,
        "attempts": each.attempts,
        "held by": each.held_by,
        "waits for": each.waits_for,
        "error": each.error_message,
    }


_TOLD_ELSEWHERE = ("aggregate_type", "aggregate_id", "aggregate_key", "class_known", "deliveries", "receipts")


def _facts(story: Story) -> Row:
    """Leave out what is empty, and what is told by other lines."""
    told = {
        field.name: getattr(story, field.name)
        for field in attrs.fields(type(story))
        if field.name not in (*_TOLD_ELSEWHERE, "subscriptions")
    }
    told |= {"aggregate": _aggregate(story), "headers": story.headers or None}
    if not story.class_known:
        told["masked"] = (
            "every field, since this event's class is not known here: run it where the contexts are"
        )
    return {name: value for name, value in told.items() if value not in (None, "", 0)}


def _aggregate(event: Event) -> str | None:
    identity = event.aggregate_key or event.aggregate_id
    return f"{event.aggregate_type}:{identity}" if identity else None


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
