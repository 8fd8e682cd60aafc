"""Two queues that bring the same events, each in its own selection: the handlers of each in its order (R4, T3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio

from outbox_kernel.infrastructure.inbox.storing import StillMoving, Storage
from outbox_kernel.infrastructure.outbox.log_tables import ARRIVALS_EVENT_KEY
from outbox_kernel.infrastructure.outbox.purge import Purge
from outbox_kernel.infrastructure.relay.retention import Retention
from outbox_kernel.kernel import Reject
from tests.relaying import Recorder, Stage, connected
from tests.streams import WALLET, Stream, handle, of, store
from tests.waiting import until

ARRIVALS = """
SELECT payload->>'what' AS what, arrival.source, arrival.position
FROM outbox_arrivals AS arrival JOIN outbox_events USING (event_id) ORDER BY arrival.position
"""


async def arrivals(stage: Stage) -> list[tuple[str, str]]:
    """What each queue brought that was there, in the order of the log."""
    return [(row["what"], row["source"]) for row in await stage.witness.fetch(ARRIVALS)]


async def sources(stage: Stage) -> dict[str, str | None]:
    rows = await stage.witness.fetch("SELECT payload->>'what' AS what, source FROM outbox_events")
    return {row["what"]: row["source"] for row in rows}


@pytest.mark.parametrize(
    "batches",
    [
        ("few:ac", "audit:abc"),
        ("few:ac", "audit:ab", "audit:cd"),
        ("few:ac", "audit:a", "audit:b", "audit:c"),
        ("audit:a", "few:ac", "audit:bc"),
        ("few:c", "audit:abc", "few:cd", "audit:cd"),
        ("audit:ab", "few:ac", "audit:abc", "audit:abcd", "few:ac"),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
async def test_each_queues_handler_goes_by_its_own_queue(
    stage: Stage, batches: tuple[str, ...], *, at_once: bool
) -> None:
    """R4, T3: whichever queue was the first to bring an event, and however much is in hand when it comes."""
    audit, few = Recorder(), Recorder()
    both = of("audit", audit), of("few", few)
    await handle(stage, *both)
    stream = Stream()
    for batch in batches:
        queue, _, whats = batch.partition(":")
        await store(stage, queue, stream[whats])
        if not at_once:
            await handle(stage, *both)
    await handle(stage, *both)
    brought = {
        name: {what for each in batches for what in each.partition(":")[2] if name in each}
        for name in ("audit", "few")
    }
    assert audit.seen == sorted(brought["audit"])
    assert few.seen == sorted(brought["few"])
    assert set((await stage.events()).values()) == {"delivered"}
    assert await stage.deliveries() == {}


async def test_what_was_there_comes_after_what_its_queue_brought_before(stage: Stage) -> None:
    """R4, T3: though the database had it first."""
    audit = Recorder().fail("a", ValueError("not yet"))
    both = of("audit", audit), of("few", Recorder())
    await handle(stage, *both)
    stream = Stream()
    await store(stage, "few", stream["b"])
    await store(stage, "audit", stream["a"])
    await handle(stage, *both)
    await store(stage, "audit", stream["bc"])
    await handle(stage, *both)
    assert audit.seen == ["a"]
    await handle(stage, *both, at=3600)
    assert audit.seen == ["a", "a", "b", "c"]


async def test_what_a_queue_brings_again_is_written_once(stage: Stage) -> None:
    """T3: a message that was not acknowledged, beside one that is new; each event is one row, and one entry a queue."""
    stream = Stream()
    await store(stage, "few", stream["ac"])
    await store(stage, "audit", stream["ab"])
    for queue, whats in (("few", "ac"), ("audit", "abc"), ("few", "a"), ("audit", "abc")):
        await store(stage, queue, stream[whats])
    assert await sources(stage) == {"a": "few", "c": "few", "b": "audit"}
    assert await arrivals(stage) == [("a", "audit"), ("c", "audit")]


async def test_one_batch_may_have_an_event_twice(stage: Stage) -> None:
    """T3: new, or there already."""
    stream = Stream()
    await store(stage, "few", stream["aba"])
    await store(stage, "audit", stream["bbc"])
    assert await sources(stage) == {"a": "few", "b": "few", "c": "audit"}
    assert await arrivals(stage) == [("b", "audit")]


async def test_what_another_queue_stores_at_this_moment_keeps_its_turn(stage: Stage) -> None:
    """R4, T3: one of a batch has been inserted and not committed."""
    audit = Recorder()
    both = of("audit", audit), of("few", Recorder())
    await handle(stage, *both)
    stream = Stream()
    async with stage.engine.connect() as connection:
        other: Any = (await connection.get_raw_connection()).driver_connection
        await other.execute("BEGIN")
        await store(stage, "few", stream["b"], other)
        storing = asyncio.create_task(store(stage, "audit", stream["abc"]))
        await until(lambda: they_wait(stage, 1))
        await other.execute("COMMIT")
        await storing
    await handle(stage, *both)
    assert audit.seen == ["a", "b", "c"]
    assert set((await stage.events()).values()) == {"delivered"}


async def test_two_queues_that_store_the_same_in_another_order_do_not_trouble_each_other(
    stage: Stage,
) -> None:
    """R4, T3: each waits for what the other has inserted, until the server ends one of the two."""
    one, two = Stream("ab"), Stream("xy", uuid4())
    async with stage.engine.connect() as connection:
        gate: Any = (await connection.get_raw_connection()).driver_connection
        await gate.execute("BEGIN")
        await store(stage, "a third", one["b"], gate)
        few = asyncio.create_task(store(stage, "few", [*two["x"], *one["b"], *one["a"]]))
        await until(lambda: they_wait(stage, 1))
        audit = asyncio.create_task(store(stage, "audit", [*one["a"], *two["xy"]]))
        await until(lambda: they_wait(stage, 2))
        await gate.execute("ROLLBACK")
        await asyncio.gather(few, audit)
    rows = await stage.witness.fetch(
        "SELECT log.source, payload->>'what' AS what FROM outbox_log AS log JOIN outbox_events USING (event_id) "
        "ORDER BY log.position"
    )
    assert [row["what"] for row in rows if row["source"] == "few"] == ["x", "b", "a"]
    assert [row["what"] for row in rows if row["source"] == "audit"] == ["a", "x", "y"]


async def they_wait(stage: Stage, count: int) -> bool:
    waiting = (
        "SELECT count(*) = $1 FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    return bool(await stage.witness.fetchval(waiting, count))


# --- what is refused ---------------------------------------------------------------------------------


async def test_a_number_that_another_event_has_is_refused_and_keeps_nothing_behind_it(stage: Stage) -> None:
    """T3: the rest of the batch is stored and handled in its order."""
    audit = Recorder()
    await handle(stage, of("audit", audit))
    stream = Stream()
    forged = stream["a"][0]._replace(event_id=uuid4())
    refused = await Storage("audit").store(stage.line(), [*stream["a"], forged, *stream["bc"]])
    assert list(refused) == [1]
    assert refused[1].startswith(f"another event has number 1 of bank.wallet {WALLET}: ")
    await handle(stage, of("audit", audit))
    assert audit.seen == ["a", "b", "c"]


@pytest.mark.parametrize("queue", ["few", "audit"])
@pytest.mark.parametrize(
    "other",
    [
        {"payload": '{"what": "forged"}'},
        {"event_type": "bank.paid"},
        {"event_version": 2},
        {"aggregate_version": 9},
        {"aggregate_id": uuid4()},
        {"aggregate_type": None, "aggregate_id": None, "aggregate_version": None},
    ],
)
async def test_an_id_that_is_there_with_other_content_is_refused(
    stage: Stage, queue: str, other: dict[str, Any]
) -> None:
    """T3: what is there stays as it is, whichever queue brought it, and the rest of the batch is stored."""
    seen, stream = Recorder(), Stream()
    await handle(stage, of(queue, seen))
    await store(stage, "few", stream["a"])
    batch = [stream["a"][0]._replace(**other), *stream["b"]]
    refused = await Storage(queue).store(stage.line(), batch)
    assert list(refused) == [0]
    assert refused[0].startswith("another event has its id, of another type, aggregate or payload")
    assert await sources(stage) == {"a": "few", "b": queue}
    assert await arrivals(stage) == []


async def test_an_id_that_comes_twice_in_one_batch_with_other_content_is_refused_the_second_time(
    stage: Stage,
) -> None:
    """T3."""
    first, second = Stream()["aa"]
    forged = second._replace(payload='{"what": "forged"}')
    assert list(await Storage("audit").store(stage.line(), [first, forged])) == [1]
    assert await sources(stage) == {"a": "audit"}


@pytest.mark.parametrize("there", ["bare", "whole"])
async def test_a_name_of_the_context_that_only_one_of_two_bodies_has_is_no_other_content(
    stage: Stage, there: str
) -> None:
    """T3, X5: who does not know the class takes a field of that name for the context's, which is repeated."""
    bare = Stream()["a"][0]._replace(headers='{"user_id": "ada", "x": 1}')
    whole = bare._replace(payload=bare.payload.replace("{", '{"user_id": "ada", ', 1))
    first, second = (bare, whole) if there == "bare" else (whole, bare)
    await store(stage, "few", [first])
    await store(stage, "audit", [second])
    assert await arrivals(stage) == [("a", "audit")]
    forged = second._replace(payload=second.payload.replace('"a"', '"b"'))
    assert list(await Storage("third").store(stage.line(), [forged])) == [0]


