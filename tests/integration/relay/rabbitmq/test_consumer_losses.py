"""A consumer that loses its queue, its broker or its rights in the middle: nothing is lost, and it is told (T3, T4)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from outbox_kernel.infrastructure.application import Outbox
from outbox_kernel.infrastructure.brokers import Queue
from outbox_kernel.infrastructure.brokers.port import BrokerForbids, BrokerRefusal
from outbox_kernel.infrastructure.brokers.rabbitmq import Address, rabbitmq
from outbox_kernel.infrastructure.brokers.rabbitmq.inlet import RabbitInlet
from outbox_kernel.infrastructure.cli.consume import Consuming
from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import RetrySchedule
from tests.integration.relay.rabbitmq.test_consumer import consuming, delivered, lies
from tests.integration.relay.rabbitmq.test_troubles import url_with
from tests.post import Post, topology
from tests.relaying import Stage
from tests.waiting import until

pytestmark = pytest.mark.brokers

# Not pg_stat_activity, which looks the same throughout a transaction.
BLOCKED = """
SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
WHERE NOT granted AND datname = current_database()
"""


@asynccontextmanager
async def nothing_can_be_stored(stage: Stage) -> AsyncIterator[None]:
    """Hold up whoever writes to the outbox, as a long lock of somebody else does."""
    async with stage.witness.transaction():
        await stage.witness.execute("LOCK TABLE outbox_events IN EXCLUSIVE MODE")
        yield


async def is_held_up(stage: Stage) -> bool:
    return bool(await stage.witness.fetchval(BLOCKED))


async def is_so(answer: bool) -> bool:
    return answer


async def test_what_is_stored_while_its_queue_is_deleted_is_stored_once(post: Post, stage: Stage) -> None:
    """T4: there is nobody left to acknowledge it to."""
    await post.declare()
    async with consuming(post, stage) as consumer:
        await asyncio.wait_for(consumer.consuming.wait(), 20)
        async with nothing_can_be_stored(stage):
            await post.note("a")
            await until(lambda: is_held_up(stage))
            async with post.witness.channel() as channel:
                await channel.queue_delete(post.queue)
        await until(lambda: delivered(stage, "a"))
        await until(lambda: is_so(not consumer.consuming.is_set()))
        await asyncio.wait_for(consumer.consuming.wait(), 20)
        await post.note("b")
        await until(lambda: delivered(stage, "b"))
    assert await stage.events() == {"a": "delivered", "b": "delivered"}


async def test_told_to_stop_without_a_broker_it_stores_what_it_has_and_ends(post: Post, stage: Stage) -> None:
    """R11, T4: what was not acknowledged comes again, to whoever is there by then."""
    await post.declare()
    async with consuming(post, stage) as consumer:
        await asyncio.wait_for(consumer.consuming.wait(), 20)
        async with nothing_can_be_stored(stage):
            await post.note("a")
            await until(lambda: is_held_up(stage))
            await post.proxy.close()
            inlet = cast("RabbitInlet", consumer._receivings[0]._inlet)  # noqa: SLF001 - nothing else knows
            await until(lambda: is_so(not inlet.link.is_open))
            consumer.stop()
    assert await stage.events() == {"a": "delivered"}
    await until(lambda: lies(post, post.queue, 1))


async def test_told_to_stop_by_a_broker_that_says_nothing_it_ends_and_tells(
    post: Post, stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R11, R12."""
    monkeypatch.setattr("outbox_kernel.infrastructure.brokers.rabbitmq.inlet.STEP_SECONDS_MAX", 0.2)
    await post.declare()
    async with consuming(post, stage) as consumer:
        await asyncio.wait_for(consumer.consuming.wait(), 20)
        post.proxy.answers.clear()
        consumer.stop()
    assert "did not answer within 0.2 s" in caplog.text
    assert "what was not acknowledged comes again" in caplog.text


