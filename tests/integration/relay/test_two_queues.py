"""Two queues that bring the same events, each in its own selection: the handlers of each in its order (R4, T3)."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.consumer.storing import Storage
from outbox_kernel.infrastructure.operations.desk import Desk
from outbox_kernel.infrastructure.operations.mending import choose_for_retry, choose_for_skip, retry, skip
from outbox_kernel.infrastructure.operations.selection import Selection
from outbox_kernel.infrastructure.operations.stories import show
from outbox_kernel.kernel import Reject
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.relaying import LEASE_SECONDS, Recorder, Stage, handler
from tests.streams import Stream, handle, of, store
from tests.waiting import until


async def place(stage: Stage, what: str, name: str) -> int:
    return int(
        await stage.witness.fetchval(
            "SELECT delivery.position FROM outbox_deliveries AS delivery JOIN outbox_events USING (event_id) "
            "WHERE payload->>'what' = $1 AND handler = $2",
            *(what, name),
        )
    )


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
async def test_each_queues_handler_goes_by_its_own_queue(stage: Stage, batches: tuple[str, ...]) -> None:
    """R4, T3: whichever queue was the first to bring an event."""
    audit, few = Recorder(), Recorder()
    both = of("audit", audit), of("few", few)
    await handle(stage, *both)
    stream = Stream()
    for batch in batches:
        queue, _, whats = batch.partition(":")
        await store(stage, queue, stream[whats])
    await handle(stage, *both)
    assert audit.seen == sorted(audit.seen)
    assert few.seen == sorted(few.seen)
    assert set((await stage.events()).values()) == {"delivered"}


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


async def test_what_comes_again_keeps_its_turn(stage: Stage) -> None:
    """R4, T3: a message that was not acknowledged, beside one that is new."""
    audit = Recorder()
    await handle(stage, of("audit", audit), of("few", Recorder()))
    stream = Stream()
    await store(stage, "few", stream["ac"])
    await store(stage, "audit", stream["ab"])
    turns = [await place(stage, what, "audit's") for what in "ab"]
    await store(stage, "audit", stream["abc"])
    assert [await place(stage, what, "audit's") for what in "ab"] == turns
    assert await place(stage, "c", "audit's") > max(turns)


async def test_what_is_new_takes_the_events_own_position(stage: Stage) -> None:
    """T3: one queue alone needs no other numbers."""
    await handle(stage, of("audit", Recorder()))
    await store(stage, "audit", Stream()["abc"])
    assert [await place(stage, what, "audit's") for what in "abc"] == [1, 2, 3]


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
        await until(lambda: somebody_waits(stage))
        await other.execute("COMMIT")
        await storing
    await handle(stage, *both)
    assert audit.seen == ["a", "b", "c"]
    assert set((await stage.events()).values()) == {"delivered"}


async def somebody_waits(stage: Stage) -> bool:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return bool(await stage.witness.fetchval(waiting))


async def test_what_cannot_be_stored_keeps_nothing_behind_it(stage: Stage) -> None:
    """T3: the rest of the batch is stored and handled in its order."""
    audit = Recorder()
    await handle(stage, of("audit", audit))
    stream = Stream()
    forged = stream["a"][0]._replace(event_id=uuid4())
    storage = Storage("audit", now=stage.start)
    stored = await storage.store(stage.line(), [*stream["a"], forged, *stream["bc"]])
    assert list(stored.refused) == [forged.event_id]
    await handle(stage, of("audit", audit))
    assert audit.seen == ["a", "b", "c"]


# --- whose number is not the event's own -------------------------------------------------------------


async def shared(stage: Stage, *handlers: HandlerRegistration) -> Stream:
    """Events that `few` had brought before `audit` did."""
    await handle(stage, *handlers, of("few", Recorder()))
    stream = Stream()
    await store(stage, "few", stream["ac"])
    await store(stage, "audit", stream["abc"])
    await handle(stage, of("few", Recorder()))
    return stream


async def test_one_that_kills_the_process_closes_its_own_event(stage: Stage) -> None:
    """R7b: dead by a takeover."""
    audit = of("audit", Recorder(), on_dead="continue")
    await shared(stage, audit)
    await stage.witness.execute(
        "UPDATE outbox_deliveries SET status = 'leased', alone = true, takeovers = 4, lease_relay = $1, "
        "lease_epoch = 1, on_dead = 'continue' WHERE handler = 'audit''s' AND position = $2",
        *(uuid4(), await place(stage, "a", "audit's")),
    )
    assert await stage.take_over(at=LEASE_SECONDS) == (0, 1)
    assert (await stage.events())["a"] == "dead"


async def test_retry_and_skip_tell_its_own_event(stage: Stage) -> None:
    """R4, O1."""
    audit = of("audit", Recorder().fail("a", Reject("no")))
    stream, desk = await shared(stage, audit), Desk(stage.witness, now=stage.at(0))
    await handle(stage, audit)
    assert await stage.events() == {"a": "dead", "c": "open", "b": "open"}
    await retry(desk, await choose_for_retry(desk, Selection(event_id=stream.ids["a"])))
    assert await stage.events() == {"a": "open", "c": "open", "b": "open"}
    [waiting] = (await show(desk, stream.ids["b"]))["deliveries"]
    assert f"event {stream.ids['a']} is waiting" in waiting["waits_for"]
    chosen = await choose_for_skip(desk, Selection(handler="audit's"), all_waiting=True)
    assert [each.event_id for each in chosen] == [stream.ids[what] for what in "abc"]
    await skip(desk, chosen)
    assert await stage.events() == {"a": "delivered", "c": "delivered", "b": "delivered"}


async def test_a_rename_closes_the_event_whose_former_delivery_goes(stage: Stage) -> None:
    """R2: relays of old and of new code have each written theirs."""
    stream = await shared(stage, of("audit", Recorder()))
    ids = list(stream.ids.values())
    await stage.witness.execute(
        "INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status) "
        "SELECT event_id, position, 'new', order_key, 'done' FROM outbox_deliveries "
        "WHERE handler = 'audit''s' AND event_id = ANY ($1)",
        ids,
    )
    renamed = handler("new", Recorder(), queue="audit", renamed_from="audit's")
    await handle(stage, renamed)
    assert set((await stage.events()).values()) == {"delivered"}
