"""Replay for the handlers of queues: what each queue has brought, in the order of its aggregates (O1, R4, T3)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from outbox_kernel.infrastructure.operations.desk import Desk
from outbox_kernel.infrastructure.operations.replaying import Replayed, replay
from outbox_kernel.kernel import current_delivery
from tests.relaying import Recorder, Stage, handler
from tests.streams import WALLET, Stream, handle, of, store

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
PAST_ALL_DELAYS = 3600.0


async def replayed(stage: Stage, name: str, *, again: bool = False) -> Replayed:
    return await replay(Desk(stage.witness, now=stage.start), name, EPOCH, again=again)


async def test_a_new_handler_gets_what_its_queue_has_brought(stage: Stage) -> None:
    """O1, R4: in the aggregate's order, whichever queue was the first, and nothing of the other's."""
    await handle(stage, of("few", Recorder()))
    stream = Stream()
    await store(stage, "few", stream["ace"])
    await store(stage, "audit", stream["abcd"])
    await handle(stage, of("few", Recorder()))
    audit = Recorder()
    await handle(stage, of("audit", audit))
    assert await replayed(stage, "audit's") == Replayed(matching=4, due=4, in_flight=0)
    await handle(stage, of("audit", audit))
    assert audit.seen == ["a", "b", "c", "d"]
    assert set((await stage.events()).values()) == {"delivered"}


async def test_the_past_comes_before_what_waits(stage: Stage) -> None:
    """R4: for a new handler that is held until its past is there."""
    stream = Stream()
    await store(stage, "few", stream["ac"])
    await store(stage, "audit", stream["ab"])
    audit = Recorder()
    await handle(stage, of("audit", audit))
    await store(stage, "audit", stream["cd"])
    assert (await replayed(stage, "audit's")).due == 2
    await handle(stage, of("audit", audit))
    assert audit.seen == ["a", "b", "c", "d"]


async def test_what_both_queues_brought_runs_again_for_each(stage: Stage) -> None:
    """O1, R4: and in the order in which it ran before."""
    audit, few = Recorder(), Recorder()
    both = of("audit", audit), of("few", few)
    await handle(stage, *both)
    stream = Stream()
    await store(stage, "few", stream["ac"])
    await store(stage, "audit", stream["abc"])
    await handle(stage, *both)
    assert await replayed(stage, "few's", again=True) == Replayed(matching=2, due=2, in_flight=0)
    assert await replayed(stage, "audit's", again=True) == Replayed(matching=3, due=3, in_flight=0)
    await handle(stage, *both)
    assert (few.seen, audit.seen) == (["a", "c"] * 2, ["a", "b", "c"] * 2)


async def test_what_this_database_published_and_consumed_is_the_queues_past(stage: Stage) -> None:
    """O1, T3: and the past of its own handlers still, who are not given what only a queue brought."""
    own = Recorder()
    stream = Stream()
    await stage.put("a", of=WALLET)
    await stage.drain(handler("own", own))
    ours = stream["a"][0]._replace(event_id=(await stage.event("a"))["event_id"])
    await store(stage, "audit", [ours, *stream["b"]])
    audit = Recorder()
    await handle(stage, of("audit", audit))
    assert (await replayed(stage, "audit's")).due == 2
    assert await replayed(stage, "own", again=True) == Replayed(matching=1, due=1, in_flight=0)
    await handle(stage, of("audit", audit))
    await stage.drain(handler("own", own))
    assert (own.seen, audit.seen) == (["a", "a"], ["a", "b"])


async def test_what_was_handled_before_queues_were_noted_is_the_queues_past(stage: Stage) -> None:
    """O1: by the delivery that it has, whatever its headers say."""
    audit = Recorder()
    await handle(stage, of("audit", audit))
    await store(stage, "audit", Stream()["a"])
    await handle(stage, of("audit", audit))
    await stage.witness.execute("UPDATE outbox_events SET headers = '{}'")
    assert (await replayed(stage, "audit's", again=True)).due == 1
    await handle(stage, of("audit", audit))
    assert audit.seen == ["a", "a"]


async def test_every_queue_that_brought_an_event_is_noted_once(stage: Stage) -> None:
    """T3: the first where readers look for it."""
    event = Stream()["a"]
    for queue in ("few", "audit", "few", "third", "audit", "third"):
        await store(stage, queue, event)
    row = await stage.event("a")
    assert json.loads(row["headers"]) == {"consumed_from": "few", "also_consumed_from": ["audit", "third"]}
    assert row["status"] == "delivered"
    assert row["processed_at"] is not None


async def test_what_is_in_its_first_pass_stays_there_when_a_queue_is_noted(stage: Stage) -> None:
    """T3: and says of no deliveries that it has none of."""
    await stage.put("a", of=WALLET)
    ours = Stream()["a"][0]._replace(event_id=(await stage.event("a"))["event_id"])
    await store(stage, "audit", [ours])
    row = await stage.event("a")
    assert (row["status"], row["processed_at"]) == ("pending", None)
    assert json.loads(row["headers"]) == {"also_consumed_from": ["audit"]}


async def test_what_queues_brought_an_event_is_nobodys_context(stage: Stage) -> None:
    """K10, T1: neither its handlers' nor that of who gets it from a broker."""
    told: list[Any] = []

    async def act(_: Any) -> None:
        told.append(current_delivery().headers)

    await stage.put("a", of=WALLET, headers={"user_id": "ada"})
    ours = Stream()["a"][0]._replace(event_id=(await stage.event("a"))["event_id"])
    await store(stage, "audit", [ours])
    await stage.drain(handler("own", act))
    assert told == [{"user_id": "ada"}]


async def test_what_a_handler_is_no_more_for_stays_in_the_past(stage: Stage) -> None:
    """O1, R4: it would stand before all that follows in its aggregate, and nobody could run it."""
    seen: Any = Recorder().fail("a")
    await stage.put("a", of=WALLET)
    await stage.drain(handler("h", seen))
    await stage.drain(handler("h", seen), at=PAST_ALL_DELAYS)
    assert (await stage.delivery("a", "h"))["status"] == "done"
    await stage.witness.execute("UPDATE outbox_subscriptions SET patterns = ARRAY['bank.paid']")
    assert await replayed(stage, "h", again=True) == Replayed(matching=0, due=0, in_flight=0)
