"""What a queue's inlet promises, whatever broker is behind it (T0, T3, T4)."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from outbox_kernel.infrastructure.brokers import PUBLISHED, Message
from outbox_kernel.infrastructure.brokers.port import (
    MOMENT_HEADER,
    QUEUE_HEADER,
    REASON_HEADER,
    BrokerRefusal,
    BrokerUnreachable,
    Incoming,
    Inlet,
    QueueMissing,
)
from outbox_kernel.infrastructure.errors import TopologyInvalid
from tests.conformance.publishing.adapters import Stage
from tests.conformance.publishing.test_publishing import message, orders

WHY = "its body is no JSON"
SECONDS_MAX = 20


async def sent(stage: Stage, count: int) -> list[Message]:
    """Publish so many to the queue of orders."""
    outlet, messages = stage.outlet(), [message(body=str(n).encode(), user_id="ada") for n in range(count)]
    for each in messages:
        assert await outlet.publish(each) == PUBLISHED
    await outlet.close()
    return messages


async def opened(stage: Stage, queue: str | None = None, *, prefetch: int = 100) -> Inlet:
    inlet = stage.inlet(queue or orders(stage), prefetch=prefetch)
    await inlet.open()
    return inlet


async def received(inlet: Inlet, count: int) -> list[Incoming]:
    """Receive until there are so many."""
    found: list[Incoming] = []
    async with asyncio.timeout(SECONDS_MAX):
        while len(found) < count:
            found += await inlet.receive(count - len(found))
    return found


async def bury(inlet: Inlet, *messages: Incoming) -> None:
    for each in messages:
        await inlet.bury(each, WHY, lambda _: None)


def bodies(messages: list[Incoming]) -> list[int]:
    return [int(each.body) for each in messages]


# --- what is received -----------------------------------------------------------------------------------


async def test_what_was_published_is_received_whole_and_in_order(stage: Stage) -> None:
    """T1, T3."""
    messages = await sent(stage, 20)
    found = await received(await opened(stage), 20)
    assert [(each.message_id, each.headers, each.body) for each in found] == [
        (each.message_id, each.headers, each.body) for each in messages
    ]


async def test_who_waits_is_given_what_comes(stage: Stage) -> None:
    """T3."""
    receiving = asyncio.create_task(received(await opened(stage), 1))
    await sent(stage, 1)
    assert bodies(await receiving) == [0]


async def test_no_more_is_received_at_once_than_was_asked_for(stage: Stage) -> None:
    """R12: the rest comes with the next call."""
    await sent(stage, 5)
    inlet, found = await opened(stage), list[Incoming]()
    while len(found) < 5:
        some = await inlet.receive(2)
        assert 1 <= len(some) <= 2
        found += some
    assert bodies(found) == [0, 1, 2, 3, 4]


async def test_no_more_is_held_than_memory_has_room_for(stage: Stage) -> None:
    """R12: the queue goes on when one is settled, in either way."""
    await sent(stage, 5)
    inlet = await opened(stage, prefetch=2)
    first, second = await received(inlet, 2)
    await inlet.acknowledge([first])
    [third] = await inlet.receive(10)
    await bury(inlet, second)
    [fourth] = await inlet.receive(10)
    assert bodies([third, fourth]) == [2, 3]


# --- what becomes of it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("settled", [(0, 1, 2), (1, 3), (4,), (0, 2, 4), ()])
@pytest.mark.parametrize("buried", [False, True])
async def test_what_is_put_back_comes_again_in_its_order_without_what_is_settled(
    stage: Stage, settled: tuple[int, ...], *, buried: bool
) -> None:
    """T3: an aggregate's event does not come behind the next one."""
    await sent(stage, 6)
    inlet = await opened(stage)
    found = await received(inlet, 5)
    mine = [found[n] for n in settled]
    await (bury(inlet, *mine) if buried else inlet.acknowledge(mine))
    await inlet.put_back()
    await inlet.open()
    left = [n for n in range(6) if n not in settled]
    again = await received(inlet, len(left))
    assert bodies(again) == left
    await inlet.acknowledge(again)
    assert await inlet.is_empty()


async def test_a_queue_is_empty_once_nothing_is_ready_or_held(stage: Stage) -> None:
    """T3: `outbox consume --once` ends by it."""
    await sent(stage, 2)
    inlet = await opened(stage)
    acknowledged, buried = await received(inlet, 2)
    assert not await inlet.is_empty()
    await inlet.acknowledge([acknowledged])
    assert not await inlet.is_empty()
    await bury(inlet, buried)
    assert await inlet.is_empty()


async def test_what_is_buried_lies_among_the_dead_letters_with_its_reason(stage: Stage) -> None:
    """T3: as it was, with why, from where and when."""
    [message] = await sent(stage, 1)
    inlet = await opened(stage)
    await bury(inlet, *await received(inlet, 1))
    [letter] = await stage.arrived(stage.topology.dead_letter_queue)
    headers = dict(letter.headers)
    assert (headers.pop(REASON_HEADER), headers.pop(QUEUE_HEADER)) == (WHY, orders(stage))
    assert datetime.fromisoformat(str(headers.pop(MOMENT_HEADER))).tzinfo is not None
    assert (letter.message_id, letter.routing_key, letter.body, headers) == (
        message.message_id,
        message.routing_key,
        message.body,
        message.headers,
    )


