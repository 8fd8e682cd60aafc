"""What is wrong with one queue or one message stops no other, is told where people look, and loses nothing (T3, T4)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from aio_pika.exceptions import DeliveryError
from pamqp import encode

from outbox_kernel.infrastructure.brokers import Queue
from outbox_kernel.infrastructure.brokers.port import REASON_HEADER, BrokerRefusal
from outbox_kernel.infrastructure.brokers.rabbitmq import Address, rabbitmq
from outbox_kernel.infrastructure.brokers.rabbitmq.letters import letter_of
from outbox_kernel.infrastructure.brokers.received import Received, read
from outbox_kernel.infrastructure.inbox.consumer import Consumer
from outbox_kernel.infrastructure.operations.desk import Desk
from outbox_kernel.infrastructure.operations.health_of_work import examine_work
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
from outbox_kernel.kernel import RetrySchedule
from tests.integration.relay.rabbitmq.test_consumer import consuming, delivered, lies, stored
from tests.integration.relay.rabbitmq.test_consumer_losses import is_so
from tests.integration.relay.rabbitmq.test_troubles import url_with
from tests.post import Post, body_of, topology
from tests.relaying import Stage
from tests.waiting import until

pytestmark = pytest.mark.brokers

TELLS = "goes to the dead letters"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is tried again at once, and an alarm noticed."""
    monkeypatch.setattr("outbox_kernel.infrastructure.inbox.troubles.EXPONENTIAL", RetrySchedule((0.01,)))
    monkeypatch.setattr("outbox_kernel.infrastructure.brokers.rabbitmq.burying.ALARM_LOOK_SECONDS", 0.05)


@asynccontextmanager
async def consuming_all(post: Post, stage: Stage, *queues: str) -> AsyncIterator[Consumer]:
    """One `outbox consume` of several queues, with no handler."""
    settings = RelaySettings(poll_interval_seconds=60)
    relay = OutboxRelay(stage.engine, stage.container, handlers=[], queues=queues, settings=settings)
    consumer = Consumer(rabbitmq(post.address), post.topology, queues, stage.engine, relay=relay)
    relaying, taking = asyncio.create_task(relay.run()), asyncio.create_task(consumer.run())
    try:
        yield consumer
    finally:
        consumer.stop()
        await taking
        relay.stop()
        await relaying


@asynccontextmanager
async def no_room_for_the_dead(post: Post) -> AsyncIterator[None]:
    """A dead-letter queue that takes no more, and has room again afterwards."""
    control = post.broker.control
    assert control is not None
    full = '{"max-length": 1, "overflow": "reject-publish"}'
    await asyncio.to_thread(control, "set_policy", "full", post.dead, full, "--apply-to", "queues")
    with pytest.raises(DeliveryError):
        while True:
            await post.send(b"", {}, queue=post.dead)
    try:
        yield
    finally:
        await asyncio.to_thread(control, "clear_policy", "full")


@asynccontextmanager
async def alarm(post: Post) -> AsyncIterator[None]:
    """A broker that takes no messages, for want of memory."""
    control = post.broker.control
    assert control is not None
    await asyncio.to_thread(control, "set_vm_memory_high_watermark", "0.0000001")
    try:
        yield
    finally:
        await asyncio.to_thread(control, "set_vm_memory_high_watermark", "0.4")


async def reason(stage: Stage, queue: str) -> str | None:
    """What the database says of a queue."""
    found: str | None = await stage.witness.fetchval(
        "SELECT pauses->$1::text->>'reason' FROM outbox_relays", f"queue {queue}"
    )
    return found


async def told(stage: Stage, queue: str, words: str | None) -> bool:
    found = await reason(stage, queue)
    return found is None if words is None else words in (found or "")


