"""One database that publishes an event and consumes it: it is done when both are, in order, and sent once (R2, T3)."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox_kernel.infrastructure.brokers.memory import MemoryBroker
from outbox_kernel.infrastructure.brokers.received import Received, read
from outbox_kernel.infrastructure.inbox.storing import Storage
from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.operations.stories import events
from outbox_kernel.infrastructure.outbox.sql.inspection import SUBSCRIPTIONS_OF
from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
from outbox_kernel.infrastructure.relay.retention import Retention
from outbox_kernel.kernel import Reject, current_delivery
from tests.posting import BANK, TOPOLOGY, relay, told
from tests.relaying import Recorder, Stage, handler
from tests.serving import has_seen, serving
from tests.streams import handle, of, store
from tests.waiting import until

QUEUE = "notes"


class Circle:
    """An outbox whose publisher sends to a queue that brings what it sent back."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.broker, self.brought = stage, MemoryBroker(), 0

    async def put(self, *whats: str, **options: Any) -> None:
        """Commit events whose payloads say all that an event's does."""
        await self.stage.put(*whats, **options)
        await self.stage.witness.execute(
            "UPDATE outbox_events SET payload = "
            "payload || jsonb_build_object('event_id', event_id, 'occurred_at', occurred_at)"
        )

    async def publish(self, *handlers: Any) -> None:
        outlet = self.broker.outlet(BANK, TOPOLOGY)
        await relay(self.stage, outlet, *handlers, from_beginning=True).run_until_idle()

    def received(self) -> list[Received]:
        """What has come since this was last asked."""
        messages = self.broker.queues.get(QUEUE, [])[self.brought :]
        self.brought += len(messages)
        return [read(each.message_id, each.headers, each.body) for each in messages]

    async def bring(self) -> None:
        assert await Storage(QUEUE).store(self.stage.line(), self.received()) == {}

    async def consume(self, act: Any, *, at: float = 0) -> None:
        await handle(self.stage, of(QUEUE, act), at=at)


@pytest.fixture
async def circle(stage: Stage) -> Circle:
    """With a handler of the queue that has subscribed."""
    found = Circle(stage)
    await found.consume(Recorder())
    return found


async def test_what_comes_back_is_for_the_queues_handlers_and_is_not_sent_again(circle: Circle) -> None:
    """T3, R4: in the aggregate's order, with its context, in one row."""
    stage, own, seen, wallet = circle.stage, Recorder(), Recorder(), uuid4()
    contexts = []

    async def act(event: Any) -> None:
        await seen(event)
        contexts.append(current_delivery().headers["user_id"])

    await circle.put("a", "b", of=wallet, headers={"user_id": "ada"})
    await circle.publish(handler("own", own))
    await circle.bring()
    await circle.put("c", of=wallet, headers={"user_id": "ada"})
    await circle.publish(handler("own", own))
    await circle.bring()
    await circle.consume(act)
    await circle.publish(handler("own", own))
    assert (own.seen, seen.seen, told(circle.broker)) == (["a", "b", "c"],) * 3
    assert contexts == ["ada"] * 3
    assert await stage.events() == dict.fromkeys("abc", "delivered")
    assert await stage.deliveries() == {}


async def test_what_strangers_send_to_the_queue_keeps_its_place_among_ours(circle: Circle) -> None:
    """R4: the queue's order is that of storing, whoever wrote an event first."""
    stage, seen, wallet = circle.stage, Recorder(), uuid4()
    await circle.put("a", "b", of=wallet)
    await circle.publish()
    first, second = circle.received()
    payload = json.dumps({"what": "between"})
    strange = first._replace(event_id=uuid4(), aggregate_version=None, payload=payload)
    assert await Storage(QUEUE).store(stage.line(), [first, strange, second]) == {}
    await circle.consume(seen)
    assert seen.seen == ["a", "between", "b"]


async def test_an_event_is_pending_until_the_queues_handlers_have_passed_it(circle: Circle) -> None:
    """R2."""
    stage = circle.stage
    await circle.put("a")
    await circle.publish()
    assert await stage.events() == {"a": "delivered"}
    before = (await stage.status("a"))["processed_at"]
    await circle.bring()
    assert await stage.events() == {"a": "pending"}
    await circle.consume(Recorder(), at=60)
    after = await stage.status("a")
    assert after["status"] == "delivered"
    assert after["processed_at"] > before


async def test_what_comes_back_before_its_own_handlers_have_it_waits_for_both(circle: Circle) -> None:
    """R2, T3."""
    stage, own, seen = circle.stage, Recorder(), Recorder()
    await stage.drain(handler("own", own))
    await circle.put("a")
    await circle.publish()
    await circle.bring()
    await circle.consume(seen)
    assert await stage.events() == {"a": "pending"}
    await stage.drain(handler("own", own))
    assert (own.seen, seen.seen) == (["a"], ["a"])
    assert await stage.events() == {"a": "delivered"}


async def test_what_is_refused_in_the_queue_is_a_dead_letter_and_holds_its_aggregate_there(
    circle: Circle,
) -> None:
    """R4, R7."""
    stage, own, seen = circle.stage, Recorder(), Recorder().fail("a", Reject("no"))
    await circle.put("a", "b", of=uuid4())
    await circle.publish(handler("own", own))
    await circle.bring()
    await circle.consume(seen)
    assert (own.seen, seen.seen) == (["a", "b"], ["a"])
    assert await stage.events() == {"a": "dead", "b": "open"}


