"""What a relay counts of its work, and of itself (O4)."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.brokers.memory import MemoryBroker
from outbox_kernel.infrastructure.telemetry import Metrics
from outbox_kernel.infrastructure.telemetry.metrics import written
from outbox_kernel.kernel import Reject
from tests.domain import Wallet
from tests.integration.relay.telemetry.reading import Numbers
from tests.posting import BANK, TOPOLOGY
from tests.posting import relay as publishing
from tests.relaying import Recorder, Stage, handler
from tests.serving import has_run, serving
from tests.waiting import until

RUNS, WAITS = "messaging.process.duration", "outbox.commit_to_handler.duration"
SENDS, SENT = "messaging.client.operation.duration", "messaging.client.sent.messages"


async def test_runs_are_counted_by_handler_and_by_what_they_came_to(stage: Stage) -> None:
    metrics, wallet = Metrics(), uuid4()
    act = Recorder().fail("b", ValueError("not yet")).fail("c", Reject("never"))
    await stage.put("a", "b")
    await stage.put("c", "d", of=wallet)
    await stage.relay(handler("h", act), handler("other", Recorder()), metrics=metrics).run_until_idle()
    found = await Numbers.of(metrics)
    assert found.count(RUNS, subscription_name="h", outcome="done") == 1
    assert found.count(RUNS, subscription_name="h", outcome="failed", error_type="ValueError") == 1
    assert found.count(RUNS, subscription_name="h", outcome="dead", error_type="Reject") == 1
    assert found.count(RUNS, subscription_name="other") == 4
    assert found.one("messaging.client.consumed.messages", subscription_name="h") == 3
    assert found.count(WAITS, subscription_name="h") == 3
    assert found.one("outbox.events.passed", subscription_name="h") == 4
    assert found.one("outbox.events.left", subscription_name="h") == 3
    assert found.one("outbox.events.left", subscription_name="other") == 0
    await stage.drain(handler("h", act), handler("other", Recorder()), at=5)
    assert (await Numbers.of(metrics)).count(WAITS, subscription_name="h") == 3


async def test_a_relay_that_nobody_asks_counts_nothing(stage: Stage) -> None:
    await stage.put("a")
    relay = stage.relay(handler("h", Recorder()))
    await relay.run_until_idle()
    assert [each.doing.counts for each in await carried(relay)] == [None]


async def carried(relay: Any) -> list[Any]:
    async with relay._shift_begun(takes_all=True) as shift:  # noqa: SLF001 - what nobody else sees
        return [*shift.subscribers.values()]


async def test_a_second_shift_goes_on_counting_where_the_first_was(stage: Stage) -> None:
    metrics = Metrics()
    for what in ("a", "b"):
        await stage.put(what)
        await stage.relay(handler("h", Recorder()), metrics=metrics).run_until_idle()
    found = await Numbers.of(metrics)
    assert found.count(RUNS) == 2
    assert found.one("outbox.events.passed") == 2


async def test_an_events_wait_is_from_its_row_to_its_run(stage: Stage) -> None:
    """O4: by the server's clock."""
    metrics = Metrics()
    await stage.put("a")
    await stage.witness.execute("UPDATE outbox_events SET created_at = created_at - interval '100 s'")
    await stage.relay(handler("h", Recorder()), metrics=metrics).run_until_idle()
    waited = (await Numbers.of(metrics)).one(WAITS).seconds
    assert 100 <= waited < 130


async def test_a_batch_is_one_run_and_each_of_its_events_has_waited(stage: Stage) -> None:
    metrics = Metrics()
    await stage.put("a", "b", "c", "d")
    await stage.relay(
        handler("h", handled_together("c"), batch=4), metrics=metrics, concurrency=1
    ).run_until_idle()
    found = await Numbers.of(metrics)
    # All four, their halves, and the half at fault one by one.
    assert found.count(RUNS, outcome="split") == 2
    assert found.count(RUNS, outcome="done") == 2
    assert found.count(RUNS, outcome="failed") == 1
    assert found.one("messaging.client.consumed.messages") == 10


def handled_together(bad: str) -> Any:
    async def act(events: Any) -> None:
        if bad in [each.what for each in events]:
            raise ValueError(bad)

    return act