async def test_what_cannot_be_buried_is_kept_and_the_next_try_makes_the_way_again(stage: Stage) -> None:
    """T2, T3: somebody has deleted the dead letters' queue."""
    await sent(stage, 2)
    inlet = await opened(stage)
    first, second = await received(inlet, 2)
    await stage.delete(stage.topology.dead_letter_queue)
    with pytest.raises(BrokerRefusal):
        await bury(inlet, first)
    await inlet.acknowledge([second])
    assert not await inlet.is_empty()
    await bury(inlet, first)
    assert await inlet.is_empty()
    assert [each.body for each in await stage.arrived(stage.topology.dead_letter_queue)] == [b"0"]


# --- one after the other --------------------------------------------------------------------------------


async def test_of_two_inlets_one_is_given_messages_and_the_other_takes_over(stage: Stage) -> None:
    """T3: so that the order of a queue is the order of storing."""
    first, second = await opened(stage), await opened(stage)
    waiting = asyncio.create_task(received(second, 2))
    await sent(stage, 3)
    found = await received(first, 3)
    await asyncio.sleep(0)
    assert not waiting.done()
    await first.acknowledge(found[:1])
    await first.close()
    assert bodies(await waiting) == [1, 2]


async def test_finished_it_gives_what_is_on_its_way_and_then_nothing(stage: Stage) -> None:
    """R11: what was received can be settled, the rest is for who comes next."""
    await sent(stage, 4)
    inlet, next_one = await opened(stage), await opened(stage)
    found = await received(inlet, 2)
    await inlet.finish()
    while more := await inlet.receive(10):
        found += more
    assert bodies(found) == [*range(len(found))]
    await inlet.acknowledge(found[:1])
    await bury(inlet, found[1])
    await inlet.close()
    assert bodies(await received(next_one, 2)) == [2, 3]


async def test_who_waits_is_told_when_it_is_finished_and_may_begin_again(stage: Stage) -> None:
    """R11."""
    inlet = await opened(stage)
    waiting = asyncio.create_task(inlet.receive(10))
    await asyncio.sleep(0)
    await inlet.finish()
    assert not await waiting
    await inlet.put_back()
    await inlet.open()
    await sent(stage, 1)
    assert bodies(await received(inlet, 1)) == [0]


async def test_an_inlet_that_was_closed_opens_again(stage: Stage) -> None:
    """R11: closing loses nothing but the connection."""
    await sent(stage, 2)
    inlet = await opened(stage)
    await received(inlet, 2)
    await inlet.close()
    await inlet.open()
    assert bodies(await received(inlet, 2)) == [0, 1]


# --- what may be wrong ----------------------------------------------------------------------------------


async def test_an_optional_queue_is_made_when_it_is_consumed(stage: Stage) -> None:
    """T2."""
    audit = stage.topology.queues[2].name
    assert not await stage.exists(audit)
    await opened(stage, audit)
    assert await stage.exists(audit)


async def test_a_queue_that_nobody_declares_is_told_by_its_name(stage: Stage) -> None:
    """R14."""
    with pytest.raises(QueueMissing, match="there is no queue 'missing'"):
        await opened(stage, "missing")


async def test_the_dead_letters_are_not_consumed(stage: Stage) -> None:
    """T3: nobody could store them."""
    with pytest.raises(TopologyInvalid, match="holds the dead letters"):
        stage.inlet(stage.topology.dead_letter_queue, prefetch=1)


async def test_a_broker_that_is_not_there_is_told_until_it_comes_back(stage: Stage) -> None:
    """T4."""
    await sent(stage, 1)
    inlet = stage.inlet(orders(stage), prefetch=1)
    await stage.go_down()
    with pytest.raises(BrokerUnreachable):
        await inlet.open()
    await stage.come_back()
    await inlet.open()
    assert bodies(await received(inlet, 1)) == [0]


async def test_what_is_held_when_the_broker_leaves_comes_again(stage: Stage) -> None:
    """T4: who waits is told; to acknowledge what is lost is no error, for it is known by its id."""
    await sent(stage, 3)
    inlet = await opened(stage)
    held = await received(inlet, 3)
    waiting = asyncio.create_task(inlet.receive(10))
    await stage.go_down()
    with pytest.raises(BrokerRefusal):
        await waiting
    await inlet.acknowledge(held)
    with pytest.raises(BrokerRefusal):
        await inlet.is_empty()
    await inlet.put_back()
    await stage.come_back()
    await inlet.open()
    assert bodies(await received(inlet, 3)) == [0, 1, 2]


async def test_a_queue_that_is_deleted_is_told_and_made_again(stage: Stage) -> None:
    """T2, T4."""
    inlet = await opened(stage)
    waiting = asyncio.create_task(inlet.receive(10))
    await stage.delete(orders(stage))
    with pytest.raises(BrokerRefusal, match="gives no more"):
        await waiting
    await inlet.put_back()
    await inlet.open()
    await sent(stage, 1)
    assert bodies(await received(inlet, 1)) == [0]