class Meddling:
    """A line that others store the event before, and purge it right afterwards, each time."""

    def __init__(self, stage: Stage, event: Any) -> None:
        self.stage, self.event, self.tries = stage, event, 0

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        self.tries += 1
        async with self.stage.engine.connect() as connection:
            other: Any = (await connection.get_raw_connection()).driver_connection
            await other.execute("BEGIN")
            await store(self.stage, "few", [self.event], other)
            storing = asyncio.create_task(self.stage.line().fetch(statement, *arguments))
            await until(lambda: they_wait(self.stage, 1))
            await other.execute("COMMIT")
            try:
                return await storing
            finally:
                await self.stage.witness.execute("DELETE FROM outbox_events")


async def test_an_event_that_others_store_and_purge_all_the_time_is_left_to_come_again(stage: Stage) -> None:
    """T3: rather than among the dead letters."""
    [event] = Stream()["a"]
    line: Any = Meddling(stage, event)
    with pytest.raises(
        StillMoving, match=f"event {event.event_id} of queue 'audit' is being stored by others"
    ):
        await Storage("audit").store(line, [event])
    assert await stage.events() == {}


# --- what is purged as it comes ----------------------------------------------------------------------


@pytest_asyncio.fixture
async def other(bank_url: str) -> AsyncIterator[Any]:
    connection = await connected(bank_url)
    yield connection
    await connection.close()


