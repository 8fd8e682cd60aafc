"""Status: who relays, what is left to do, and what nobody can do (R2, R9, O1)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.outbox.sql.inspection import BACKLOG

HANDLER = "bank.Letters"


async def test_events_are_counted_by_status_and_the_oldest_undelivered_is_named(outbox: Any) -> None:
    await outbox.event(days_old=3)
    await outbox.delivery(await outbox.event(status="dead", days_old=2))
    oldest = await outbox.event(status="open", days_old=1)
    await outbox.delivery(oldest, "waiting")
    for status in ("pending", "pending", "leased"):
        await outbox.event(status=status)
    seen = await overview(outbox.desk)
    assert seen.backlog == {
        "pending": 2,
        "leased": 1,
        "open": 1,
        "dead": 1,
        "delivered": 1,
        "delivered_is_estimated": False,
    }
    assert seen.oldest is not None
    assert (seen.oldest["event_id"], seen.oldest["status"]) == (oldest, "open")
    assert 86_000 < seen.oldest["age_seconds"] < 87_000


async def test_an_outbox_with_nothing_left_to_do_has_no_oldest_event(outbox: Any) -> None:
    await outbox.event()
    assert (await overview(outbox.desk)).oldest is None


async def test_subscriptions_tell_their_live_relays_and_deliveries(outbox: Any) -> None:
    await outbox.subscription()
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    await outbox.relay({HANDLER: {"bank.paid": 1}}, live=False)
    for status in ("waiting", "waiting", "leased", "dead", "done"):
        await outbox.delivery(await outbox.event(status="open"), status)
    await outbox.delivery(await outbox.event(status="open"), "waiting", handler="bank.Stranger")
    seen = await overview(outbox.desk)
    assert [relay.live for relay in seen.relays].count(True) == len(seen.live) == 1
    letters, stranger = seen.subscriptions
    assert (letters["carried_by"], letters["waiting"], letters["leased"], letters["dead"]) == (1, 2, 1, 1)
    assert (stranger["name"], stranger["kind"], stranger["waiting"]) == ("bank.Stranger", None, 1)


async def test_a_pattern_that_live_relays_of_its_name_carry_no_more_is_named(outbox: Any) -> None:
    """R2: and of a name that none carries, or that is retired, the name is enough."""
    await outbox.relay({"bank.A": {"bank.paid": 1}}, patterns={"bank.A": ["new/bank.paid"]})
    await outbox.relay({"bank.B": {"bank.paid": 1}, "bank.D": {"bank.paid": 1}})
    for name in ("bank.A", "bank.B", "bank.C", "bank.D"):
        await outbox.subscription(name, ("bank.noted", "bank.paid", "new/bank.paid"))
    await outbox.execute("UPDATE outbox_subscriptions SET retired_at = now() WHERE name = 'bank.D'")
    found = {each["name"]: each["carried_no_more"] for each in (await overview(outbox.desk)).subscriptions}
    assert found == {
        "bank.A": ["bank.noted", "bank.paid"],
        "bank.B": ["bank.noted"],
        "bank.C": [],
        "bank.D": [],
    }


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
        event = await outbox.event(uuid4(), "open", event_type=event_type, version=version)
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
    monkeypatch.setattr(
        "outbox_kernel.infrastructure.operations.overview.BACKLOG", BACKLOG.replace("64 * 1024 * 1024", "0")
    )
    await outbox.event(status="pending")
    backlog = (await overview(outbox.desk)).backlog
    assert backlog["delivered_is_estimated"]
    assert backlog["delivered"] >= 0
    assert backlog["pending"] == 1
