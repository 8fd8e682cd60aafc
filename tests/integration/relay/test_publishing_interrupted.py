"""Publishing that a stop, a lost lease, an outage or a fault of ours interrupts loses nothing (R2-R4, R7, R11)."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from outbox_kernel.infrastructure.brokers import Message, Outage, Outcome, Refused
from outbox_kernel.infrastructure.brokers.memory import MemoryBroker, MemoryOutlet
from outbox_kernel.infrastructure.cancelling import CancelledByOthers
from outbox_kernel.infrastructure.errors import RunOver
from outbox_kernel.infrastructure.outbox.limits import ERROR_CHARACTERS_MAX
from outbox_kernel.infrastructure.relay import starting
from outbox_kernel.infrastructure.relay.relay import OutboxRelay
from outbox_kernel.kernel import RetrySchedule
from tests.posting import BANK, TOPOLOGY, has_been_given, relay, slow_outlet, told
from tests.relaying import Recorder, Stage, handler
from tests.serving import LONG, all_delivered, at_the_gate, cut, has_seen, serving
from tests.waiting import until

LOSE_THE_LEASE = "UPDATE outbox_relays SET expires_at = clock_timestamp()"


# --- stopping ---------------------------------------------------------------------------------------


async def test_told_to_stop_at_once_it_leaves_what_is_not_confirmed_to_the_next(stage: Stage) -> None:
    """R11: nobody knows whether it arrived, and nobody is charged."""
    broker, wallet = MemoryBroker(), uuid4()
    outlet = slow_outlet(broker)
    await stage.put("a", "b", of=wallet)
    async with serving(relay(stage, outlet, at=None, grace_seconds=0.0)):
        await until(lambda: has_been_given(outlet, 1))
    assert set((await stage.events()).values()) != {"delivered"}
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert told(broker) == ["a", "b"]
    assert await uncharged(stage)


async def test_cancelled_with_all_that_it_is_made_of_it_writes_down_what_has_ended(stage: Stage) -> None:
    """R11: as at the end of a program; its publishers' tasks are among them."""
    h, _, begun, _ = at_the_gate()
    await stage.put("a")
    found = relay(stage, MemoryBroker().outlet(BANK, TOPOLOGY), h, at=None)
    running = asyncio.create_task(found.run())
    await begun.wait()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await running
    assert await stage.witness.fetchval("SELECT count(*) FROM outbox_relays") == 0


async def uncharged(stage: Stage) -> bool:
    rows = await stage.witness.fetch("SELECT attempts, takeovers FROM outbox_deliveries")
    return all(tuple(row) == (0, 0) for row in rows)


