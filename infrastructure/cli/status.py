"""`outbox status`: who relays, what is left to do, and what nobody can do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import click

from outbox_kernel.infrastructure.application import Outbox
from outbox_kernel.infrastructure.cli.output import json_option, print_json, print_rows, print_title, when
from outbox_kernel.infrastructure.operations.verdicts import seconds
from outbox_kernel.infrastructure.plain_text import printable
from outbox_kernel.infrastructure.relay import RelaySettings

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.operations.overview import Overview, SubscriptionState


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
    for each in seen.unread if seen.live else ():
        click.echo(f"no live relay carries {printable(each.name)}, and events stand behind it")
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
                "lease": f"{relay.lease_seconds_left:.0f} s left" if relay.live else "run out",
            }
            for relay in seen.relays
        ]
    )


def _backlog(seen: Overview) -> None:
    print_title("events")
    backlog = seen.backlog
    delivered = "not known while so much is pending"
    if backlog.delivered is not None:
        delivered = f"{'about ' if backlog.delivered_is_estimated else ''}{backlog.delivered}"
    print_rows(
        [
            {"status": "pending", "events": at_least(backlog.pending, is_more=backlog.pending_is_at_least)},
            {"status": "open", "events": backlog.open},
            {"status": "dead", "events": backlog.dead},
            {"status": "delivered", "events": delivered},
        ]
    )
    if seen.oldest:
        what = f"{printable(seen.oldest.event_type)} {seen.oldest.event_id}, {seen.oldest.status}"
        click.echo(f"oldest undelivered: {what} for {seconds(seen.oldest.age_seconds)}")


def at_least(number: int, *, is_more: bool) -> str:
    """Write a number that may be more."""
    return f"≥ {number}" if is_more else str(number)


def _subscriptions(seen: Overview) -> None:
    if not seen.subscriptions:
        return
    print_title("subscriptions")
    print_rows(
        [
            {
                "name": each.name,
                "for": ", ".join(each.patterns or ()),
                "queue": each.source,
                "live relays": each.carried_by,
                "behind": at_least(each.lag_events, is_more=each.lag_is_at_least),
                "oldest": "" if each.lag_seconds is None else seconds(each.lag_seconds),
                "waiting": each.waiting,
                "leased": each.leased,
                "dead": each.dead,
                "held": _held(each),
            }
            for each in seen.subscriptions
        ]
    )


def _held(each: SubscriptionState) -> str:
    if each.retired_at:
        return "retired"
    if each.paused_at:
        return "paused"
    if each.stands_still:
        return f"stands still: {each.stands_still}"
    return "no live relay carries it" if each.is_unread else ""


def _left_over(seen: Overview) -> None:
    left = [(each.name, pattern) for each in seen.subscriptions for pattern in each.carried_no_more]
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