async def test_a_run_that_ignores_its_cancellation_is_counted_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("timeouts", "run", "shift"):
        monkeypatch.setattr(f"outbox_kernel.infrastructure.relay.{module}.GRACE_SECONDS", 0.1)
    metrics, leave = Metrics(), asyncio.Event()

    async def deaf(_: Any) -> None:
        while not leave.is_set():
            try:
                await leave.wait()
            except asyncio.CancelledError:
                continue

    await stage.put("a")
    relay = stage.relay(handler("h", deaf, timeout_seconds=0.1), at=None, metrics=metrics)

    async def has_failed() -> bool:
        return bool((await Numbers.of(metrics)).all(RUNS, outcome="failed"))

    async with serving(relay):
        await until(has_failed)
        leave.set()
    found = await Numbers.of(metrics)
    assert found.count(RUNS, error_type="TimeoutError") == 1
    assert found.count(RUNS, outcome="done") == 0


async def test_what_is_sent_is_counted_by_what_the_broker_said(stage: Stage) -> None:
    broker, metrics = MemoryBroker(), Metrics()
    broker.declare(TOPOLOGY)
    await stage.put("a", "b")
    await publishing(stage, broker.outlet(BANK, TOPOLOGY), metrics=metrics).run_until_idle()
    found = await Numbers.of(metrics)
    labels = {"system": "memory", "operation_name": "send", "destination_name": "bank"}
    assert found.one(SENT, outcome="done", **labels) == found.count(SENDS, outcome="done", **labels) == 2
    assert found.count(WAITS, subscription_name="bank") == 2
    broker.full = {"notes"}
    await stage.put("c")
    await publishing(stage, broker.outlet(BANK, TOPOLOGY), metrics=metrics).run_until_idle()
    assert (await Numbers.of(metrics)).one(SENT, outcome="failed", error_type="_OTHER") == 1
    # What a broker that is away would have said nobody knows.
    broker.down = "it is away"
    await stage.put("d")
    await publishing(stage, broker.outlet(BANK, TOPOLOGY), metrics=metrics).run_until_idle()
    assert sum((await Numbers.of(metrics)).all(SENT).values()) == 3


async def test_a_relay_tells_of_its_lease_and_its_ear(stage: Stage) -> None:
    metrics = Metrics()
    relay = stage.relay(handler("h", Recorder()), at=None, metrics=metrics, lease_seconds=0.6)

    async def has_renewed() -> bool:
        found = await Numbers.of(metrics)
        return bool(
            found.one("outbox.lease.renewals") >= 2 and found.all("outbox.relay.hearing") == {(): True}
        )

    async with serving(relay):
        await until(has_renewed)
        assert 0 < (await Numbers.of(metrics)).one("outbox.lease.remaining") <= 0.6
    found = await Numbers.of(metrics)
    assert found.one("outbox.lease.remaining") == 0
    assert found.all("outbox.relay.hearing") == {}
    assert found.one("outbox.lease.losses") == 0


async def test_a_lease_that_is_lost_is_counted(stage: Stage) -> None:
    metrics, seen = Metrics(), Recorder()
    relay = stage.relay(handler("h", seen), at=None, metrics=metrics, poll_interval_seconds=0.05)
    async with serving(relay):
        await stage.witness.execute("DELETE FROM outbox_relays")
        await stage.put("a")
        await until(lambda: has_run(seen, 1))

        async def is_counted() -> bool:
            return bool((await Numbers.of(metrics)).one("outbox.lease.losses") == 1)

        await until(is_counted)


async def test_one_round_counts_a_lost_lease_too(stage: Stage) -> None:
    metrics = Metrics()

    async def lose(_: Any) -> None:
        await stage.witness.execute("DELETE FROM outbox_relays")

    await stage.put("a")
    await stage.relay(handler("h", lose), metrics=metrics).run_once()
    assert (await Numbers.of(metrics)).one("outbox.lease.losses") == 1


async def test_what_an_atomic_run_records_counts_once_all_of_it_is_committed(stage: Stage) -> None:
    seen: list[int] = []
    failing = [True]

    async def act(_event: Any) -> None:
        for owner in ("eve", "dan"):
            async with stage.uow() as uow:
                uow.repository(Wallet).add(Wallet.open(owner))
                await uow.commit()
        seen.append(written.events - before)
        if failing:
            raise ValueError(failing.pop())

    before = written.events
    await stage.put("a")
    await stage.drain(handler("h", act, atomic=True))
    assert written.events == before
    await stage.drain(handler("h", act, atomic=True), at=10)
    assert seen[:2] == [0, 0]
    assert written.events - before == 2