class Week:
    """What one queue has brought and had handled, more than a week ago; another begins with it now."""

    def __init__(self, stage: Stage, whats: str) -> None:
        self.stage, self.stream, self.few = stage, Stream(), Recorder()
        self.whats, self.both = whats, (of("audit", Recorder()), of("few", self.few))
        self.keeper: Any = None

    async def began(self) -> Week:
        await handle(self.stage, *self.both)
        await store(self.stage, "audit", self.stream[self.whats])
        await handle(self.stage, *self.both)
        self.keeper = Retention(await self.stage.log(at=8 * 86_400), 7.0)
        return self

    async def bring(self, whats: str, line: Any = None) -> None:
        await store(self.stage, "few", self.stream[whats], line)

    async def purge(self) -> int:
        """How many events a window more took along."""
        before = self.keeper.purged.events
        await self.keeper.step()
        return int(self.keeper.purged.events - before)

    async def seen(self) -> list[str]:
        await handle(self.stage, *self.both)
        return self.few.seen


async def test_what_a_queue_brings_again_as_it_is_purged_stays(stage: Stage, other: Any) -> None:
    """T3, R13: the purge cannot see the arrival yet, and its message is acknowledged."""
    week = await Week(stage, "a").began()
    async with other.transaction():
        await week.bring("a", other)
        purging = asyncio.create_task(week.purge())
        await until(lambda: they_wait(stage, 1))
    assert await purging == 0
    await week.bring("a")  # the acknowledgement was lost
    assert await week.seen() == ["a"]
    assert await arrivals(stage) == [("a", "few")]
    week.keeper.tasks[0].due_at = 0.0
    assert await week.purge() == 1


