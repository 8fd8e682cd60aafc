"""Narrowing: what the code no longer takes stays due until an operator ends it, and is then due no more (R2, T1)."""

from __future__ import annotations

from outbox_kernel.infrastructure.brokers import Publisher, Topology
from outbox_kernel.infrastructure.brokers.memory import MemoryBroker
from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.infrastructure.operations.subscriptions import retire_pattern
from outbox_kernel.infrastructure.relay.relay import OutboxRelay
from tests.domain import Noted, Paid
from tests.posting import TOPOLOGY, told
from tests.relaying import Recorder, Stage, handler

PAID = '{"what": "paid", "amount": 1}'


async def publish(stage: Stage, broker: MemoryBroker, *patterns: str) -> None:
    """What a relay does whose publisher has these."""
    publisher = Publisher("bank", patterns, exchange="bank")
    outlet = broker.outlet(publisher, Topology((publisher,), TOPOLOGY.queues))
    relay = OutboxRelay(
        stage.engine, stage.container, handlers=[], publishers={publisher: outlet}, now=stage.at(0)
    )
    stage.relays.append(relay)
    await relay.run_until_idle()


async def test_what_a_publisher_no_longer_selects_is_published_until_an_operator_ends_it(
    stage: Stage,
) -> None:
    """R2, T1: a relay of older code may be there still."""
    broker = MemoryBroker()
    await publish(stage, broker, "bank.*")
    await stage.put("a")
    await publish(stage, broker, "bank.paid")
    assert told(broker) == ["a"]
    await retire_pattern(Desk(stage.witness), "bank", "bank.*")
    await stage.put("secret")
    await stage.put("paid", event_type="bank.paid", payload=PAID)
    await publish(stage, broker, "bank.paid")
    assert told(broker) == ["a", "paid"]
    assert set((await stage.events()).values()) == {"delivered"}


async def test_what_waits_for_a_publisher_by_a_pattern_of_older_code_is_not_stranded(stage: Stage) -> None:
    """R2, R9: its broker was away, and it publishes whatever it is due for."""
    broker = MemoryBroker()
    await publish(stage, broker, "bank.*")
    await stage.put("a")
    broker.down = "it is down for a while"
    await publish(stage, broker, "bank.paid")
    assert (told(broker), await stage.events()) == ([], {"a": "pending"})
    assert await stage.deliveries() == {}
    broker.down = None
    await publish(stage, broker, "bank.paid")
    assert told(broker) == ["a"]


async def test_what_a_handler_no_longer_takes_waits_until_its_pattern_is_ended(stage: Stage) -> None:
    """R2, R9: the handler lives, so that it cannot be retired, and nobody runs it for that type."""
    seen = Recorder()
    await stage.drain(handler("h", seen, Noted, Paid))
    narrow = handler("h", seen, Noted)
    await stage.put("paid", event_type="bank.paid", payload=PAID)
    await stage.drain(narrow)
    assert await stage.deliveries() == {("paid", "h"): "waiting"}
    assert (await retire_pattern(Desk(stage.witness), "h", "bank.paid")).skipped == 1
    await stage.put("paid more", event_type="bank.paid", payload=PAID.replace("paid", "paid more"))
    await stage.put("noted")
    await stage.drain(narrow)
    assert seen.seen == ["noted"]
    assert set((await stage.events()).values()) == {"delivered"}
    assert await stage.deliveries() == {("paid", "h"): "skipped"}


async def test_what_waits_by_a_pattern_of_older_code_goes_on_with_a_relay_of_that_code(
    stage: Stage,
) -> None:
    """R9: in its aggregate's order, and nothing of it has failed."""
    seen = Recorder()
    await stage.drain(handler("h", seen, Noted, Paid))
    await stage.put("paid", event_type="bank.paid", payload=PAID)
    await stage.drain(handler("h", seen, Noted))
    assert (await stage.delivery("paid", "h"))["attempts"] == 0
    await stage.drain(handler("h", seen, Noted, Paid))
    assert seen.seen == ["paid"]
