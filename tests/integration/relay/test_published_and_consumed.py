"""One database that publishes an event and consumes it: it is done when both are, and kept until then (R2, R13, T3)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from outbox_kernel.infrastructure.consumer.reading import Received
from outbox_kernel.infrastructure.consumer.storing import Storage
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.infrastructure.relay.retention import Retention
from outbox_kernel.infrastructure.relay.store import Store
from outbox_kernel.kernel import Reject
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.relaying import Recorder, Stage, handler
from tests.waiting import until

QUEUE = "q"
WEEK_AND_A_DAY = "UPDATE outbox_events SET {0} = {0} - interval '8 days'"


def notes(act: Any) -> HandlerRegistration:
    """The handler of the queue."""
    return handler("notes", act, queue=QUEUE)


async def consume(stage: Stage, act: Any, *, at: float = 0) -> None:
    """What the relay beside a consumer does: it takes deliveries of the queue's handlers alone."""
    relay = OutboxRelay(
        stage.engine, stage.container, handlers=[notes(act)], queues=[QUEUE], now=stage.at(at)
    )
    stage.relays.append(relay)
    await relay.run_until_idle()


async def arrive(stage: Stage, what: str, *, line: Any = None) -> None:
    """Store the event as it comes back through the queue."""
    row = await stage.event(what)
    event_id, payload = row["event_id"], row["payload"]
    received = Received(event_id, "bank.noted", 1, None, None, None, payload, "{}", datetime.now(UTC))
    if row["aggregate_id"] is not None:
        received = received._replace(
            aggregate_type=row["aggregate_type"],
            aggregate_id=row["aggregate_id"],
            aggregate_version=row["aggregate_version"],
        )
    assert (await Storage(QUEUE).store(line or stage.line(), [received])).refused == {}


async def purge_all(stage: Stage) -> None:
    for column in ("created_at", "processed_at"):
        await stage.witness.execute(WEEK_AND_A_DAY.format(column))
    await Retention(Store(), 7.0).step(stage.line())


@pytest.mark.parametrize("fails", [False, True])
async def test_what_arrives_in_the_first_pass_keeps_the_event_open(stage: Stage, fails: bool) -> None:
    """R2, T3: it comes back through the queue before the relay that sent it has marked it."""
    await consume(stage, Recorder())
    seen = Recorder()

    async def act(event: Any) -> None:
        await arrive(stage, event.what)
        if fails and not seen.seen:
            raise ValueError("not yet")

    await stage.put("a")
    await stage.drain(handler("own", act))
    assert (await stage.event("a"))["status"] == "open"
    assert (await stage.event("a"))["processed_at"] is None
    await consume(stage, seen)
    assert seen.seen == ["a"]
    await stage.drain(handler("own", act), at=3600)
    assert await stage.events() == {"a": "delivered"}


async def test_a_mark_that_waits_for_what_arrives_sees_it(stage: Stage) -> None:
    """R2, T3: of two events that are marked together, one is being stored at that moment."""
    await consume(stage, Recorder())
    begun, stored = asyncio.Event(), asyncio.Event()

    async def act(event: Any) -> None:
        begun.set()
        await stored.wait()

    await stage.put("a", "b")
    async with stage.engine.connect() as connection:
        storing: Any = (await connection.get_raw_connection()).driver_connection
        relay = asyncio.create_task(stage.drain(handler("own", act)))
        await begun.wait()
        await storing.execute("BEGIN")
        await arrive(stage, "b", line=storing)
        stored.set()
        await until(lambda: a_mark_waits(stage))
        await storing.execute("COMMIT")
        await relay
    assert await stage.events() == {"a": "delivered", "b": "open"}


async def a_mark_waits(stage: Stage) -> bool:
    return bool(
        await stage.witness.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%''delivered''%'"
        )
    )


async def test_what_arrives_before_the_first_pass_keeps_the_event_open(stage: Stage) -> None:
    """R2, T3: as when the relay that sent it has vanished, and it is pending again."""
    await consume(stage, Recorder())
    await stage.put("a")
    await arrive(stage, "a")
    assert await stage.events() == {"a": "pending"}
    await stage.drain(handler("own", Recorder()))
    assert await stage.events() == {"a": "open"}
    await consume(stage, Recorder())
    assert await stage.events() == {"a": "delivered"}


@pytest.mark.parametrize(("trouble", "status"), [((), "delivered"), ((Reject("no"),), "dead")])
async def test_what_is_over_in_the_queue_before_the_mark_counts_with_it(
    stage: Stage, trouble: tuple[Exception, ...], status: str
) -> None:
    """R2, R7, T3: an event that is dead for the queue's handler is a dead letter, whatever its own come to."""
    await consume(stage, Recorder())

    async def act(event: Any) -> None:
        await arrive(stage, event.what)
        await consume(stage, Recorder().fail(event.what, *trouble) if trouble else Recorder())

    await stage.put("a")
    await stage.drain(handler("own", act))
    assert await stage.events() == {"a": status}
    assert (await stage.event("a"))["processed_at"] is not None


async def test_what_is_delivered_is_open_again_when_it_arrives(stage: Stage) -> None:
    """T3: once; what it has already is not added again."""
    await consume(stage, Recorder())
    await stage.put("a")
    await stage.drain(handler("own", Recorder()))
    await arrive(stage, "a")
    row = await stage.event("a")
    assert (row["status"], row["processed_at"]) == ("open", None)
    await consume(stage, Recorder())
    await arrive(stage, "a")
    assert await stage.events() == {"a": "delivered"}


async def test_an_event_that_was_made_pending_by_hand_is_delivered_again(stage: Stage) -> None:
    """R2: it says that it had an outcome, and has no deliveries."""
    await stage.put("a")
    await stage.drain(handler("own", Recorder()))
    await stage.witness.execute("UPDATE outbox_events SET status = 'pending'")
    await stage.drain(handler("own", Recorder()))
    assert await stage.events() == {"a": "delivered"}


async def test_no_event_goes_while_somebody_is_to_handle_it(stage: Stage) -> None:
    """R13, R7: nor one that is dead for a handler, even if its row says that it is delivered."""
    await consume(stage, Recorder())
    await stage.put("waiting", "dead", "done")
    await stage.drain(handler("own", Recorder()))
    for what in ("waiting", "dead", "done"):
        await arrive(stage, what)
    for what in ("dead", "done"):
        await stage.witness.execute(
            "UPDATE outbox_deliveries SET status = $1 WHERE event_id = $2",
            *(what, (await stage.event(what))["event_id"]),
        )
    await stage.witness.execute("UPDATE outbox_events SET status = 'delivered', processed_at = now()")
    await purge_all(stage)
    assert list(await stage.events()) == ["waiting", "dead"]
    assert await stage.deliveries() == {("waiting", "notes"): "waiting", ("dead", "notes"): "dead"}


async def test_what_waits_behind_a_dead_one_outlives_it_in_the_outbox(stage: Stage) -> None:
    """R7, R13: both come back through the queue before they are marked, and the first is refused there."""
    await consume(stage, Recorder())

    async def act(event: Any) -> None:
        await arrive(stage, event.what)

    await stage.put("a", "b", of=UUID(int=1))
    await stage.drain(handler("own", act))
    await consume(stage, Recorder().fail("a", Reject("no")))
    assert await stage.events() == {"a": "dead", "b": "open"}
    await purge_all(stage)
    assert await stage.deliveries() == {("a", "notes"): "dead", ("b", "notes"): "waiting"}
