"""`outbox status`: who relays, what is left to do, and what nobody can do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import attrs
import click

from outbox_kernel.infrastructure.application import Outbox
from outbox_kernel.infrastructure.cli.output import json_option, print_json, print_rows, print_title, when
from outbox_kernel.infrastructure.operations.verdicts import seconds
from outbox_kernel.infrastructure.plain_text import printable
from outbox_kernel.infrastructure.relay import RelaySettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outbox_kernel.infrastructure.operations.overview import Overview


@click.command("status")
@json_option
def command(*, as_json: bool) -> None:
    """Show the live relays, the backlog, every subscription, and deliveries and queues that are stuck."""
    # How relays are set up is no business of who looks on.
    seen = asyncio.run(Outbox(relay_settings=RelaySettings()).status())
    if as_json:
        print_json(attrs.asdict(seen))
        return
    _relays(seen)
    _backlog(seen)
    _subscriptions(seen)
    _left_over(seen)
    _stranded(seen)
    _queues(seen)


def _relays(seen: Overview) -> None:
    if not seen.live:
        click.echo("no relay lives: start `outbox relay`")
    if seen.is_unclaimed:
        click.echo("no relay that lives takes events: start `outbox relay`")
    if not seen.relays:
        return
    print_title("relays")
    print_rows(
        [
            {
                "relay": str(relay.id)[:8],
                "host": relay.host,
                "process": relay.process_id,
                "since": when(relay.started_at),
                "code version": relay.code_version,
                "handlers": len(relay.abilities),
                "takes events": "yes" if relay.takes_events else "no",
                "lease": f"{relay.lease_seconds_left:.0f} s left" if relay.live else "run out",
            }
            for relay in seen.relays
        ]
    )


def _backlog(seen: Overview) -> None:
    print_title("events")
    backlog = dict(seen.backlog)
    about = "about " if backlog.pop("delivered_is_estimated") else ""
    print_rows(
        [
            {"status": name, "events": f"{about if name == 'delivered' else ''}{number}"}
            for name, number in backlog.items()
        ]
    )
    if seen.oldest:
        what = f"{printable(seen.oldest['event_type'])} {seen.oldest['event_id']}, {seen.oldest['status']}"
        click.echo(f"oldest undelivered: {what} since {seconds(seen.oldest['age_seconds'])}")


def _subscriptions(seen: Overview) -> None:
    if not seen.subscriptions:
        return
    print_title("subscriptions")
    print_rows(
        [
            {
                "name": each["name"],
                "for": ", ".join(each["patterns"] or ()),
                "live relays": each["carried_by"],
                "waiting": each["waiting"],
                "leased": each["leased"],
                "dead": each["dead"],
                "held": _held(each),
            }
            for each in seen.subscriptions
        ]
    )


def _held(each: Mapping[str, Any]) -> str:
    if each["retired_at"]:
        return "retired"
    if each["paused_at"]:
        return "paused"
    return f"its broker takes nothing: {each['broker_away']}" if each["broker_away"] else ""


def _left_over(seen: Overview) -> None:
    left = [(each["name"], pattern) for each in seen.subscriptions for pattern in each["carried_no_more"]]
    if left:
        print_title("due, though no live relay of that name carries it")
        print_rows([{"name": name, "for": pattern} for name, pattern in left])


def _stranded(seen: Overview) -> None:
    if not seen.stranded:
        return
    print_title("no live relay can run")
    print_rows(
        [
            {
                "handler": each.handler,
                "event": f"{each.event_type} v{each.event_version}",
                "deliveries": each.deliveries,
                "since": when(each.since),
                "reason": each.reason,
            }
            for each in seen.stranded
        ]
    )


def _queues(seen: Overview) -> None:
    if not seen.queues:
        return
    print_title("queues that are stuck")
    print_rows(
        [
            {
                "queue": each.queue,
                "host": each.host,
                "process": each.process_id,
                "since": when(each.since),
                "reason": each.reason,
            }
            for each in seen.queues
        ]
    )
