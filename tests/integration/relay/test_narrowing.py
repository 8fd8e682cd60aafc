"""Narrowing: what the code no longer takes stays due until an operator ends it, and is then due no more (R2, T1)."""

from __future__ import annotations

import pytest

from outbox_kernel.infrastructure.brokers import Publisher, Topology
from outbox_kernel.infrastructure.brokers.memory import MemoryBroker
from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.infrastructure.operations.health_of_work import examine_work
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.operations.subscriptions import StillCarried, retire_pattern
from outbox_kernel.infrastructure.operations.verdicts import Check
from outbox_kernel.infrastructure.relay import OutboxRelay
from tests.domain import Noted, Paid
from tests.posting import TOPOLOGY, told
from tests.relaying import Recorder, Stage, handler

PAID = '{"what": "paid", "amount": 1}'


def publishing(stage: Stage, broker: MemoryBroker, *patterns: str) -> OutboxRelay:
    publisher = Publisher("bank", patterns, exchange="bank")
    topology = Topology((publisher,), TOPOLOGY.queues)
    outlet = broker.outlet(publisher, topology)
    relay = OutboxRelay(
        stage.engine, stage.container, handlers=[], publishers={publisher: outlet}, now=stage.at(0)
    )
    stage.relays.append(relay)
    return relay


async def checks(stage: Stage) -> dict[str, Check]:
    desk = Desk(stage.witness)
    return {each.check: each for each in await examine_work(desk, await overview(desk))}


async def test_what_a_publisher_no_longer_selects_is_published_until_an_operator_ends_it(
    stage: Stage,
) -> None:
    """R2, T1: a relay of older code may be there still."""
    broker, desk = MemoryBroker(), Desk(stage.witness)
    old = publishing(stage, broker, "bank.*")
    await old.run_once()
    narrow = publishing(stage, broker, "bank.paid")
    await narrow.run_once()
    await stage.put("while both live")
    with pytest.raises(StillCarried, match="is carried by a live relay"):
        await retire_pattern(desk, "bank", "bank.*")
    await old.run_until_idle()
    await narrow.run_once()
    await stage.put("before the pattern is ended")
    await narrow.run_once()
    assert told(broker) == ["while both live", "before the pattern is ended"]
    found = (await checks(stage))["patterns"]
    assert (found.state, found.detail) == (
        "warn",
        "bank is due for bank.* as well, which no live relay carries",
    )
    assert str(found.remedy).endswith("`outbox retire bank --pattern 'bank.*'`")

    await retire_pattern(desk, "bank", "bank.*")
    await stage.put("secret")
    await stage.put("paid", event_type="bank.paid", payload=PAID)
    await narrow.run_once()
    await publishing(stage, broker, "bank.paid").run_until_idle()
    assert told(broker) == ["while both live", "before the pattern is ended", "paid"]
    assert set((await stage.events()).values()) == {"delivered"}
    assert "patterns" not in await checks(stage)


async def test_what_waits_for_a_publisher_by_a_pattern_of_older_code_is_not_stranded(stage: Stage) -> None:
    """R2, R9: its broker was away, and it publishes whatever it is due for."""
    broker = MemoryBroker()
    await publishing(stage, broker, "bank.*").run_until_idle()
    await stage.put("a")
    broker.down = "it is down for a while"
    narrow = publishing(stage, broker, "bank.paid")
    await narrow.run_once()
    assert await stage.deliveries() == {("a", "bank"): "waiting"}
    assert (await checks(stage))["abilities"].state == "ok"


async def test_what_a_handler_no_longer_takes_is_named_and_ended_by_its_pattern(stage: Stage) -> None:
    """R2, R9: the handler lives, so that it cannot be retired, and nobody runs it for that type."""
    desk, seen = Desk(stage.witness), Recorder()
    await stage.drain(handler("h", seen, Noted, Paid))
    narrow = stage.relay(handler("h", seen, Noted))
    await stage.put("paid", event_type="bank.paid", payload=PAID)
    await narrow.run_once()
    assert await stage.deliveries() == {("paid", "h"): "waiting"}
    found = (await checks(stage))["abilities"]
    assert (found.state, found.remedy) == (
        "fail",
        "run a relay that carries it, or end that with `outbox retire h --pattern 'bank.paid'`",
    )
    assert (await retire_pattern(desk, "h", "bank.paid")).skipped == 1
    assert (await checks(stage))["abilities"].state == "ok"
    await stage.put("paid more", event_type="bank.paid", payload=PAID.replace("paid", "paid more"))
    await stage.put("noted")
    await narrow.run_once()
    assert seen.seen == ["noted"]
    assert set((await stage.events()).values()) == {"delivered"}
    assert await stage.deliveries() == {("paid", "h"): "skipped"}


async def test_what_came_late_by_a_pattern_that_is_ended_can_be_skipped(stage: Stage) -> None:
    """R9: a relay had it in hand when the pattern was ended."""
    await stage.drain(handler("h", Recorder(), Noted, Paid))
    await stage.put("paid", event_type="bank.paid", payload=PAID)
    await stage.drain(handler("other", Recorder()))
    await stage.witness.execute("UPDATE outbox_subscriptions SET patterns = '{bank.noted}' WHERE name = 'h'")
    await stage.relay(handler("h", Recorder(), Noted)).run_once()
    found = (await checks(stage))["abilities"]
    assert str(found.remedy).endswith("`outbox skip --handler h --type bank.paid --waiting`")


async def test_a_queue_that_a_handler_has_left_is_named_until_it_is_ended(stage: Stage) -> None:
    """R2, T3."""
    desk = Desk(stage.witness)

    def consuming(queue: str) -> OutboxRelay:
        found = handler("h", Recorder(), queue=queue)
        relay = OutboxRelay(stage.engine, stage.container, handlers=[found], queues=[queue], now=stage.at(0))
        stage.relays.append(relay)
        return relay

    await consuming("old").run_until_idle()
    await consuming("new").run_once()
    found = (await checks(stage))["patterns"]
    assert found.detail == "h is due for old/bank.noted as well, which no live relay carries"
    with pytest.raises(StillCarried, match=r"'new/bank\.noted' of 'h' is carried by a live relay"):
        await retire_pattern(desk, "h", "new/bank.noted")
    await retire_pattern(desk, "h", "old/bank.noted")
    assert "patterns" not in await checks(stage)