async def test_a_queue_is_not_taken_for_empty_by_a_broker_that_says_nothing(
    post: Post, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T3: `--once` does not end for want of an answer."""
    monkeypatch.setattr("outbox_kernel.infrastructure.brokers.rabbitmq.inlet.STEP_SECONDS_MAX", 0.2)
    await post.declare()
    async with consuming(post, stage) as consumer:
        await asyncio.wait_for(consumer.consuming.wait(), 20)
        post.proxy.answers.clear()
        assert not await consumer._receivings[0].is_empty()  # noqa: SLF001 - `emptied` asks until it is so
        post.proxy.cut()
        post.proxy.answers.set()
        await until(lambda: is_so(not consumer.consuming.is_set()))
        await asyncio.wait_for(consumer.consuming.wait(), 20)
        await asyncio.wait_for(consumer.emptied(), 20)


async def test_one_dead_letter_after_the_other_takes_the_same_way(post: Post, stage: Stage) -> None:
    """T3."""
    await post.declare()
    async with consuming(post, stage):
        for number in (1, 2):
            await post.send(b"no json", {}, message_id=f"m-{number}")
            await until(lambda number=number: lies(post, post.dead, number))  # type: ignore[misc]
    assert [each.message_id for each in await post.take(post.dead)] == ["m-1", "m-2"]


async def test_a_queue_that_we_may_not_read_is_one_sentence_with_the_right_to_grant(
    own_post: Post, stage: Stage
) -> None:
    """R14."""
    control = own_post.broker.control
    assert control is not None
    await own_post.declare()
    for words in (("add_user", "eve", "s3cret"), ("set_permissions", "-p", "/", "eve", ".*", ".*", "")):
        await asyncio.to_thread(control, *words)
    try:
        own_post.address = Address.parse(url_with(own_post.broker, user="eve", password="s3cret"))
        async with consuming(own_post, stage) as consumer:
            with pytest.raises(BrokerForbids) as refusal:
                await asyncio.wait_for(consumer.emptied(), 20)
    finally:
        await asyncio.to_thread(control, "delete_user", "eve")
    assert f"user 'eve' may not read queue '{own_post.queue}'" in str(refusal.value)
    assert "grant it with `rabbitmqctl set_permissions -p / eve '.*' '.*' '.*'`" in str(refusal.value)
    assert "s3cret" not in str(refusal.value)


async def test_a_queue_that_somebody_has_for_himself_is_told_as_the_broker_tells_it(
    post: Post, stage: Stage
) -> None:
    """R14."""
    await post.declare()
    async with post.witness.channel() as channel:
        taken = await channel.declare_queue(exclusive=True)
        async with consuming(post, stage, queue=taken.name) as consumer:
            with pytest.raises(BrokerRefusal, match="RESOURCE_LOCKED"):
                await asyncio.wait_for(consumer.emptied(), 20)


class Away(Line):
    """A database that is away until it is told to be there."""

    tries = 0
    is_away = True

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        if Away.is_away:
            Away.tries += 1
            raise DatabaseUnreachable("the database is away")
        return await super().fetch(statement, *arguments)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> type[Away]:
    monkeypatch.setattr(Away, "tries", 0)
    monkeypatch.setattr(Away, "is_away", True)
    monkeypatch.setattr("outbox_kernel.infrastructure.inbox.consumer.Line", Away)
    monkeypatch.setattr("outbox_kernel.infrastructure.inbox.troubles.EXPONENTIAL", RetrySchedule((0.01,)))
    return Away


async def test_while_the_database_is_away_what_has_arrived_is_kept(
    post: Post, stage: Stage, away: type[Away], caplog: pytest.LogCaptureFixture
) -> None:
    """R12, T4: a queue that counts deliveries would bury all of it, were it given back and taken again."""
    once: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": 1}
    post.topology = topology(Queue(f"{post.queue}.once", ("bank.*",), arguments=once))
    await post.declare()
    await post.note("a", "b")
    async with consuming(post, stage) as consumer:
        await asyncio.wait_for(consumer.consuming.wait(), 20)
        connections = post.proxy.accepted
        await until(lambda: is_so(away.tries > 5))
        away.is_away = False
        await until(lambda: delivered(stage, "a", "b"))
        assert post.proxy.accepted == connections
    assert await post.is_empty()
    assert await post.is_empty(post.dead)
    assert caplog.text.count("the database is away; the consumer tries again") == 1


async def test_told_to_stop_while_the_database_is_away_it_ends(
    post: Post, stage: Stage, away: type[Away]
) -> None:
    """R11: what was taken comes again."""
    await post.declare()
    await post.note("a")
    async with consuming(post, stage):
        await until(lambda: is_so(away.tries > 1))
    await until(lambda: lies(post, post.queue, 1))


async def test_a_connection_that_has_stood_in_peace_is_lost_for_the_first_time(
    post: Post, stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R12: so it is told, even where nothing has arrived since the last time."""
    monkeypatch.setattr("outbox_kernel.infrastructure.inbox.consumer.PEACE_SECONDS", 0.0)
    await post.declare()
    async with consuming(post, stage) as consumer:
        for _ in range(2):
            await asyncio.wait_for(consumer.consuming.wait(), 20)
            post.proxy.cut()
            await until(lambda: is_so(not consumer.consuming.is_set()))
    assert caplog.text.count("the consumer tries again") == 2


class Calling(logging.Handler):
    """Does something at the moment when the log says so."""

    def __init__(self, message: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._message, self._act = message, act

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(self._message):
            self._act()


async def test_cancelled_by_somebody_else_as_well_it_is_cancelled(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    """R11: a signal ends it well; whoever runs it and cancels it is not told that all went well."""
    caplog.set_level(logging.INFO)
    outbox = Outbox(
        "postgresql://nobody@127.0.0.1:1/nothing",
        contexts="contexts.messaging",
        settings=Settings(),
        relay_settings=RelaySettings(),
    )
    queues = ("group_message_processing",)
    task = asyncio.create_task(
        Consuming(outbox, rabbitmq(post.address), queues, wait=True, once=False, prefetch=1).run()
    )
    log, both = logging.getLogger("outbox.start"), Calling("stopping", task.cancel)
    log.addHandler(both)
    try:
        await until(lambda: is_so("waiting for the database" in caplog.text))
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        log.removeHandler(both)