async def test_what_failed_is_tried_again_and_what_follows_waits(circle: Circle) -> None:
    """R4, R7."""
    stage, seen = circle.stage, Recorder().fail("a")
    await circle.put("a", "b", of=uuid4())
    await circle.publish()
    await circle.bring()
    await circle.consume(seen)
    assert seen.seen == ["a"]
    await circle.consume(seen, at=3600)
    assert seen.seen == ["a", "a", "b"]
    assert await stage.events() == {"a": "delivered", "b": "delivered"}


async def test_what_comes_back_late_is_read_by_who_has_read_further(circle: Circle) -> None:
    """R2b: it took its position before others, and commits after them."""
    stage, seen = circle.stage, Recorder()
    await circle.put("a", "b")
    await circle.publish()
    first, second = circle.received()
    async with stage.engine.connect() as connection:
        slow: Any = (await connection.get_raw_connection()).driver_connection
        await slow.execute("BEGIN")
        await store(stage, QUEUE, [first], slow)
        assert await Storage(QUEUE).store(stage.line(), [second]) == {}
        await circle.consume(seen)
        assert seen.seen == ["b"]
        await slow.execute("COMMIT")
    await circle.consume(seen)
    await circle.consume(seen)
    assert seen.seen == ["b", "a"]
    assert await stage.events() == {"a": "delivered", "b": "delivered"}


async def test_a_handler_that_starts_later_is_not_due_for_what_came_back_before(circle: Circle) -> None:
    """R2: what it is due for commits after its first start."""
    stage, late = circle.stage, Recorder()
    await circle.put("a")
    await circle.publish()
    await circle.bring()
    await handle(stage, handler("late", late, queue=QUEUE))
    await handle(stage, handler("late", late, queue=QUEUE))
    assert late.seen == []


async def test_a_long_way_of_arrivals_is_read_stretch_by_stretch(circle: Circle) -> None:
    """R1, R4: with what is new in between, in order and once."""
    stage, seen, wallet = circle.stage, Recorder(), uuid4()
    whats = [f"n{number}" for number in range(200)]
    await circle.put(*whats, of=wallet)
    await circle.publish()
    found = circle.received()
    for start in range(0, 200, 50):
        assert await Storage(QUEUE).store(stage.line(), found[start : start + 50]) == {}
        await stage.put(*(f"of others {number}" for number in range(start, start + 20)))
        stranger: dict[str, Any] = {
            "event_id": uuid4(),
            "aggregate_version": None,
            "payload": '{"what": "new"}',
        }
        assert await Storage(QUEUE).store(stage.line(), [found[0]._replace(**stranger)]) == {}
    settings = RelaySettings(batch_size_max=3)
    queue_relay = OutboxRelay(
        *(stage.engine, stage.container),
        handlers=[of(QUEUE, seen)],
        queues=[QUEUE],
        settings=settings,
        now=stage.at(0),
    )
    await queue_relay.run_until_idle()
    assert [what for what in seen.seen if what != "new"] == whats
    assert seen.seen[::51] == ["n0", *(f"n{start}" for start in range(50, 200, 50))]


async def test_what_came_back_stays_until_the_queues_handlers_have_it_and_goes_as_a_whole(
    circle: Circle,
) -> None:
    """R13: however long ago its own have passed it."""
    stage = circle.stage
    await circle.put("a")
    await circle.publish()
    await circle.bring()
    assert await purged(stage) == 0
    await circle.consume(Recorder())
    assert await purged(stage) == 1
    assert await stage.witness.fetch("SELECT FROM outbox_arrivals") == []


async def test_what_came_back_shows_as_what_it_is_until_the_queues_handlers_have_it(circle: Circle) -> None:
    """O1, R2: among what is pending, behind the subscription, and in the event's story."""
    stage, desk = circle.stage, Desk(circle.stage.witness, now=circle.stage.at(0))
    await circle.put("a")
    await circle.publish()
    await stage.put("b", source="another queue")
    await circle.publish()
    await circle.consume(Recorder())
    assert await events(desk, status="pending") == []
    [ours] = circle.received()
    for queue in (QUEUE, "a queue of nobody"):
        assert await Storage(queue).store(stage.line(), [ours]) == {}
    [pending] = await events(desk, status="pending")
    assert pending.event_id == (await stage.event("a"))["event_id"]
    assert await behind(desk) == {"bank": 0, "notes's": 1}
    assert (await passed(desk, pending.event_id)) == {"bank": True, "notes's": False}
    await circle.consume(Recorder())
    assert await behind(desk) == {"bank": 0, "notes's": 0}
    assert (await passed(desk, pending.event_id)) == {"bank": True, "notes's": True}


async def behind(desk: Desk) -> dict[str, int]:
    return {each.name: each.lag_events for each in (await overview(desk)).subscriptions}


async def passed(desk: Desk, event_id: UUID) -> dict[str, bool]:
    return {row["name"]: row["is_passed"] for row in await desk.run(SUBSCRIPTIONS_OF, event_id=event_id)}


async def purged(stage: Stage) -> int:
    """How many events a relay purges that begins eight days later."""
    keeper = Retention(await stage.log(at=8 * 86_400.0), 7.0)
    while await keeper.step():
        pass
    return keeper.purged.events


async def test_a_relay_that_serves_hears_of_it_at_once(circle: Circle) -> None:
    """R10, T3: it is woken by whoever stores beside it."""
    stage, seen = circle.stage, Recorder()
    await circle.put("a")
    await circle.publish()
    settings = RelaySettings(poll_interval_seconds=60)
    queue_relay = OutboxRelay(
        stage.engine, stage.container, handlers=[of(QUEUE, seen)], queues=[QUEUE], settings=settings
    )
    async with serving(queue_relay):
        await asyncio.wait_for(queue_relay.subscribed.wait(), 20)
        await circle.bring()
        queue_relay.look()
        await until(lambda: has_seen(seen, {"a"}))
