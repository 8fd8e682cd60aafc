"""What a publisher's outlet promises, whatever broker is behind it (T1, T4, R7)."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import attrs

from outbox_kernel.infrastructure.brokers import PUBLISHED, Message, Outage, Refused
from tests.conformance.publishing.adapters import BYTES_MAX, Stage


def message(routing_key: str = "order.placed", body: bytes = b'{"n": 1}', **headers: str | int) -> Message:
    return Message(str(uuid4()), routing_key, body, {"event_type": routing_key, **headers})


def orders(stage: Stage) -> str:
    return stage.topology.queues[0].name


def narrow(stage: Stage) -> str:
    return stage.topology.queues[1].name


async def test_what_is_published_arrives_whole(stage: Stage) -> None:
    """T1: id, routing key, body and headers."""
    sent = message(body='{"who": "Ada ✓"}'.encode(), event_version=2, traceparent="00-ab-cd-01")
    assert await stage.outlet().publish(sent) == PUBLISHED
    assert await stage.arrived(orders(stage)) == [sent]


async def test_one_after_the_other_arrives_in_order(stage: Stage) -> None:
    """T1: n + 1 is sent after n's confirm."""
    outlet, sent = stage.outlet(), [message(body=str(n).encode()) for n in range(20)]
    for each in sent:
        assert await outlet.publish(each) == PUBLISHED
    assert await stage.arrived(orders(stage)) == sent


async def test_many_at_once_all_arrive(stage: Stage) -> None:
    """T1: confirms are pipelined."""
    outlet, sent = stage.outlet(), [message() for _ in range(200)]
    outcomes = await asyncio.gather(*(outlet.publish(each) for each in sent))
    assert set(outcomes) == {PUBLISHED}
    assert {each.message_id for each in await stage.arrived(orders(stage))} == {
        each.message_id for each in sent
    }


async def test_to_prove_that_it_works_declares_everything_and_sends_nothing(stage: Stage) -> None:
    """T2, R7."""
    outlet = stage.outlet()
    assert await outlet.prove() is None
    assert await stage.arrived(orders(stage)) == await stage.arrived(narrow(stage)) == []


async def test_an_optional_queue_is_declared_when_it_is_asked_for(stage: Stage) -> None:
    """T2."""
    audit = stage.topology.queues[2].name
    await stage.outlet().prove()
    assert not await stage.exists(audit)
    await stage.outlet(stage.topology.with_optional([audit])).prove()
    assert await stage.exists(audit)


async def test_what_no_queue_is_for_is_refused(stage: Stage) -> None:
    """R7: unroutable is the event's, and names its type."""
    outcome = await stage.outlet().publish(message("weather.changed"))
    assert isinstance(outcome, Refused)
    assert "weather.changed" in outcome.reason


async def test_what_no_queue_is_for_is_delivered_where_the_publisher_says_that_this_is_fine(
    stage: Stage,
) -> None:
    """T1: `mandatory=False`; what a queue is bound for arrives all the same."""
    [publisher] = stage.topology.publishers
    lenient = attrs.evolve(stage.topology, publishers=(attrs.evolve(publisher, mandatory=False),))
    outlet, sent = stage.outlet(lenient), message()
    assert await outlet.publish(message("weather.changed")) == PUBLISHED
    assert await outlet.publish(sent) == PUBLISHED
    assert await stage.arrived(orders(stage)) == [sent]


async def test_what_a_full_queue_rejects_is_refused(stage: Stage) -> None:
    """R7: nacked is the event's."""
    outlet, name = stage.outlet(), narrow(stage)
    if (broker := getattr(stage, "broker", None)) is not None:
        assert await outlet.publish(message("stock.moved")) == PUBLISHED
        broker.full.add(name)
    outcomes = [await outlet.publish(message("stock.moved")) for _ in range(4)]
    assert isinstance(outcomes[-1], Refused)
    assert len(await stage.arrived(name)) >= 1


async def test_what_is_too_large_is_refused_and_takes_no_other_along(stage: Stage) -> None:
    """R7: a broker that closes the channel for one message has closed it for all in flight."""
    outlet, others = stage.outlet(), [message() for _ in range(20)]
    sent = [*others[:10], message(body=b"x" * (BYTES_MAX + 1)), *others[10:]]
    outcomes = await asyncio.gather(*(outlet.publish(each) for each in sent))
    assert isinstance(outcomes.pop(10), Refused)
    assert set(outcomes) == {PUBLISHED}
    assert {each.message_id for each in await stage.arrived(orders(stage))} == {
        each.message_id for each in others
    }


async def test_a_broker_that_is_not_there_is_an_outage_until_it_comes_back(stage: Stage) -> None:
    """R7, T4."""
    outlet = stage.outlet()
    await stage.go_down()
    assert isinstance(await outlet.publish(message()), Outage)
    assert isinstance(await outlet.prove(), Outage)
    await stage.come_back()
    assert await outlet.prove() is None
    assert await outlet.publish(message()) == PUBLISHED


async def test_a_broker_that_leaves_takes_nothing_more_until_it_comes_back(stage: Stage) -> None:
    """R7, T4."""
    outlet = stage.outlet()
    assert await outlet.publish(message()) == PUBLISHED
    await stage.go_down()
    assert isinstance(await outlet.publish(message()), Outage)
    await stage.come_back()
    assert await outlet.publish(message()) == PUBLISHED
    assert len(await stage.arrived(orders(stage))) == 2


async def test_no_confirm_in_time_is_an_outage(stage: Stage) -> None:
    """R7: nobody knows whether the broker has it, and nobody is charged."""
    outlet = stage.outlet()
    await outlet.prove()
    stage.fall_silent()
    assert isinstance(await outlet.publish(message()), Outage)


async def test_a_queue_that_was_deleted_is_made_again(stage: Stage) -> None:
    """T2, R7: what came meanwhile is refused, and its next attempt succeeds."""
    outlet = stage.outlet()
    assert await outlet.publish(message()) == PUBLISHED
    await stage.delete(orders(stage))
    assert isinstance(await outlet.publish(message()), Refused)
    assert await outlet.publish(message()) == PUBLISHED


async def test_an_outlet_that_was_closed_opens_again(stage: Stage) -> None:
    """R11: closing loses nothing but the connection."""
    outlet = stage.outlet()
    assert await outlet.publish(message()) == PUBLISHED
    await outlet.close()
    assert await outlet.publish(message()) == PUBLISHED
    await outlet.close()