async def test_what_a_queue_brings_again_for_longer_than_a_purge_waits_stays(
    stage: Stage, other: Any
) -> None:
    """T3, R12, R13."""
    week = await Week(stage, "a").began()
    async with other.transaction():
        await week.bring("a", other)
        assert await week.purge() == 0
    assert await week.seen() == ["a"]


async def test_what_has_just_been_purged_is_stored_anew(stage: Stage, other: Any) -> None:
    """T3, R13: it was there as the queue brought it, and gone a moment later; what follows it stays behind."""
    week = await Week(stage, "a").began()
    async with other.transaction():
        await other.execute("DELETE FROM outbox_events")
        bringing = asyncio.create_task(week.bring("ab"))
        await until(lambda: they_wait(stage, 1))
    await bringing
    assert await sources(stage) == {"a": "few", "b": "few"}
    assert await arrivals(stage) == []
    assert await week.seen() == ["a", "b"]


async def test_a_purge_and_a_queue_that_come_from_either_end_lose_nothing(stage: Stage, other: Any) -> None:
    """T3, R13: each waits for what the other has, until the server ends one of the two."""
    week = await Week(stage, "ab").began()
    async with other.transaction():
        await other.execute("SELECT FROM outbox_events ORDER BY position LIMIT 1 FOR UPDATE")
        purging = asyncio.create_task(week.purge())
        await until(lambda: they_wait(stage, 1))
        bringing = asyncio.create_task(week.bring("ba"))
        await until(lambda: they_wait(stage, 2))
    await asyncio.gather(purging, bringing)
    assert await week.seen() == ["b", "a"]


async def test_a_purge_that_gives_way_to_a_queue_looks_at_the_window_again() -> None:
    """R13: which of the two goes on is the server's to say."""

    async def run(*_: Any, **__: Any) -> Any:
        raise asyncpg.DeadlockDetectedError("deadlock detected")

    assert await Purge(run, 7.0).events(0) is None


async def test_an_arrival_has_its_event(stage: Stage) -> None:
    """T3: whoever writes or deletes, and whatever rights they have; no event goes without its arrivals."""
    add = "INSERT INTO outbox_arrivals (position, event_id, event_type, source) VALUES (9, $1, 'bank.noted', 'few')"
    with pytest.raises(asyncpg.ForeignKeyViolationError, match=ARRIVALS_EVENT_KEY):
        await stage.witness.execute(add, UUID(int=9))
    stream = Stream()
    await store(stage, "audit", stream["a"])
    await store(stage, "few", stream["a"])
    with pytest.raises(asyncpg.ForeignKeyViolationError, match=ARRIVALS_EVENT_KEY):
        await stage.witness.execute("DELETE FROM outbox_events")


# --- what does not succeed ---------------------------------------------------------------------------


async def test_what_is_dead_for_one_queues_handler_holds_its_aggregate_there_alone(stage: Stage) -> None:
    """R4, R7: by where it stands for that queue."""
    audit, few = Recorder().fail("a", Reject("no")), Recorder()
    both = of("audit", audit), of("few", few)
    await handle(stage, *both)
    stream = Stream()
    await store(stage, "few", stream["ac"])
    await store(stage, "audit", stream["abc"])
    await handle(stage, *both)
    assert (audit.seen, few.seen) == (["a"], ["a", "c"])
    assert await stage.events() == {"a": "dead", "c": "open", "b": "open"}
    assert await stage.deliveries() == {
        ("a", "audit's"): "dead",
        ("c", "audit's"): "waiting",
        ("b", "audit's"): "waiting",
    }
    await stage.witness.execute("UPDATE outbox_deliveries SET status = 'skipped' WHERE status = 'dead'")
    await handle(stage, *both)
    assert audit.seen == ["a", "b", "c"]
    assert set((await stage.events()).values()) == {"delivered"}
