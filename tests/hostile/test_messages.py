"""Whoever may publish to a queue sends what no publisher of ours would: others' messages are handled all the same (T3).

What cannot be stored is buried with a reason, and the rest is stored: nothing is lost, and nothing stops.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import attrs
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox_kernel.infrastructure.brokers import Message
from outbox_kernel.infrastructure.brokers.memory import MemoryBroker
from outbox_kernel.infrastructure.brokers.port import QUEUE_HEADER, REASON_HEADER, Broker
from outbox_kernel.infrastructure.brokers.rabbitmq import rabbitmq
from outbox_kernel.infrastructure.brokers.topology import Topology
from outbox_kernel.infrastructure.inbox.consumer import Consumer
from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
from outbox_kernel.kernel.handlers import HandlerRegistration
from outbox_kernel.kernel.stored import StoredEvent
from tests import brokers
from tests.hostile.conftest import staged
from tests.hostile.messages import EVIL, TAKEN, Odd, body, every
from tests.hostile.onlookers import look
from tests.post import Post, body_of, post_at, topology
from tests.relaying import Recorder, Stage, handler
from tests.waiting import until

HANDLERS = ("noted", "every")


@attrs.define(eq=False)
class Mailbox:
    """A queue of a broker, whichever it is, and what is buried of it."""

    broker: Broker
    topology: Topology
    put: Callable[[Odd], Awaitable[None]]
    buried: Callable[[], Awaitable[list[tuple[bytes, Any]]]]
    is_empty: Callable[[], Awaitable[bool]]
    """Whether nothing is left that was neither stored nor buried."""

    @property
    def queue(self) -> str:
        return self.topology.queues[0].name


def in_memory() -> Mailbox:
    broker, declared = MemoryBroker(), topology()
    broker.declare(declared)

    async def put(message: Odd) -> None:
        sent: Any = Message(message.message_id, "bank.noted", message.body, message.headers)  # type: ignore[arg-type]
        broker.put(declared.queues[0].name, sent)

    async def buried() -> list[tuple[bytes, Any]]:
        return [(each.body, each.headers) for each in broker.queues[declared.dead_letter_queue]]

    async def is_empty() -> bool:
        return not broker.queues[declared.queues[0].name]

    return Mailbox(broker, declared, put, buried, is_empty)


def at_post(post: Post) -> Mailbox:
    found: list[tuple[bytes, Any]] = []

    async def put(message: Odd) -> None:
        await post.send(message.body, message.headers, message_id=message.message_id)

    async def buried() -> list[tuple[bytes, Any]]:
        found.extend((each.body, each.headers) for each in await post.take(post.dead))
        return found

    return Mailbox(rabbitmq(post.address), post.topology, put, buried, post.is_empty)


@pytest_asyncio.fixture
async def post(rabbitmq_broker: brokers.Broker) -> AsyncIterator[Post]:
    async with post_at(rabbitmq_broker) as post:
        await post.declare()
        yield post


@attrs.define(eq=False)
class Seen:
    noted: Recorder = attrs.Factory(Recorder)
    every: list[object] = attrs.Factory(list)

    def handlers(self, queue: str) -> tuple[HandlerRegistration, ...]:
        every = self.every

        class Every:
            async def handle(self, event: StoredEvent) -> None:
                every.append(event.payload.get("what"))

        return (
            handler("noted", self.noted, queue=queue),
            HandlerRegistration("every", Every, (), patterns=("*",), queue=queue),
        )


@asynccontextmanager
async def consuming(mailbox: Mailbox, stage: Stage, seen: Seen) -> AsyncIterator[None]:
    relay = OutboxRelay(
        stage.engine,
        stage.container,
        handlers=seen.handlers(mailbox.queue),
        queues=[mailbox.queue],
        settings=RelaySettings(poll_interval_seconds=60),
    )
    stage.relays.append(relay)
    consumer = Consumer(mailbox.broker, mailbox.topology, [mailbox.queue], stage.engine, relay=relay)
    relaying, taking = asyncio.create_task(relay.run()), asyncio.create_task(consumer.run())
    try:
        yield
        assert not relaying.done()
        assert not taking.done()
    finally:
        consumer.stop()
        await taking
        relay.stop()
        await relaying


async def surrounded(mailbox: Mailbox, stage: Stage, messages: Sequence[Odd]) -> set[int]:
    """Send these between good ones, and see that nobody but they notices; return the numbers of those buried."""
    seen, wallet = Seen(), uuid4()
    goods = [f"good {number}" for number in range(len(messages) + 2)]

    async def put(number: int) -> None:
        stream = {"aggregate_type": "bank.wallet", "aggregate_id": str(wallet)}
        sent = json.dumps(body_of(goods[number], TAKEN if number == 0 else str(uuid4()), **stream))
        await mailbox.put(
            Odd(sent.encode(), {**stream, "event_type": "bank.noted", "aggregate_version": number + 1})
        )

    async def have_come(*wanted: str) -> bool:
        return {*wanted} <= {*seen.noted.seen} and {*wanted} <= {
            each for each in seen.every if isinstance(each, str)
        }

    async with consuming(mailbox, stage, seen):
        await put(0)
        for number, message in enumerate(messages, start=1):
            await mailbox.put(message)
            await put(number)
        await until(lambda: have_come(*goods[:-1]))
        # And it goes on.
        await put(len(goods) - 1)
        await until(lambda: have_come(*goods))
    await until(mailbox.is_empty)
    letters = await mailbox.buried()
    stored = await stage.witness.fetchval(
        "SELECT count(*) FROM outbox_events WHERE source = $1", mailbox.queue
    )
    assert stored + len(letters) == len(goods) + len(messages)
    for had in (seen.noted.seen, seen.every):
        assert [each for each in had if each in goods] == goods
    await look(
        Desk(stage.witness),
        [row[0] for row in await stage.witness.fetch("SELECT event_id FROM outbox_events")],
        HANDLERS,
    )
    assert {headers[QUEUE_HEADER] for _, headers in letters} <= {mailbox.queue}
    assert all(headers[REASON_HEADER] for _, headers in letters)
    bodies = [text for text, _ in letters]
    return {number for number, message in enumerate(messages) if message.body in bodies}


STORED = {
    "UTF-16",
    "a byte order mark",
    "deep in an object",
    "many digits",
    "many keys",
    "another type of field",
    "no field",
    "no id, but the broker's",
    "an id in braces",
    "a nil id",
    "a type that nobody knows",
    "a pattern for a type",
    "a version that nobody knows",
    "the last version",
    "the last number",
    "a number without an aggregate",
    "an odd key",
    "contexts of other types",
    "contexts that are none",
    "large contexts",
    "forged deaths",
}


async def test_odd_messages_stop_no_queue_in_memory(stage: Stage) -> None:
    messages = every()
    buried = await surrounded(in_memory(), stage, [*messages.values()])
    assert {name for number, name in enumerate(messages) if number not in buried} == STORED


@pytest.mark.brokers
async def test_odd_messages_stop_no_queue_of_a_broker(stage: Stage, post: Post) -> None:
    messages = every()
    buried = await surrounded(at_post(post), stage, [*messages.values()])
    stored = {name for number, name in enumerate(messages) if number not in buried}
    # The client that sends them gives an id to what has none.
    assert stored == STORED | {"no id", "an empty id"}


# --- many at once, by chance ---------------------------------------------------------------------------

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=20)
    | st.sampled_from([EVIL, TAKEN, "*"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = (
    *("event_id", "eventId", "event_type", "event_version", "eventVersion", "aggregate_type", "aggregate_id"),
    *(
        "aggregate_version",
        "aggregate_key",
        "timestamp",
        "occurred_at",
        "occurredOn",
        "what",
        "$sealed",
        "user_id",
    ),
    *("correlation_id", "causation_id", "traceparent", "x-death", "x-outbox-queue", "message_id"),
)
CHANGES = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), VALUES | st.floats(), max_size=4)
HEADERS = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), VALUES, max_size=4)
IDS = st.none() | st.text(max_size=10) | st.uuids().map(str) | st.just(TAKEN)


@st.composite
def messages(draw: st.DrawFn) -> Odd:
    changed = body(**{"what": str(uuid4()), **draw(CHANGES)})
    made = Odd(json.dumps(changed).encode(), draw(HEADERS), draw(IDS))
    cut = draw(st.none() | st.integers(0, len(made.body)))
    return (
        made
        if cut is None
        else attrs.evolve(made, body=made.body[:cut] + draw(st.binary(max_size=3)) + made.body[cut:])
    )


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        yield runner


@settings(max_examples=max(2, settings().max_examples // 100))
@given(sent=st.lists(messages(), min_size=10, max_size=40))
def test_whatever_is_sent_stops_no_queue(bank_url: str, runner: asyncio.Runner, sent: list[Odd]) -> None:
    async def history() -> None:
        async with staged(bank_url) as stage:
            await surrounded(in_memory(), stage, sent)

    runner.run(history())
