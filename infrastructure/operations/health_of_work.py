"""Doctor's look at the work: what is not delivered, and why (O1, R2, R9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infrastructure.operations.verdicts import Check, fail, ok, seconds, warn
from infrastructure.outbox.sql.inspection import ORPHANS
from infrastructure.plain_text import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infrastructure.operations.desk import Desk
    from infrastructure.operations.overview import Overview

# A claim takes milliseconds, and a takeover half a minute.
PENDING_SECONDS_MAX = 60.0
# Longer than the longest delay between two attempts.
OPEN_SECONDS_MAX = 3_600.0
# Live relays sweep for such leases once a minute, and at once when another's lease runs out.
ORPHAN_SECONDS_MAX = 120.0


async def examine_work(desk: Desk, seen: Overview) -> list[Check]:
    """Check relays, backlog, leases, subscriptions and dead letters."""
    checks = [_relays(seen), _oldest(seen), await _orphans(desk, seen), _stranded(seen)]
    return [*checks, _dead(seen), *_held(seen), *_paused_publishers(seen)]


def _relays(seen: Overview) -> Check:
    undone = seen.backlog["pending"] + seen.backlog["leased"] + seen.backlog["open"]
    if seen.live:
        return ok("relays", f"{len(seen.live)} live")
    if undone:
        return fail(
            "relays",
            f"none lives, and {count(undone, 'event')} {_are(undone)} undelivered",
            "start `outbox relay`",
        )
    return warn("relays", "none lives; nothing is undelivered", "start `outbox relay`")


def _oldest(seen: Overview) -> Check:
    oldest = seen.oldest
    if oldest is None:
        return ok("oldest event", "nothing is undelivered")
    age, what = oldest["age_seconds"], f"event {oldest['event_id']} ({oldest['event_type']})"
    detail = f"{what} is {oldest['status']} since {seconds(age)}"
    limit = OPEN_SECONDS_MAX if oldest["status"] == "open" else PENDING_SECONDS_MAX
    if age <= limit:
        return ok("oldest event", detail)
    return warn("oldest event", detail, f"`outbox show {oldest['event_id']}` says what it waits for")


async def _orphans(desk: Desk, seen: Overview) -> Check:
    found = await desk.fetch_one(ORPHANS, desk.now)
    if not found["leases"]:
        return ok("leases", "all are held by live relays")
    held = f"{found['leases']} {_are(found['leases'])} held by nobody"
    detail = f"{held}, the oldest since {seconds(found['age_seconds'])}"
    if not seen.live:
        return warn("leases", detail, "start `outbox relay`: it takes them over")
    if found["age_seconds"] > ORPHAN_SECONDS_MAX:
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
    if first.reason == "the subscription is retired":
        return fail("abilities", detail, f"`outbox retire {first.handler}` again ends them")
    return fail(
        "abilities",
        detail,
        f"deploy the code that can, or end the handler with `outbox retire {first.handler}`",
    )


def _dead(seen: Overview) -> Check:
    dead = sum(each["dead"] for each in seen.subscriptions)
    if not dead:
        return ok("dead letters", "none")
    return warn(
        "dead letters",
        f"{count(dead, 'delivery', 'deliveries')} {_are(dead)} dead",
        "`outbox failed` lists them: mend the cause, then `outbox retry`, or `outbox skip`",
    )


def _held(seen: Overview) -> Iterator[Check]:
    for each in seen.subscriptions:
        if each["paused_at"] is not None and each["retired_at"] is None:
            yield warn(
                "paused",
                f"{each['name']} is held since {each['paused_at']:%Y-%m-%d %H:%M}, {_wait(each['waiting'])}",
                f"`outbox resume {each['name']}` lets it go on",
            )


def _paused_publishers(seen: Overview) -> Iterator[Check]:
    for each in seen.subscriptions:
        if each["broker_away"] is not None and each["retired_at"] is None:
            yield warn(
                "publisher",
                f"{each['name']} is paused, {_wait(each['waiting'])}: {each['broker_away']}",
                "mend the broker, and it goes on by itself within seconds; nothing is lost and nobody is charged",
            )


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _wait(number: int) -> str:
    return f"{number} {'waits' if number == 1 else 'wait'}"
