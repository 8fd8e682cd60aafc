"""Status: who relays, how far each subscription is, what is left to do, and what nobody can do (R2, R9, O1)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from outbox_kernel.infrastructure.operations import stories
from outbox_kernel.infrastructure.operations.overview import Backlog, SubscriptionState, overview

HANDLER = "bank.Letters"
PACKAGE = "outbox_kernel.infrastructure.operations.overview"


async def subscription(outbox: Any, name: str = HANDLER) -> SubscriptionState:
    [found] = [each for each in (await overview(outbox.desk)).subscriptions if each.name == name]
    return found


async def test_events_are_counted_once_each_and_the_oldest_undelivered_is_named(outbox: Any) -> None:
    await outbox.event(days_old=4)
    await outbox.failed_event(days_old=3)
    oldest = await outbox.failed_event(status="waiting", days_old=2)
    await outbox.subscription()
    await outbox.subscription("bank.Other", ("bank.*",))
    for days_old in (1, 1):
        await outbox.event(days_old=days_old)
    await outbox.failed_event()
    seen = await overview(outbox.desk)
    assert seen.backlog == Backlog(
        pending=3,
        pending_is_at_least=False,
        open=1,
        dead=1,
        delivered=1,
        delivered_is_estimated=False,
    )
    assert seen.oldest is not None
    assert (seen.oldest.event_id, seen.oldest.status) == (oldest, "open")
    assert 2 * 86_000 < seen.oldest.age_seconds < 2 * 87_000
    await outbox.execute("DELETE FROM outbox_deliveries")
    oldest_pending = (await overview(outbox.desk)).oldest
    assert oldest_pending is not None
    assert (oldest_pending.position, oldest_pending.status) == (4, "pending")


async def test_an_outbox_with_nothing_left_to_do_has_no_oldest_event(outbox: Any) -> None:
    await outbox.subscription()
    await outbox.event()
    await outbox.passed()
    assert (await overview(outbox.desk)).oldest is None


async def test_before_anybody_has_subscribed_all_of_it_is_pending(outbox: Any) -> None:
    """D2: whoever is the first gets all of it."""
    await outbox.failed_event(days_old=2)
    await outbox.event(days_old=1)
    seen = await overview(outbox.desk)
    assert (seen.backlog.pending, seen.backlog.dead, seen.backlog.delivered) == (2, 0, 0)
    assert seen.oldest is not None
    assert (seen.oldest.position, seen.oldest.status) == (1, "pending")
    assert len(await stories.events(outbox.desk, status="pending")) == 2


async def test_what_stands_behind_a_subscription_is_what_it_is_due_for(outbox: Any) -> None:
    """O1: in events and seconds."""
    await outbox.event()
    await outbox.subscription(patterns=("bank.pa*",))
    await outbox.subscription("bank.Queued", ("bank.*",), source="notes")
    assert ((await subscription(outbox)).lag_events, (await subscription(outbox)).lag_seconds) == (0, None)
    await outbox.event(days_old=2, event_type="bank.noted")
    for days_old in (1, 0.5):
        await outbox.event(uuid4(), days_old=days_old)
    found = await subscription(outbox)
    assert (found.lag_events, found.lag_is_at_least) == (2, False)
    assert found.lag_seconds is not None
    assert 86_000 < found.lag_seconds < 87_000
    assert (await subscription(outbox, "bank.Queued")).lag_events == 0
    await outbox.execute("UPDATE outbox_events SET source = 'notes' WHERE event_type = 'bank.noted'")
    assert (await subscription(outbox, "bank.Queued")).lag_events == 1
    await outbox.passed()
    assert (await subscription(outbox)).lag_events == 0


@pytest.mark.parametrize("is_newer", [True, False])
async def test_what_commits_late_below_its_place_stands_behind_a_subscription(
    outbox: Any, *, is_newer: bool
) -> None:
    """R2b: whether the snapshot lists its transaction as running, or knew nothing of it."""
    await outbox.subscription()
    other = await asyncpg.connect(outbox.url)
    await other.execute("BEGIN")
    late = await asyncpg.connect(outbox.url)
    insert = (
        "INSERT INTO outbox_events (event_id, event_type, event_version, payload, occurred_at) "
        "VALUES (gen_random_uuid(), 'bank.paid', 1, '{}', now())"
    )
    await (other if is_newer else late).execute("SELECT pg_current_xact_id()")
    await late.execute("BEGIN")
    await late.execute(insert)
    await other.execute(insert)
    await other.execute("COMMIT")
    await outbox.passed()
    assert (await subscription(outbox)).lag_events == 0
    await late.execute("COMMIT")
    assert (await subscription(outbox)).lag_events == 1
    assert (await overview(outbox.desk)).backlog.pending == 1
    assert [each.position for each in await stories.events(outbox.desk, status="pending")] == [1]
    await outbox.passed()
    assert (await subscription(outbox)).lag_events == 0
    await late.close()
    await other.close()


async def test_of_what_is_far_behind_only_the_beginning_is_looked_at(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{PACKAGE}.LAG_EVENTS_MAX", 2)
    await outbox.subscription()
    await outbox.subscription("bank.Noted", ("bank.noted",))
    for _ in range(3):
        await outbox.event()
    found = await subscription(outbox)
    assert (found.lag_events, found.lag_is_at_least) == (2, True)
    found = await subscription(outbox, "bank.Noted")
    assert (found.lag_events, found.lag_is_at_least) == (0, True)
    backlog = (await overview(outbox.desk)).backlog
    assert (backlog.pending, backlog.pending_is_at_least, backlog.delivered) == (2, True, None)


async def test_subscriptions_tell_their_live_relays_and_deliveries(outbox: Any) -> None:
    await outbox.subscription()
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    await outbox.relay({HANDLER: {"bank.paid": 1}}, live=False)
    for status in ("waiting", "waiting", "leased", "dead", "done"):
        await outbox.failed_event(status=status)
    await outbox.failed_event(status="waiting", handler="bank.Stranger")
    seen = await overview(outbox.desk)
    assert [relay.live for relay in seen.relays].count(True) == len(seen.live) == 1
    letters, stranger = seen.subscriptions
    assert (letters.carried_by, letters.waiting, letters.leased, letters.dead) == (1, 2, 1, 1)
    assert (stranger.name, stranger.kind, stranger.waiting) == ("bank.Stranger", None, 1)


async def test_who_stands_still_says_why(outbox: Any) -> None:
    """R7: and what a relay said that lives no more does not count."""
    await outbox.subscription()
    await outbox.relay({HANDLER: {"bank.paid": 1}}, live=False)
    told = {HANDLER: {"reason": "payments are away", "since": "2026-01-02T03:04:05+00:00"}}
    await outbox.pauses(told)
    assert (await subscription(outbox)).stands_still is None
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    await outbox.pauses(told)
    assert (await subscription(outbox)).stands_still == "payments are away"


async def test_a_subscription_that_nobody_reads_for_is_named(outbox: Any) -> None:
    """R2: only where something stands behind it."""
    await outbox.subscription()
    assert (await overview(outbox.desk)).unread == []
    await outbox.event()
    assert [each.name for each in (await overview(outbox.desk)).unread] == [HANDLER]
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    assert (await overview(outbox.desk)).unread == []


async def test_a_pattern_that_live_relays_of_its_name_carry_no_more_is_named(outbox: Any) -> None:
    """R2: and of a name that none carries, or that is retired, the name is enough."""
    await outbox.relay({"bank.A": {"bank.paid": 1}}, patterns={"bank.A": ["bank.paid"]})
    await outbox.relay({"bank.B": {"bank.paid": 1}, "bank.D": {"bank.paid": 1}})
    for name in ("bank.A", "bank.B", "bank.C", "bank.D"):
        await outbox.subscription(name, ("bank.noted", "bank.paid"))
    await outbox.execute("UPDATE outbox_subscriptions SET retired_at = now() WHERE name = 'bank.D'")
    found = {each.name: each.carried_no_more for each in (await overview(outbox.desk)).subscriptions}
    assert found == {"bank.A": ["bank.noted"], "bank.B": ["bank.noted"], "bank.C": [], "bank.D": []}


async def test_what_no_live_relay_can_run_is_named_with_the_reason(outbox: Any) -> None:
    await outbox.relay({"bank.A": {"bank.paid": 1, "bank.unknown": 0}, "bank.All": {"bank.*": 1}})
    await outbox.relay({"bank.B": {"bank.paid": 1}}, live=False)
    await outbox.subscription("bank.Old")
    await outbox.execute("UPDATE outbox_subscriptions SET retired_at = now()")
    for handler, event_type, version in (
        *(("bank.A", "bank.paid", 1), ("bank.A", "bank.paid", 2), ("bank.A", "bank.unknown", 1)),
        *(("bank.A", "bank.noted", 1), ("bank.B", "bank.paid", 1), ("bank.All", "bank.paid", 1)),
        ("bank.Old", "bank.paid", 1),
    ):
        event = await outbox.event(uuid4(), event_type=event_type, version=version)
        await outbox.delivery(event, "waiting", handler=handler)
    seen = {
        (each.handler, each.event_type, each.event_version): each.reason
        for each in (await overview(outbox.desk)).stranded
    }
    assert seen == {
        ("bank.A", "bank.paid", 2): "the live relays that carry it know only older versions, up to 1",
        ("bank.A", "bank.unknown", 1): "the live relays that carry it do not know this event type",
        ("bank.A", "bank.noted", 1): "the live relays that carry it do not know this event type",
        ("bank.B", "bank.paid", 1): "no live relay carries it",
        ("bank.Old", "bank.paid", 1): "the subscription is retired",
    }


async def test_a_queue_is_told_by_each_live_consumer_that_is_stuck_with_it(outbox: Any) -> None:
    """T4: and by none that lives no more; what publishers tell is told with their subscriptions."""
    await outbox.relay()
    await outbox.relay(live=False)
    late = {"reason": "it is away", "since": "2026-01-02T03:04:05+00:00"}
    await outbox.pauses({"queue b": late, "queue a": late, "bank": late})
    assert [
        (each.queue, each.host, each.process_id, each.reason, each.since.isoformat())
        for each in (await overview(outbox.desk)).queues
    ] == [(name, "host-1", 7, "it is away", late["since"]) for name in ("a", "b")]


async def test_of_a_big_table_what_is_delivered_is_estimated_and_never_less_than_none(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{PACKAGE}.COUNT_BYTES_MAX", 0)
    await outbox.subscription()
    await outbox.event()
    backlog = (await overview(outbox.desk)).backlog
    assert backlog.delivered_is_estimated
    assert backlog.delivered is not None
    assert backlog.delivered >= 0
    assert backlog.pending == 1
