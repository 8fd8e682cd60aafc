"""What arrives in a queue is stored in our own outbox, acknowledged after that, and handled once (T3, T4)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.brokers.port import REASON_HEADER
from outbox_kernel.infrastructure.brokers.rabbitmq import rabbitmq
from outbox_kernel.infrastructure.inbox.consumer import Consumer
from outbox_kernel.infrastructure.inbox.limits import BATCH_BYTES_MAX, PREFETCH_MESSAGES
from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
from outbox_kernel.kernel import Reject
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.post import MOMENT, Post
from tests.relaying import Recorder, Stage, handler
from tests.serving import has_seen
from tests.waiting import until

pytestmark = pytest.mark.brokers


@asynccontextmanager
async def consuming(
    post: Post, stage: Stage, *handlers: HandlerRegistration, queue: str | None = None, **options: Any
) -> AsyncIterator[Consumer]:
    """What `outbox consume` runs: a consumer and a relay of that queue's handlers."""
    queues = [queue or post.queue]
    relay = OutboxRelay(
        stage.engine,
        stage.container,
        handlers=handlers,
        queues=queues,
        settings=RelaySettings(poll_interval_seconds=60),
    )
    consumer = Consumer(rabbitmq(post.address), post.topology, queues, stage.engine, relay=relay, **options)
    relaying, taking = asyncio.create_task(relay.run()), asyncio.create_task(consumer.run())
    try:
        yield consumer
    finally:
        consumer.stop()
        await taking
        relay.stop()
        await relaying


def noting(post: Post, act: Any, name: str = "notes", queue: str | None = None) -> HandlerRegistration:
    return handler(name, act, queue=queue or post.queue)


async def carried(stage: Stage, *handlers: HandlerRegistration, queues: list[str]) -> None:
    """Let the subscriptions of a queue's handlers be known."""
    relay = OutboxRelay(stage.engine, stage.container, handlers=handlers, queues=queues)
    await relay.run_until_idle()


async def test_a_message_is_stored_handled_and_gone_from_the_queue(post: Post, stage: Stage) -> None:
    """T3."""
    seen = Recorder()
    await post.declare()
    [event_id] = await post.note("hello")
    async with consuming(post, stage, noting(post, seen)):
        await until(lambda: delivered(stage, "hello"))
    assert seen.seen == ["hello"]
    row = await stage.event("hello")
    assert str(row["event_id"]) == event_id
    assert json.loads(row["payload"]) == {"event_id": event_id, "occurred_at": MOMENT, "what": "hello"}
    assert row["occurred_at"].isoformat() == MOMENT
    assert await post.is_empty()


async def delivered(stage: Stage, *whats: str) -> bool:
    events = await stage.events()
    return all(events.get(what) == "delivered" for what in whats)


async def test_an_aggregates_events_are_handled_in_their_order(post: Post, stage: Stage) -> None:
    """R4, T3."""
    seen, wallet, whats = Recorder(), uuid4(), [f"n{number}" for number in range(60)]
    await post.declare()
    await post.note(*whats, of=wallet)
    async with consuming(post, stage, noting(post, seen)):
        await until(lambda: delivered(stage, *whats))
    assert seen.seen == whats


async def test_what_comes_twice_is_stored_and_handled_once(post: Post, stage: Stage) -> None:
    """T3, R6: a message that was not acknowledged comes again."""
    seen = Recorder()
    await post.declare()
    ids = await post.note("a", "b")
    async with consuming(post, stage, noting(post, seen)):
        await until(lambda: delivered(stage, "a", "b"))
        await post.note("a", "b", "c", ids=[*ids, str(uuid4())])
        await until(lambda: delivered(stage, "c"))
    assert seen.seen == ["a", "b", "c"]


async def test_a_consumed_event_is_for_its_queues_handlers_alone(post: Post, stage: Stage) -> None:
    """T3: not for the relay's own, and not to be published again."""
    here, there, own = Recorder(), Recorder(), Recorder()
    other = handler("elsewhere", there, queue="another queue")
    await carried(stage, other, queues=["another queue"])
    await stage.drain(handler("own", own))
    await post.declare()
    await post.note("a")
    async with consuming(post, stage, noting(post, here), handler("own", own)):
        await until(lambda: delivered(stage, "a"))
    await stage.drain(handler("own", own))
    assert (here.seen, there.seen, own.seen) == (["a"], [], [])


async def test_a_handler_with_a_queue_is_not_for_events_of_its_own_database(post: Post, stage: Stage) -> None:
    """T3: `queue=` means that queue only."""
    here, own = Recorder(), Recorder()
    await carried(stage, noting(post, here), queues=[post.queue])
    await stage.put("a")
    await stage.drain(handler("own", own))
    assert (here.seen, own.seen) == ([], ["a"])
    assert await stage.events() == {"a": "delivered"}