async def kept(post: Post, number: int) -> bool:
    """Whether the broker holds so many messages of the queue, given to us or not."""
    assert post.broker.control is not None
    lines = await asyncio.to_thread(post.broker.control, "list_queues", "name", "messages")
    return f"{post.queue}\t{number}" in lines.splitlines()


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each letter that is written, by why."""
    found: list[str] = []

    def noted(message: Any, queue: str, why: str) -> Any:
        found.append(why)
        return letter_of(message, queue, why)

    monkeypatch.setattr("outbox_kernel.infrastructure.brokers.rabbitmq.burying.letter_of", noted)
    return found


# --- dead letters that cannot be sent ------------------------------------------------------------------


async def test_in_an_alarm_of_the_broker_all_is_stored_and_acknowledged_but_what_is_to_be_buried(
    own_post: Post, stage: Stage, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    """T4: consumers that empty the queues are what ends an alarm."""
    await own_post.declare()
    await own_post.send(b"no json", {}, message_id="bad")
    await own_post.note(*(f"n{number}" for number in range(600)))
    async with AsyncExitStack() as state:
        await state.enter_async_context(alarm(own_post))
        async with consuming(own_post, stage, prefetch=100):
            await until(lambda: stored(stage, 600))
            await until(lambda: told(stage, own_post.queue, "by an alarm of its memory"))
            await until(lambda: kept(own_post, 1))
            assert TELLS not in caplog.text
            await state.aclose()
            await until(lambda: lies(own_post, own_post.dead, 1))
            await until(lambda: told(stage, own_post.queue, None))
            await until(lambda: kept(own_post, 0))
    assert TELLS in caplog.text
    assert [each.message_id for each in await own_post.take(own_post.dead)] == ["bad"]


async def test_told_to_stop_in_an_alarm_it_ends_and_what_is_to_be_buried_comes_again(
    own_post: Post, stage: Stage, quick: None
) -> None:
    """R11, T4."""
    await own_post.declare()
    await own_post.send(b"no json", {}, message_id="bad")
    await own_post.note("after")
    async with alarm(own_post):
        async with consuming(own_post, stage):
            await until(lambda: delivered(stage, "after"))
            await until(lambda: told(stage, own_post.queue, "by an alarm of its memory"))
        await until(lambda: lies(own_post, own_post.queue, 1))


async def test_while_letters_are_refused_a_queue_that_counts_deliveries_keeps_its_message(
    own_post: Post, stage: Stage, quick: None, tries: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """T3: given back and taken again, the broker would drop it, into a dead-letter queue that is full."""
    once: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": 1}
    own_post.topology = topology(Queue(f"{own_post.queue}.once", ("bank.*",), arguments=once))
    await own_post.declare()
    await own_post.send(b"no json", {}, message_id="bad")
    await own_post.note("after")
    async with AsyncExitStack() as state:
        await state.enter_async_context(no_room_for_the_dead(own_post))
        async with consuming(own_post, stage):
            await until(lambda: delivered(stage, "after"))
            await until(lambda: told(stage, own_post.queue, "does not take a dead letter"))
            await until(lambda: is_so(len(tries) > 5))
            assert TELLS not in caplog.text
            await state.aclose()
            await until(lambda: told(stage, own_post.queue, None))
            await until(lambda: kept(own_post, 0))
    assert caplog.text.count("does not take a dead letter") == 1
    letters = {each.message_id: each for each in await own_post.take(own_post.dead)}
    assert "no JSON" in str(letters["bad"].headers[REASON_HEADER])


async def test_no_more_are_kept_to_be_buried_than_memory_has_room_for(
    own_post: Post, stage: Stage, quick: None
) -> None:
    """T3, R12: behind so many that cannot be buried the queue waits at the broker, and goes on when there is room."""
    await own_post.declare()
    for number in range(5):
        await own_post.send(b"no json", {}, message_id=f"bad-{number}")
    await own_post.note("after")
    async with AsyncExitStack() as state:
        await state.enter_async_context(no_room_for_the_dead(own_post))
        async with consuming(own_post, stage, prefetch=4):
            await until(lambda: told(stage, own_post.queue, "does not take a dead letter"))
            await until(lambda: lies(own_post, own_post.queue, 2))
            await state.aclose()
            await until(lambda: delivered(stage, "after"))
            await until(lambda: kept(own_post, 0))
    letters = {each.message_id for each in await own_post.take(own_post.dead)}
    assert letters >= {f"bad-{number}" for number in range(5)}


async def test_whoever_may_not_write_to_the_dead_letters_is_told_the_right_to_grant(
    own_post: Post, stage: Stage, quick: None
) -> None:
    """R14."""
    control = own_post.broker.control
    assert control is not None
    await own_post.declare()
    await own_post.send(b"no json", {}, message_id="bad")
    rights = ("set_permissions", "-p", "/", "eve", ".*", "nothing", ".*")
    for words in (("add_user", "eve", "s3cret"), rights):
        await asyncio.to_thread(control, *words)
    try:
        own_post.address = Address.parse(url_with(own_post.broker, user="eve", password="s3cret"))
        async with consuming(own_post, stage):
            refusal = f"user 'eve' may not write to exchange '{own_post.topology.dead_letter_exchange}'"
            await until(lambda: told(stage, own_post.queue, refusal))
            await asyncio.to_thread(control, *rights[:-2], ".*", ".*")
            await until(lambda: lies(own_post, own_post.dead, 1))
    finally:
        await asyncio.to_thread(control, "delete_user", "eve")


# --- one queue and the others --------------------------------------------------------------------------


async def test_a_queue_that_is_stuck_holds_up_no_other_and_ends_no_connection(
    own_post: Post, stage: Stage, quick: None, tries: list[str]
) -> None:
    """T3, T4."""
    stuck, well = f"{uuid4().hex[:6]}.stuck", f"{uuid4().hex[:6]}.well"
    own_post.topology = topology(Queue(stuck, ("bank.*",)), Queue(well, ("shop.*",)))
    await own_post.declare()
    await own_post.send(b"no json", {}, queue=stuck)
    async with AsyncExitStack() as state:
        await state.enter_async_context(no_room_for_the_dead(own_post))
        async with consuming_all(own_post, stage, stuck, well):
            await until(lambda: told(stage, stuck, "does not take a dead letter"))
            connections = own_post.proxy.accepted
            await own_post.note("a", queue=well)
            await own_post.note("b", queue=stuck)
            await until(lambda: delivered(stage, "a", "b"))
            known = len(tries)
            await until(lambda: is_so(len(tries) > known + 3))
            assert await told(stage, well, None)
            assert own_post.proxy.accepted == connections
            await state.aclose()


async def test_a_queue_that_nobody_has_made_is_waited_for_and_the_others_are_served(
    post: Post, stage: Stage, quick: None
) -> None:
    """T3: as the reference of `outbox consume` says."""
    later = f"{uuid4().hex[:6]}.later"
    await post.declare()
    await post.note("a")
    async with consuming_all(post, stage, post.queue, later) as consumer:
        await until(lambda: told(stage, later, f"there is no queue '{later}'"))
        await until(lambda: delivered(stage, "a"))
        assert not consumer.consuming.is_set()
        async with post.witness.channel() as channel:
            await channel.declare_queue(later, durable=True)
        await asyncio.wait_for(consumer.consuming.wait(), 20)
        await post.note("b", queue=later)
        await until(lambda: delivered(stage, "b"))
        await until(lambda: told(stage, later, None))
        async with post.witness.channel() as channel:
            await channel.queue_delete(later)


async def test_once_the_others_are_emptied_before_it_is_told_that_one_cannot_be(
    post: Post, stage: Stage, quick: None
) -> None:
    """T3: `--once`."""
    await post.declare()
    await post.note(*(f"n{number}" for number in range(300)))
    missing = f"{uuid4().hex[:6]}.missing"
    async with consuming_all(post, stage, missing, post.queue) as consumer:
        with pytest.raises(BrokerRefusal, match=f"there is no queue '{missing}'"):
            await asyncio.wait_for(consumer.emptied(), 20)
        assert await stored(stage, 300)


async def test_once_a_queue_is_not_empty_while_something_is_to_be_buried(
    own_post: Post, stage: Stage, quick: None
) -> None:
    """T3: `--once`."""
    await own_post.declare()
    await own_post.send(b"no json", {}, message_id="bad")
    await own_post.note("after")
    async with AsyncExitStack() as state:
        await state.enter_async_context(no_room_for_the_dead(own_post))
        async with consuming(own_post, stage) as consumer:
            with pytest.raises(BrokerRefusal, match="does not take a dead letter"):
                await asyncio.wait_for(consumer.emptied(), 20)
            await until(lambda: stored(stage, 1))
            await state.aclose()
            await until(lambda: told(stage, own_post.queue, None))
            await asyncio.wait_for(consumer.emptied(), 20)
    assert "bad" in {each.message_id for each in await own_post.take(own_post.dead)}


async def test_what_nobody_thought_of_is_told_with_its_traceback_and_tried_again_ever_more_slowly(
    post: Post, stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R12: that the broker takes us for a consumer is no success, that a message is out of the queue is one."""
    pauses, is_broken = list[int](), [True]

    def reading(*message: Any) -> Received:
        if is_broken:
            raise ZeroDivisionError("nobody thought of this")
        return read(*message)

    async def pause(failures: int, _: asyncio.Event) -> None:
        pauses.append(failures)

    monkeypatch.setattr("outbox_kernel.infrastructure.inbox.acknowledging.read", reading)
    monkeypatch.setattr("outbox_kernel.infrastructure.inbox.consumer.pause", pause)
    await post.declare()
    await post.note("a")
    async with consuming(post, stage) as consumer:
        await until(lambda: is_so(len(pauses) >= 3))
        is_broken.clear()
        await until(lambda: delivered(stage, "a"))
        await until(lambda: is_so(consumer._receivings[0]._failures == 0))  # noqa: SLF001 - nothing else knows
        assert pauses == [*range(1, len(pauses) + 1)]
        known = len(pauses)
        post.proxy.cut()
        await until(lambda: is_so(len(pauses) > known))
        assert pauses[known] == 1
    assert caplog.text.count("ZeroDivisionError: nobody thought of this; the consumer tries again") == 1
    assert "Traceback" in caplog.text