async def test_told_to_stop_in_mid_confirm_it_repeats_only_what_was_on_its_way(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4, R11: what was confirmed is not sent again, what had not begun is sent by the next, in order."""
    monkeypatch.setattr(starting, "WINDOW_MESSAGES", 2)
    broker, wallets = MemoryBroker(), [uuid4(), uuid4(), uuid4()]
    outlet = slow_outlet(broker)
    await stage.put("done", of=uuid4())
    outlet.go.set()
    found = relay(stage, outlet, at=None, grace_seconds=0.0, poll_interval_seconds=0.05)
    async with serving(found):
        await until(lambda: has_been_given(outlet, 1))
        await until(all_delivered(stage, 1))
        outlet.go.clear()
        for number, wallet in enumerate(wallets):
            await stage.put(f"{number} a", f"{number} b", of=wallet)
        await until(lambda: has_been_given(outlet, 3))
    assert outlet.sending == 3
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert len(told(broker)) == 7
    for number in range(3):
        assert [each for each in told(broker) if each.startswith(f"{number} ")] == [
            f"{number} a",
            f"{number} b",
        ]
    assert await uncharged(stage)


async def test_told_to_stop_it_gives_back_deliveries_that_have_not_begun(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R11."""
    monkeypatch.setattr(starting, "WINDOW_MESSAGES", 1)
    broker = MemoryBroker()
    broker.full.add("notes")
    for what in ("a", "b", "c"):
        await stage.put(what, of=uuid4())
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    await stage.witness.execute("UPDATE outbox_deliveries SET available_at = clock_timestamp()")
    broker.full.clear()
    outlet = slow_outlet(broker)
    async with serving(relay(stage, outlet, at=None, grace_seconds=0.0)):
        await until(lambda: has_been_given(outlet, 1))
    assert outlet.sending == 1
    assert set((await stage.deliveries()).values()) == {"waiting"}
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert sorted(told(broker)) == ["a", "b", "c"]
    assert (await stage.delivery("a", "bank"))["attempts"] == 1


async def test_told_to_stop_everybody_has_had_each_event_once_in_the_end(stage: Stage) -> None:
    """R11, R4: a broker and a handler that both take their time, within the time of grace."""
    broker, wallet = MemoryBroker(), uuid4()
    outlet = slow_outlet(broker)
    h, go, begun, seen = at_the_gate()
    found = relay(stage, outlet, h, at=None, concurrency=1, grace_seconds=60.0, poll_interval_seconds=0.05)
    async with serving(found):
        await stage.put("first", of=uuid4())
        await begun.wait()
        await stage.put("a", "b", of=wallet)
        await until(lambda: has_been_given(outlet, 2))
        found.stop()
        await until(lambda: begins_nothing_more(found))
        outlet.go.set()
        go.set()
    assert (seen, sorted(told(broker))) == (["first"], ["a", "first"])
    await relay(stage, broker.outlet(BANK, TOPOLOGY), h).run_until_idle()
    assert seen == ["first", "a", "b"]
    assert sorted(told(broker)) == ["a", "b", "first"]
    assert set((await stage.events()).values()) == {"delivered"}


async def begins_nothing_more(relay: OutboxRelay) -> bool:
    shift = relay._shift  # noqa: SLF001 - nobody else can say
    return shift is not None and all(each.workers.is_stopping for each in shift.subscribers.values())


# --- the lease --------------------------------------------------------------------------------------


async def test_a_lease_lost_while_a_message_is_on_its_way_publishes_it_again(stage: Stage) -> None:
    """R3, R4: what was sent under the old lease is of no account, in order all the same."""
    broker, wallet = MemoryBroker(), uuid4()
    outlet = slow_outlet(broker)
    await stage.put("a", "b", of=wallet)
    async with serving(relay(stage, outlet, at=None, poll_interval_seconds=0.05)):
        await until(lambda: has_been_given(outlet, 1))
        await stage.witness.execute(LOSE_THE_LEASE)
        await until(lambda: has_been_given(outlet, 2))
        outlet.go.set()
        await until(all_delivered(stage, 2))
    assert list(dict.fromkeys(told(broker))) == ["a", "b"]


async def test_a_run_that_is_refused_for_its_lease_keeps_the_publishers_order(stage: Stage) -> None:
    """R3, R4: the broker is slow with the first event, and the next is no longer ours by then."""
    broker, wallet = MemoryBroker(), uuid4()
    outlet = slow_outlet(broker)
    may_commit, refused = asyncio.Event(), asyncio.Event()

    async def act(event: Any) -> None:
        try:
            await may_commit.wait()
            await stage.enter(event.what)
        except (RunOver, asyncio.CancelledError):  # the latter if the relay was told of its lease before
            refused.set()
            raise

    await stage.put("a", "b", of=wallet)
    async with serving(relay(stage, outlet, handler("h", act), at=None, lease_seconds=3.0)):
        await until(lambda: has_been_given(outlet, 1))
        await stage.witness.execute(LOSE_THE_LEASE)
        may_commit.set()
        await refused.wait()
        outlet.go.set()
        await until(all_delivered(stage, 2))
    assert await stage.journal() == ["a", "b"]
    assert list(dict.fromkeys(told(broker))) == ["a", "b"]


# --- outages ----------------------------------------------------------------------------------------


async def test_a_broker_that_is_slow_and_then_away_charges_nobody(stage: Stage) -> None:
    """T4, R7: nothing has a row, and all of it is published when the broker is back."""
    broker, own, wallet = MemoryBroker(), Recorder(), uuid4()
    outlet = slow_outlet(broker)
    await stage.put("a", "b", of=wallet)
    await stage.put("c", of=uuid4())
    async with serving(relay(stage, outlet, handler("own", own), at=None, poll_interval_seconds=0.05)):
        await until(lambda: has_been_given(outlet, 1))
        broker.down = "it is down"
        outlet.go.set()
        await until(lambda: says(stage, "it is down"))
        await until(lambda: has_seen(own, {"a", "b", "c"}))
        assert await stage.deliveries() == {}
        broker.down = None
        await until(all_delivered(stage, 3))
    assert [each for each in told(broker) if each != "c"] == ["a", "b"]


async def test_only_the_publisher_whose_broker_is_away_waits(stage: Stage) -> None:
    """R4, R7: an event that one of two could not publish goes to the other in time, and so do those behind it."""
    here, there, wallet = MemoryBroker(), MemoryBroker(down="it is down"), uuid4()
    copy = there.outlet(TOPOLOGY.publishers[1], TOPOLOGY)
    for what in ("a", "b"):
        await stage.put(what, of=wallet)
        await relay(stage, here.outlet(BANK, TOPOLOGY), copy=copy).run_until_idle()
    assert (told(here), told(there, "copies")) == (["a", "b"], [])
    assert await stage.deliveries() == {}
    there.down = None
    await relay(stage, here.outlet(BANK, TOPOLOGY), copy=copy).run_until_idle()
    assert (told(here), told(there, "copies")) == (["a", "b"], ["a", "b"])


class Gated(MemoryOutlet):
    """Looks for its broker when it is let."""

    go: asyncio.Event

    async def prove(self) -> Outage | None:
        await self.go.wait()
        return await super().prove()


async def test_a_pause_says_its_newest_reason_even_if_the_database_was_away_meanwhile(
    stage: Stage,
) -> None:
    """R7, R12: here its connection ends while it waits to write the first one."""
    broker = MemoryBroker(down="it is down")
    outlet = Gated(broker, BANK, TOPOLOGY)
    outlet.go = asyncio.Event()
    found = relay(stage, outlet, at=None)
    async with serving(found):
        await found.subscribed.wait()
        async with stage.engine.connect() as connection:
            await connection.execute(text("SELECT FROM outbox_relays FOR UPDATE"))
            outlet.go.set()
            await until(lambda: is_about_to_tell(stage))
            await cut(stage)
            await connection.invalidate()
        await until(lambda: says(stage, "it is down"))
        broker.down = "it has no room"
        await until(lambda: says(stage, "it has no room"))


async def is_about_to_tell(stage: Stage) -> bool:
    waiting = "wait_event_type = 'Lock' AND query LIKE '%pauses%' AND query NOT LIKE '%pg_stat%'"
    return bool(await stage.witness.fetchval(f"SELECT count(*) FROM pg_stat_activity WHERE {waiting}"))


async def says(stage: Stage, reason: str) -> bool:
    found = await stage.witness.fetchval("SELECT pauses->'bank'->>'reason' FROM outbox_relays")
    return bool(found == reason)


# --- faults of ours ---------------------------------------------------------------------------------


async def test_a_stored_event_that_makes_no_message_is_dead_and_harms_nobody_else(
    stage: Stage,
) -> None:
    """R9: somebody has written into the outbox by hand."""
    broker = MemoryBroker()
    await stage.put("odd", of=uuid4(), payload='["odd"]')
    await stage.put("a", of=uuid4())
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert told(broker) == ["a"]
    [row] = await stage.witness.fetch("SELECT status, attempts, error_message FROM outbox_deliveries")
    assert (row["status"], row["attempts"]) == ("dead", 1)


class Broken(MemoryOutlet):
    """An outlet with a fault, where it publishes one event or where it looks for its broker."""

    faults: frozenset[str]
    looks: int

    async def publish(self, message: Message) -> Outcome:
        if "publish" in self.faults and b'"odd"' in message.body:
            raise RuntimeError("a fault \0 of the client")
        return await super().publish(message)

    async def prove(self) -> Outage | None:
        self.looks += 1
        if "prove" in self.faults:
            raise RuntimeError("a fault \0 of the client")
        return await super().prove()


def broken_outlet(broker: MemoryBroker, *faults: str) -> Broken:
    outlet = Broken(broker, BANK, TOPOLOGY)
    outlet.faults, outlet.looks = frozenset(faults), 0
    return outlet


async def test_a_fault_of_an_outlet_over_one_event_is_that_events_refusal(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """R4, R7: with its traceback in the log; handlers and other events go on."""
    broker, seen = MemoryBroker(), Recorder()
    for what in ("odd", "a"):
        await stage.put(what, of=uuid4())
    outlet = broken_outlet(broker, "publish")
    await relay(stage, outlet, handler("own", seen)).run_until_idle()
    assert (told(broker), sorted(seen.seen)) == (["a"], ["a", "odd"])
    row = await stage.delivery("odd", "bank")
    assert (row["status"], row["attempts"]) == ("waiting", 1)
    error = (await stage.status("odd"))["error_message"]
    assert error.startswith("its outlet failed over it (RuntimeError: a fault \\0 of the client)")
    assert "Traceback" in caplog.text


async def has_looked(outlet: Broken, times: int) -> bool:
    return outlet.looks >= times


async def test_an_outlet_that_cannot_look_for_its_broker_pauses_its_publisher(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R12, T4: in-process handlers never wait for a broker."""
    monkeypatch.setattr("outbox_kernel.infrastructure.relay.outages.EXPONENTIAL", RetrySchedule((0.01,)))
    broker, seen = MemoryBroker(), Recorder()
    outlet = broken_outlet(broker, "prove")
    async with serving(relay(stage, outlet, handler("own", seen), at=None)):
        await stage.put("a")
        await until(lambda: has_seen(seen, {"a"}))
        await until(lambda: says(stage, "its outlet failed (RuntimeError: a fault \\0 of the client)"))
        await until(lambda: has_looked(outlet, 3))
        outlet.faults = frozenset()
        await until(all_delivered(stage, 1))
    assert told(broker) == ["a"]
    assert caplog.text.count("Traceback") == 1


@pytest.mark.parametrize("reason", ["no \0", "no \ud800", "no " * 2_000])
@pytest.mark.parametrize("retries_max", [1, 2], ids=["dead", "waiting"])
async def test_a_refusal_can_be_stored_whatever_its_words_are(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, reason: str, retries_max: int
) -> None:
    """R4, R7: others are marked in the same statement."""
    broker = MemoryBroker()
    monkeypatch.setattr(MemoryBroker, "take", lambda *_: Refused(reason))
    for what in ("a", "b"):
        await stage.put(what, of=uuid4())
    await relay(stage, broker.outlet(BANK, TOPOLOGY), retries_max=retries_max).run_until_idle()
    assert {(await stage.delivery(what, "bank"))["attempts"] for what in ("a", "b")} == {1}
    assert 0 < len((await stage.status("a"))["error_message"]) <= ERROR_CHARACTERS_MAX


@pytest.mark.parametrize("way", ["run", "run_once", "run_until_idle"])
async def test_a_cancellation_that_nobody_asked_for_ends_the_relay_with_a_sentence(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """T4, R12: nobody would look for its broker any more, and it would stand still for ever."""

    async def prove(_: MemoryOutlet) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(MemoryOutlet, "prove", prove)
    found = relay(stage, MemoryBroker().outlet(BANK, TOPOLOGY), at=None)
    with pytest.raises(CancelledByOthers, match="outbox-publisher-bank was cancelled by other code"):
        async with asyncio.timeout(LONG):
            await getattr(found, way)()


@pytest.mark.parametrize("where", ["relay.publishing.refused", "relay.outages.EXPONENTIAL"])
async def test_a_fault_of_ours_ends_the_relay_so_that_another_takes_over(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """R3: it would hold its events for ever."""
    broker = MemoryBroker(down="it is down") if "outages" in where else MemoryBroker()
    broker.full.add("notes")
    await stage.put("a")
    with monkeypatch.context() as patched:
        patched.setattr(f"outbox_kernel.infrastructure.{where}", None)
        with pytest.raises((AttributeError, TypeError), match="NoneType"):
            await relay(stage, broker.outlet(BANK, TOPOLOGY), at=None, grace_seconds=0.0).run()
    broker.down = None
    broker.full.clear()
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert told(broker) == ["a"]
