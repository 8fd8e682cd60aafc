"""How long a dead letter may be on its way: as long as it is large, and an alarm besides (T3, R12)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import attrs
import pytest
from aio_pika import Message
from aio_pika.exceptions import DeliveryError
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from outbox_kernel.infrastructure.brokers import Topology
from outbox_kernel.infrastructure.brokers.port import Incoming
from outbox_kernel.infrastructure.brokers.rabbitmq import Address
from outbox_kernel.infrastructure.brokers.rabbitmq.burying import Burial
from outbox_kernel.infrastructure.brokers.rabbitmq.inlet import RabbitInlet
from outbox_kernel.infrastructure.brokers.rabbitmq.limits import (
    LETTER_BYTES_PER_SECOND_MIN,
    LETTER_CONFIRM_SECONDS_MAX,
)
from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
from outbox_kernel.infrastructure.inbox.burying import Burying
from outbox_kernel.infrastructure.inbox.troubles import Trouble
from outbox_kernel.infrastructure.waiting import Signal

SECONDS = 120
LARGE = b"x" * (SECONDS * LETTER_BYTES_PER_SECOND_MIN)


@attrs.define
class Road:
    """A broker that confirms after so many seconds, of which the first are an alarm; each look takes one."""

    confirms_after: float
    alarm_seconds: float = 0
    now: float = 0
    bodies: list[bytes] = attrs.Factory(list)
    buried: list[Any] = attrs.Factory(list)
    dropped: int = 0
    is_open: bool = True
    is_closed: bool = False
    frame_bytes_max: int = 131_072
    address: Address = attrs.Factory(lambda: Address.parse("amqp://guest@localhost"))
    confirmed: asyncio.Event = attrs.Factory(asyncio.Event)
    refuses: bytes | None = None

    async def channel(self) -> Road:
        self.is_open = True
        return self

    async def get_exchange(self, _: str, *, ensure: bool) -> Road:
        del ensure
        return self

    async def publish(self, letter: Message, _: str) -> None:
        self.bodies.append(letter.body)
        if letter.body == self.refuses:
            raise DeliveryError(None, cast("Any", None))
        await self.confirmed.wait()

    async def blocked(self) -> bool:
        """Pass a second, for it is asked at each look."""
        self.now += 1
        if self.now >= self.confirms_after:
            self.confirmed.set()
        return self.now <= self.alarm_seconds

    def drop(self) -> None:
        self.dropped += 1
        self.is_open = False


class Inlet(RabbitInlet):
    """The way to that broker, which takes note of what it acknowledges."""

    async def acknowledge(self, messages: Sequence[Incoming]) -> None:
        cast("Road", self.link).buried += messages


def arrived(body: bytes) -> Incoming:
    deliver = Basic.Deliver(delivery_tag=1, routing_key="bank.noted")
    header = ContentHeader(properties=Basic.Properties(headers={}))
    return Incoming(None, {}, body, DeliveredMessage(deliver, header, body, cast("Any", None)))


def burying_on(road: Road, trouble: Trouble, on_settled: Callable[[], None]) -> Burying:
    link = cast("Link", road)
    inlet = Inlet("q", Topology(), 1, link, Burial("q", Topology(), link))
    return Burying("q", inlet, trouble, Signal(), on_settled)


async def sent(road: Road, body: bytes, monkeypatch: pytest.MonkeyPatch) -> Trouble:
    """Bury one message, and return what is wrong when it is over or has failed."""
    monkeypatch.setattr(
        "outbox_kernel.infrastructure.brokers.rabbitmq.burying.time.monotonic", lambda: road.now
    )
    monkeypatch.setattr("outbox_kernel.infrastructure.brokers.rabbitmq.burying.ALARM_LOOK_SECONDS", 0)
    over, failed = asyncio.Event(), asyncio.Event()
    trouble = Trouble("q", lambda: None)

    async def pause(_: int, __: Signal) -> None:
        failed.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("outbox_kernel.infrastructure.inbox.burying.pause", pause)
    burying = burying_on(road, trouble, over.set)
    burying.take([(arrived(body), "its body is no JSON")])
    task = asyncio.create_task(burying.serve())
    ends = [asyncio.create_task(each.wait()) for each in (over, failed)]
    await asyncio.wait([task, *ends], return_when=asyncio.FIRST_COMPLETED)
    for each in (task, *ends):
        each.cancel()
    await asyncio.wait([task, *ends])
    return trouble


async def test_a_large_letter_on_a_slow_road_is_buried_and_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    road = Road(confirms_after=SECONDS)
    assert (await sent(road, LARGE, monkeypatch)).error is None
    assert ([len(each) for each in road.bodies], len(road.buried), road.dropped) == ([len(LARGE)], 1, 0)


@pytest.mark.parametrize(
    ("body", "seconds"), [(b"", LETTER_CONFIRM_SECONDS_MAX), (LARGE, LETTER_CONFIRM_SECONDS_MAX + SECONDS)]
)
async def test_a_broker_that_says_nothing_for_longer_is_given_up(
    monkeypatch: pytest.MonkeyPatch, body: bytes, seconds: float
) -> None:
    road = Road(confirms_after=math.inf)
    trouble = await sent(road, body, monkeypatch)
    assert f"did not answer within {seconds:g} s" in str(trouble.error)
    assert (road.now, road.buried, road.dropped) == (seconds + 1, [], 1)


async def test_an_alarm_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """T4: what is on its way arrives when the alarm is over, so it is not sent a second time."""
    road = Road(confirms_after=1_005, alarm_seconds=1_000)
    assert (await sent(road, b"no json", monkeypatch)).error is None
    assert (len(road.bodies), len(road.buried), road.dropped) == (1, 1, 0)


async def test_a_letter_that_is_not_taken_goes_behind_the_others_and_the_way_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T2, T3: somebody may have deleted where it goes."""
    road, declared, failed = Road(confirms_after=0, refuses=b"first"), list[Topology](), asyncio.Event()

    async def declare(_: Link, topology: Topology) -> None:
        declared.append(topology)

    async def pause(failures: int, _: asyncio.Event) -> None:
        assert failures == 1
        if declared:
            failed.set()
            await asyncio.Event().wait()

    monkeypatch.setattr("outbox_kernel.infrastructure.brokers.rabbitmq.burying.declare", declare)
    monkeypatch.setattr("outbox_kernel.infrastructure.inbox.burying.pause", pause)
    monkeypatch.setattr("outbox_kernel.infrastructure.brokers.rabbitmq.burying.ALARM_LOOK_SECONDS", 0)
    trouble = Trouble("q", lambda: None)
    burying = burying_on(road, trouble, lambda: None)
    burying.take([(arrived(body), "no JSON") for body in (b"first", b"second", b"third")])
    task = asyncio.create_task(burying.serve())
    await asyncio.wait_for(failed.wait(), 20)
    task.cancel()
    await asyncio.wait([task])
    assert [each.body for each in road.buried] == [b"second", b"third"]
    assert road.bodies == [b"first", b"second", b"third", b"first"]
    assert declared == [Topology()]
    assert [message.body for message, _ in burying._kept] == [b"first"]  # noqa: SLF001 - nothing else knows
    assert "does not take a dead letter of queue 'q'" in str(trouble.error)