# --- told where people look ----------------------------------------------------------------------------


async def test_what_holds_a_queue_up_is_told_anew_when_it_is_something_else(
    post: Post, stage: Stage, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    """T2, T4, O1: one clear error, in the log, by `status` and by `doctor`."""
    await post.declare()
    async with post.witness.channel() as channel:
        await channel.queue_delete(post.queue)
        await channel.declare_queue(post.queue, durable=True)
    await post.proxy.close()
    async with consuming(post, stage):
        await until(lambda: told(stage, post.queue, "cannot be reached"))
        await post.proxy.open()
        await until(lambda: told(stage, post.queue, "exists with another"))
        desk = Desk(stage.witness, None, "outbox_channel")
        seen = await overview(desk)
        [stuck] = seen.queues
        assert (stuck.queue, stuck.process_id) == (post.queue, os.getpid())
        assert stuck.since < datetime.now(UTC)
        [check] = [each for each in await examine_work(desk, seen) if each.check == "queue"]
        assert (check.state, post.queue in check.detail, stuck.reason in check.detail) == ("warn", True, True)
        async with post.witness.channel() as channel:
            await channel.queue_delete(post.queue)
        await until(lambda: told(stage, post.queue, None))
        assert (await overview(desk)).queues == []
    ours = [each for each in caplog.records if each.name == "outbox.consumer"]
    [error] = [each.getMessage() for each in ours if each.levelno == logging.ERROR]
    assert f"queue '{post.queue}' exists with another" in error


async def test_what_lasts_is_told_now_and_then(
    post: Post, stage: Stage, quick: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """O1: whoever looks at the end of the log finds it."""
    monkeypatch.setattr("outbox_kernel.infrastructure.inbox.troubles.REPEAT_SECONDS", 0.0)
    async with consuming(post, stage, queue="missing"):
        await until(lambda: is_so(caplog.text.count("there is no queue 'missing'") > 1))


# --- what strangers write ------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [300, 480, 3000])
@pytest.mark.parametrize("is_event", [True, False])
async def test_headers_nested_however_deeply_stop_no_queue(
    post: Post, stage: Stage, monkeypatch: pytest.MonkeyPatch, depth: int, *, is_event: bool
) -> None:
    """T3: an event is stored, what is none goes to the dead letters, and the next message comes."""
    await post.declare()
    inner, real = b"V", encode.encode_table_value
    for _ in range(depth):
        inner = b"A" + struct.pack(">I", len(inner)) + inner
    nested: Any = bytearray(b"nested")
    body = json.dumps(body_of("nested", str(uuid4()))).encode() if is_event else b"no json"
    with monkeypatch.context() as patched:
        patched.setattr(encode, "encode_table_value", lambda value: inner if value is nested else real(value))
        await post.send(body, {"deep": nested, "user_id": "ada"}, message_id="m-1")
    await post.note("after")
    async with consuming(post, stage):
        await until(lambda: delivered(stage, "after", *(["nested"] if is_event else [])))
        await until(lambda: lies(post, post.dead, 0 if is_event else 1))
    assert await post.is_empty()
