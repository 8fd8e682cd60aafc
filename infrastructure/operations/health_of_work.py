"""Doctor's look at the work: what is not delivered, and why (O1, R2, R9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.operations.abilities import NOT_CARRIED, NOT_FOR_TYPE, RETIRED
from outbox_kernel.infrastructure.operations.limits import (
    OPEN_SECONDS_MAX,
    ORPHAN_SECONDS_MAX,
    PENDING_SECONDS_MAX,
)
from outbox_kernel.infrastructure.operations.verdicts import Check, fail, ok, seconds, warn
from outbox_kernel.infrastructure.outbox.sql.inspection import ORPHANS
from outbox_kernel.infrastructure.plain_text import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from outbox_kernel.infrastructure.operations.abilities import Stranded
    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.operations.overview import Overview, SubscriptionState


async def examine_work(desk: Desk, seen: Overview) -> list[Check]:
    """Check relays, backlog, leases, subscriptions and dead letters."""
    checks = [_relays(seen), _oldest(seen), await _orphans(desk, seen), _stranded(seen)]
    waits = [*_unread(seen), *_left_over(seen), *_held(seen), *_standing(seen), *_stuck_queues(seen)]
    return [*checks, _dead(seen), *waits]


def _relays(seen: Overview) -> Check:
    if seen.live:
        return ok("relays", f"{len(seen.live)} live")
    undone = seen.backlog.pending + seen.backlog.open
    if undone:
        return fail(
            "relays",
            f"none lives, and {count(undone, 'event')} {_are(undone)} undelivered",
            "start `outbox relay`",
        )
    return warn("relays", "none lives; nothing is undelivered", "start `outbox relay`")


def _unread(seen: Overview) -> Iterator[Check]:
    for each in seen.unread if seen.live else ():
        stand = f"{count(each.lag_events, 'event')} {'stands' if each.lag_events == 1 else 'stand'} behind it"
        yield fail(
            "readers",
            f"no live relay carries {each.name}, and {stand}",
            f"start a relay that does, or end it with `outbox retire {each.name}`",
        )


def _oldest(seen: Overview) -> Check:
    oldest = seen.oldest
    if oldest is None:
        return ok("oldest event", "nothing is undelivered")
    what = f"event {oldest.event_id} ({oldest.event_type})"
    detail = f"{what} is {oldest.status} for {seconds(oldest.age_seconds)}"
    limit = OPEN_SECONDS_MAX if oldest.status == "open" else PENDING_SECONDS_MAX
    if oldest.age_seconds <= limit:
        return ok("oldest event", detail)
    return warn("oldest event", detail, f"`outbox show {oldest.event_id}` says what it waits for")


async def _orphans(desk: Desk, seen: Overview) -> Check:
    found = await desk.run_one(ORPHANS)
    if not found["leases"]:
        return ok("leases", "all are held by live relays")
    held, age = f"{found['leases']} {_are(found['leases'])} held by nobody", found["age_seconds"] or 0.0
    detail = f"{held}, the oldest for {seconds(age)}"
    if not seen.live:
        return warn("leases", detail, "start `outbox relay`: it takes them over")
    if age > ORPHAN_SECONDS_MAX:
        return fail("leases", detail, "look at the relays' logs: a live one takes them over within a minute")
    return ok("leases", detail + ", about to be taken over")


def _stranded(seen: Overview) -> Check:
    if not seen.stranded:
        return ok("abilities", "whatever waits, a live relay can run")
    first, number = seen.stranded[0], sum(each.deliveries for each in seen.stranded)
    waiting = count(number, "delivery", "deliveries")
    detail = f"nobody can run {waiting}: {first.handler} for {first.event_type}, {first.reason}"
    if not seen.live:
        detail = f"no relay is running, so {detail}"
        return fail("abilities", detail, "start `outbox relay`, and look again")
    return fail("abilities", detail, _remedy(first))


def _remedy(first: Stranded) -> str:
    if first.reason == RETIRED:
        return f"`outbox retire {first.handler}` again ends them"
    if first.reason == NOT_CARRIED:
        return f"deploy the code that can, or end the handler with `outbox retire {first.handler}`"
    if first.patterns:
        return f"run a relay that carries it, or end that with {_ended(first.handler, first.patterns)}"
    if first.reason == NOT_FOR_TYPE:
        ending = f"`outbox skip --handler {first.handler} --type {first.event_type} --waiting`"
        return f"run a relay that carries it, or let them pass with {ending}"
    return "deploy the code that can"


def _ended(name: str, patterns: Iterable[str]) -> str:
    return " and ".join(f"`outbox retire {name} --pattern '{each}'`" for each in patterns)


def _left_over(seen: Overview) -> Iterator[Check]:
    for each in seen.subscriptions:
        if left := each.carried_no_more:
            yield warn(
                "patterns",
                f"{each.name} is due for {', '.join(left)} as well, which no live relay carries",
                f"if no relay that does is to start again, end that with {_ended(each.name, left)}",
            )


def _dead(seen: Overview) -> Check:
    dead = sum(each.dead for each in seen.subscriptions)
    if not dead:
        return ok("dead letters", "none")
    return warn(
        "dead letters",
        f"{count(dead, 'delivery', 'deliveries')} {_are(dead)} dead",
        "`outbox failed` lists them: mend the cause, then `outbox retry`, or `outbox skip`",
    )


def _held(seen: Overview) -> Iterator[Check]:
    for each in seen.subscriptions:
        if each.paused_at is not None and each.retired_at is None:
            yield warn(
                "paused",
                f"{each.name} is held since {each.paused_at:%Y-%m-%d %H:%M}, {_wait(each)}",
                f"`outbox resume {each.name}` lets it go on",
            )


def _standing(seen: Overview) -> Iterator[Check]:
    for each in seen.subscriptions:
        if each.stands_still is not None and each.retired_at is None:
            is_handler = each.kind == "handler"
            yield warn(
                "handler" if is_handler else "publisher",
                f"{each.name} stands still, {_wait(each)}: {each.stands_still}",
                f"mend {'that' if is_handler else 'the broker'}, and it goes on by itself within seconds; nothing is "
                "lost and nobody is charged",
            )


def _stuck_queues(seen: Overview) -> Iterator[Check]:
    for each in seen.queues:
        yield warn(
            "queue",
            f"{each.queue} is stuck since {each.since:%Y-%m-%d %H:%M}, for process {each.process_id} on "
            f"{each.host}: {each.reason}",
            "mend it, and the consumer goes on by itself within seconds; nothing is lost",
        )


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _wait(each: SubscriptionState) -> str:
    number = each.lag_events + each.waiting
    return f"{'at least ' if each.lag_is_at_least else ''}{number} {'waits' if number == 1 else 'wait'}"
