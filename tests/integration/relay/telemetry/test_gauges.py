"""How the outbox stands, in numbers: the same that `status` shows (O1, O4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import uuid4

import asyncpg
import pytest

from outbox_kernel.infrastructure.brokers.memory import MemoryBroker
from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.infrastructure.operations.gauges import Gauges
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.relay.outages import QUEUE, Pause
from outbox_kernel.kernel import Reject
from tests.integration.relay.telemetry.reading import Numbers
from tests.posting import BANK, TOPOLOGY
from tests.posting import relay as publishing
from tests.relaying import Recorder, Stage, handler
from tests.serving import serving
from tests.waiting import until


@pytest.fixture
async def gauges(stage: Stage) -> AsyncIterator[Gauges]:
    found = Gauges(stage.engine)
    yield found
    await found.close()


async def asked(gauges: Gauges) -> Numbers:
    return Numbers(await gauges())


async def test_an_outbox_that_nobody_reads_waits_as_a_whole(stage: Stage, gauges: Gauges) -> None:
    await stage.put("a", "b")
    found = await asked(gauges)
    assert found.all("outbox.backlog") == {("pending",): 2, ("open",): 0, ("dead",): 0}
    assert found.all("outbox.relays") == {("live",): 0, ("gone",): 0}
    assert 0 < found.one("outbox.oldest.age") < 60
    assert found.one("outbox.log.position") == 2
    assert found.all("outbox.subscription.lag") == {}


async def test_an_outbox_with_nothing_in_it_says_so(stage: Stage, gauges: Gauges) -> None:
    found = await asked(gauges)
    assert found.one("outbox.oldest.age") == 0
    assert found.all("outbox.backlog") == {("pending",): 0, ("open",): 0, ("dead",): 0}


async def test_dead_and_parked_deliveries_are_told_apart(stage: Stage, gauges: Gauges) -> None:
    act, wallet = Recorder().fail("a", Reject("never")).fail("x", ValueError("not yet")), uuid4()
    await stage.put("a", "b", "c", of=wallet)
    await stage.put("x")
    await stage.drain(handler("h", act))
    found = await asked(gauges)
    assert found.all("outbox.deliveries") == {
        ("h", "waiting"): 1,
        ("h", "parked"): 2,
        ("h", "leased"): 0,
        ("h", "dead"): 1,
    }
    # Whose deliveries wait is open, or dead; they are passed all the same.
    assert found.all("outbox.backlog") == {("pending",): 0, ("open",): 3, ("dead",): 1}
    assert found.one("outbox.oldest.age") > 0
    assert found.one("outbox.deliveries.stranded", subscription_name="h") == 3


async def test_what_stands_behind_a_subscription_that_nobody_carries(stage: Stage, gauges: Gauges) -> None:
    await stage.drain(handler("h", Recorder()), handler("gone", Recorder()))
    await stage.put("a", "b")
    await stage.witness.execute("UPDATE outbox_events SET created_at = created_at - interval '100 s'")
    await stage.witness.execute(
        "UPDATE outbox_subscriptions SET paused_at = clock_timestamp(), revision = revision + 1 WHERE name = 'gone'"
    )
    relay = stage.relay(handler("h", Recorder()), at=None)
    async with serving(relay):
        found = await asked(gauges)
    assert found.one("outbox.subscription.carriers", subscription_name="h") == 1
    assert found.one("outbox.subscription.carriers", subscription_name="gone") == 0
    assert found.one("outbox.subscription.lag", subscription_name="gone") == 2
    assert 100 <= found.one("outbox.subscription.lag.time", subscription_name="gone") < 160
    assert found.one("outbox.subscription.paused", subscription_name="gone") == 1
    assert found.one("outbox.subscription.paused", subscription_name="h") == 0
    assert found.all("outbox.relays")["live",] == 1


async def test_who_is_retired_is_behind_with_nothing(stage: Stage, gauges: Gauges) -> None:
    await stage.drain(handler("h", Recorder()))
    await stage.put("a")
    await stage.witness.execute("UPDATE outbox_subscriptions SET retired_at = clock_timestamp()")
    found = await asked(gauges)
    assert found.all("outbox.subscription.lag") == {}
    assert found.one("outbox.deliveries", subscription_name="h", status="dead") == 0


async def test_what_stands_still_and_what_is_stuck_is_told_by_the_relays(
    stage: Stage, gauges: Gauges
) -> None:
    broker = MemoryBroker()
    broker.down = "it is away"
    relay = publishing(stage, broker.outlet(BANK, TOPOLOGY), handler("h", Recorder()), at=None)
    relay.note_pause(f"{QUEUE}orders", Pause("it is gone", datetime.now(UTC)))

    async def is_told() -> bool:
        found = await asked(gauges)
        return found.all("outbox.subscription.standing_still") == {
            ("bank", "publisher"): True,
            ("h", "handler"): False,
        } and found.all("outbox.queue.stuck") == {("orders",): 1}

    async with serving(relay):
        await until(is_told)


async def test_what_relays_that_vanished_hold_is_held_by_nobody(stage: Stage, gauges: Gauges) -> None:
    await stage.drain(handler("h", Recorder()))
    await stage.owner_that_vanishes("h", at=-3600)
    found = await asked(gauges)
    assert found.one("outbox.leases.orphaned") == 32
    assert found.all("outbox.relays") == {("live",): 0, ("gone",): 1}


async def test_a_pattern_that_no_relay_of_its_name_carries(stage: Stage, gauges: Gauges) -> None:
    await stage.drain(handler("h", Recorder()))
    async with serving(stage.relay(handler("h", Recorder()), at=None)):
        await stage.witness.execute(
            "UPDATE outbox_subscriptions SET patterns = patterns || 'bank.paid'::text"
        )
        found = await asked(gauges)
    assert found.one("outbox.subscription.uncarried") == 1


async def test_numbers_and_status_say_the_same(stage: Stage, gauges: Gauges, bank_url: str) -> None:
    """O1: of a busy outbox."""
    act = Recorder().fail("a", Reject("never")).fail("x", ValueError("not yet"))
    await stage.put("a", "b", of=uuid4())
    await stage.put("x")
    await stage.drain(handler("h", act), handler("other", Recorder()))
    await stage.put("later")
    connection = await asyncpg.connect(bank_url)
    shown = await overview(Desk(connection))
    found = await asked(gauges)
    await connection.close()
    assert found.all("outbox.backlog") == {
        ("pending",): shown.backlog.pending,
        ("open",): shown.backlog.open,
        ("dead",): shown.backlog.dead,
    }
    for each in shown.subscriptions:
        assert found.one("outbox.subscription.lag", subscription_name=each.name) == each.lag_events
        by_status = found.all("outbox.deliveries", subscription_name=each.name)
        assert by_status[each.name, "dead"] == each.dead
        assert by_status[each.name, "waiting"] + by_status[each.name, "parked"] == each.waiting


async def test_all_of_it_is_one_statement(stage: Stage, gauges: Gauges) -> None:
    """O4: whatever a scrape costs, it is one round trip."""
    said: list[str] = []
    await gauges()
    connection = gauges._line._connection  # noqa: SLF001 - nobody else can say
    assert connection is not None
    with connection.query_logger(lambda record: said.append(record.query)):
        await gauges()
        await asyncio.sleep(0)  # in which they are told of
    assert len(said) == 1
