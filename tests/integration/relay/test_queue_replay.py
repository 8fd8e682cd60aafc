"""The past of a queue's handler: what its queue has brought, in the order of its aggregates (R4, R17, T3)."""

from __future__ import annotations

from tests.relaying import Recorder, Stage, handler
from tests.streams import WALLET, Stream, handle, of, store

REWIND = "UPDATE outbox_cursors SET rewind_to = 0 WHERE subscription = $1"


async def rewind(stage: Stage, name: str) -> None:
    """What `outbox replay` does to the cursors of a subscription."""
    await stage.witness.execute(REWIND, name)


async def test_a_handler_that_begins_at_the_beginning_gets_what_its_queue_has_brought(stage: Stage) -> None:
    """R4, R17: whichever queue was the first to bring it, and nothing of the other's."""
    await handle(stage, of("few", Recorder()))
    stream = Stream()
    await store(stage, "few", stream["ace"])
    await store(stage, "audit", stream["abcd"])
    await handle(stage, of("few", Recorder()))
    audit = Recorder()
    await handle(stage, of("audit", audit, start="beginning"))
    assert audit.seen == ["a", "b", "c", "d"]
    assert set((await stage.events()).values()) == {"delivered"}


async def test_what_both_queues_brought_runs_again_for_each(stage: Stage) -> None:
    """R4, R17: in the order in which it ran before, and for nobody who was not asked."""
    audit, few = Recorder(), Recorder()
    both = of("audit", audit), of("few", few)
    await handle(stage, *both)
    stream = Stream()
    await store(stage, "few", stream["ac"])
    await store(stage, "audit", stream["abc"])
    await handle(stage, *both)
    await rewind(stage, "audit's")
    await handle(stage, *both)
    assert (few.seen, audit.seen) == (["a", "c"], ["a", "b", "c"] * 2)
    await rewind(stage, "few's")
    await handle(stage, *both)
    assert (few.seen, audit.seen) == (["a", "c"] * 2, ["a", "b", "c"] * 2)


async def test_what_this_database_published_and_consumed_is_the_past_of_both(stage: Stage) -> None:
    """R17, T3: its own handlers are not given what only a queue brought."""
    own, audit = Recorder(), Recorder()
    await stage.put("a", of=WALLET, payload='{"what": "a"}')
    await stage.drain(handler("own", own))
    stream = Stream()
    row = await stage.event("a")
    ours = stream["a"][0]._replace(event_id=row["event_id"], payload=row["payload"])
    await store(stage, "audit", [ours, *stream["b"]])
    await handle(stage, of("audit", audit, start="beginning"))
    await stage.rewind()
    await handle(stage, of("audit", audit))
    await stage.drain(handler("own", own))
    assert (own.seen, audit.seen) == (["a", "a"], ["a", "b"] * 2)


async def test_a_replay_from_the_middle_takes_an_arrival_by_where_it_stands_for_its_queue(
    stage: Stage,
) -> None:
    """R17: and not by when it was written."""
    audit = Recorder()
    await handle(stage, of("audit", audit))
    stream = Stream()
    await store(stage, "few", stream["c"])
    await store(stage, "audit", stream["ab"])
    await handle(stage, of("audit", audit))
    await store(stage, "audit", stream["cd"])
    await handle(stage, of("audit", audit))
    last = "(SELECT max(position) FROM outbox_events WHERE payload->>'what' = 'b')"
    await stage.witness.execute(f"UPDATE outbox_cursors SET rewind_to = {last}")
    await handle(stage, of("audit", audit))
    assert audit.seen == ["a", "b", "c", "d", "c", "d"]