async def test_what_another_queue_has_brought_is_for_this_ones_handlers_too(post: Post, stage: Stage) -> None:
    """T3: in one row."""
    first, second = Recorder(), Recorder()
    audit = post.topology.queues[1].name
    post.topology = post.topology.with_optional([audit])
    await post.declare()
    ids = await post.note("a")
    async with consuming(post, stage, noting(post, first)):
        await until(lambda: delivered(stage, "a"))
    await post.note("a", ids=ids, queue=audit)
    async with consuming(post, stage, noting(post, second, "audit", audit), queue=audit):
        await until(lambda: has_seen(second, {"a"}))
        await until(lambda: delivered(stage, "a"))
    assert (first.seen, second.seen) == (["a"], ["a"])
    assert len(await stage.witness.fetch("SELECT FROM outbox_events")) == 1
    assert await post.is_empty()


async def test_an_id_that_comes_again_with_other_content_is_buried_and_told(
    post: Post, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """T3: it would be lost if it were acknowledged."""
    await post.declare()
    ids = await post.note("a")
    await post.note("forged", ids=ids)
    await post.note("b")
    async with consuming(post, stage):
        await until(lambda: lies(post, post.dead, 1))
        await until(lambda: delivered(stage, "a", "b"))
    [letter] = await post.take(post.dead)
    assert json.loads(letter.body)["what"] == "forged"
    assert "another event has its id" in str(letter.headers[REASON_HEADER])
    assert "message goes to the dead letters: another event has its id" in caplog.text
    assert await post.is_empty()
    assert list(await stage.events()) == ["a", "b"]


async def test_what_nobody_handles_is_stored_and_done(post: Post, stage: Stage) -> None:
    """T3, R2: an event for which nothing is due is delivered."""
    await post.declare()
    await post.note("a")
    async with consuming(post, stage):
        await until(lambda: delivered(stage, "a"))
    assert await stage.deliveries() == {}


async def test_a_handler_that_refuses_leaves_a_dead_letter_in_the_outbox(post: Post, stage: Stage) -> None:
    """T3, R7: the broker's dead letters are for what cannot be stored."""
    await post.declare()
    await post.note("poison", "b")
    seen = Recorder().fail("poison", Reject("never"))
    async with consuming(post, stage, noting(post, seen)):
        await until(lambda: delivered(stage, "b"))
        await until(lambda: dead(stage, "poison"))
    assert await post.take(post.dead) == []
    assert await post.is_empty()


async def dead(stage: Stage, what: str) -> bool:
    return (await stage.events()).get(what) == "dead"


async def test_what_cannot_be_stored_goes_to_the_dead_letters_with_its_reason(
    post: Post, stage: Stage
) -> None:
    """T3: and what came before and after it is stored."""
    await post.declare()
    await post.note("before")
    await post.send(b"no json", {"event_type": "bank.noted", "user_id": "ada"}, message_id="m-1")
    await post.note("after")
    async with consuming(post, stage):
        await until(lambda: delivered(stage, "before", "after"))
        await until(lambda: lies(post, post.dead, 1))
    [letter] = await post.take(post.dead)
    assert (letter.body, letter.message_id, letter.headers["user_id"]) == (b"no json", "m-1", "ada")
    assert "no JSON" in str(letter.headers[REASON_HEADER])
    assert letter.headers["x-outbox-queue"] == post.queue
    assert await post.is_empty()


async def lies(post: Post, queue: str, number: int) -> bool:
    return await post.waiting(queue) == number


async def test_a_number_that_another_event_has_goes_to_the_dead_letters(post: Post, stage: Stage) -> None:
    """T3: two services that count one aggregate's events."""
    wallet = uuid4()
    await post.declare()
    await post.note("a", of=wallet)
    await post.note("b", of=wallet)
    async with consuming(post, stage):
        await until(lambda: lies(post, post.dead, 1))
    [letter] = await post.take(post.dead)
    assert "another event has number 1 of bank.wallet" in str(letter.headers[REASON_HEADER])
    assert await stage.events() == {"a": "delivered"}


async def test_a_connection_that_is_cut_is_made_again(post: Post, stage: Stage) -> None:
    """T4."""
    seen = Recorder()
    await post.declare()
    async with consuming(post, stage, noting(post, seen)) as consumer:
        await post.note("a")
        await until(lambda: delivered(stage, "a"))
        post.proxy.cut()
        await until(lambda: told(not consumer.consuming.is_set()))
        await post.note("b")
        await until(lambda: delivered(stage, "b"))
    assert seen.seen == ["a", "b"]


async def told(answer: bool) -> bool:
    return answer


async def test_a_queue_that_is_deleted_is_made_again(post: Post, stage: Stage) -> None:
    """T2, T4."""
    seen = Recorder()
    await post.declare()
    async with consuming(post, stage, noting(post, seen)) as consumer:
        await asyncio.wait_for(consumer.consuming.wait(), 20)
        async with post.witness.channel() as channel:
            await channel.queue_delete(post.queue)
        await until(lambda: told(not consumer.consuming.is_set()))
        await asyncio.wait_for(consumer.consuming.wait(), 20)
        await post.note("a")
        await until(lambda: delivered(stage, "a"))


async def test_a_broker_that_comes_later_is_waited_for(post: Post, stage: Stage) -> None:
    """T4, R14."""
    seen = Recorder()
    await post.declare()
    await post.note("a")
    await post.proxy.close()
    async with consuming(post, stage, noting(post, seen)):
        await post.proxy.open()
        await until(lambda: delivered(stage, "a"))


async def test_of_two_consumers_one_is_active_and_the_other_takes_over(post: Post, stage: Stage) -> None:
    """T3: single active consumer, so that the order of a queue is the order of storing."""
    seen = Recorder()
    await post.declare()
    async with consuming(post, stage, noting(post, seen)) as standing_by:
        await asyncio.wait_for(standing_by.consuming.wait(), 20)
        async with consuming(post, stage, noting(post, seen)) as other:
            await asyncio.wait_for(other.consuming.wait(), 20)
            await post.note("a")
            await until(lambda: delivered(stage, "a"))
        await post.note("b")
        await until(lambda: delivered(stage, "b"))
    assert seen.seen == ["a", "b"]


async def test_told_to_stop_it_stores_what_it_has_taken(post: Post, stage: Stage) -> None:
    """R11: nothing is left to come again."""
    whats = [f"n{number}" for number in range(300)]
    await post.declare()
    await post.note(*whats)
    async with consuming(post, stage) as consumer:
        await until(lambda: told_of(stage))
        consumer.stop()
    assert len(await stage.events()) + await post.waiting() == len(whats)


async def told_of(stage: Stage) -> bool:
    return bool(await stage.events())


async def test_no_more_is_here_at_once_than_memory_has_room_for(post: Post, stage: Stage) -> None:
    """T3, R12: while nothing can be stored, the rest waits at the broker."""
    await post.declare()
    await post.note(*(f"n{number}" for number in range(PREFETCH_MESSAGES + 20)))
    await stage.witness.execute("BEGIN; LOCK TABLE outbox_events IN EXCLUSIVE MODE")
    async with consuming(post, stage):
        await until(lambda: lies(post, post.queue, 20))
        await stage.witness.execute("COMMIT")
        await until(lambda: stored(stage, PREFETCH_MESSAGES + 20))


async def test_large_messages_are_stored_some_at_a_time(post: Post, stage: Stage) -> None:
    """R12: all of them in one statement would be more than a database takes within a call's deadline."""
    size, number = 500_000, 100
    await post.declare()
    await post.note(*(f"{each} {'x' * size}" for each in range(number)))
    await stage.witness.execute("BEGIN; LOCK TABLE outbox_events IN EXCLUSIVE MODE")
    async with consuming(post, stage):
        await until(lambda: lies(post, post.queue, 0))
        await stage.witness.execute("COMMIT")
        await until(lambda: stored(stage, number))
    statements = await stage.witness.fetch(
        "SELECT sum(octet_length(payload::text)) AS bytes FROM outbox_events GROUP BY xmin::text"
    )
    assert max(each["bytes"] for each in statements) < BATCH_BYTES_MAX + 2 * size


async def stored(stage: Stage, number: int) -> bool:
    return bool(await stage.witness.fetchval("SELECT count(*) = $1 FROM outbox_events", number))


async def test_nothing_is_stored_before_it_is_known_who_handles_it(post: Post, stage: Stage) -> None:
    """R2, T3: what is stored is due for those who have subscribed by then."""
    seen = Recorder()
    await post.declare()
    await post.note("a")
    relay = OutboxRelay(stage.engine, stage.container, handlers=[noting(post, seen)], queues=[post.queue])
    consumer = Consumer(rabbitmq(post.address), post.topology, [post.queue], stage.engine, relay=relay)
    taking = asyncio.create_task(consumer.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not consumer.consuming.is_set()
    relaying = asyncio.create_task(relay.run())
    await until(lambda: delivered(stage, "a"))
    consumer.stop()
    relay.stop()
    await asyncio.wait([taking, relaying])
    assert seen.seen == ["a"]
