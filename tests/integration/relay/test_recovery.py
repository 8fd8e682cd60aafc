"""A database that is gone, cuts or does not answer, and a lost lease: nothing is stuck, nothing hot (R3, R12)."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.outbox.receipts import current_run
from outbox_kernel.infrastructure.postgres import connections
from outbox_kernel.infrastructure.relay import line as line_module
from outbox_kernel.infrastructure.relay import serving as serving_module
from outbox_kernel.infrastructure.relay.in_hand import InHand
from outbox_kernel.infrastructure.relay.line import Line
from outbox_kernel.infrastructure.relay.store import Store
from outbox_kernel.kernel import RetrySchedule
from tests.domain import Announced
from tests.relaying import Recorder, Stage, handler
from tests.serving import (
    LONG,
    STEP,
    all_delivered,
    at_the_gate,
    claim_waits,
    cut,
    has_begun,
    has_events,
    has_heard_of_the_cut,
    has_looked_everywhere,
    has_run_again,
    has_seen,
    serving,
    waits_for_its_suspect,
)
from tests.waiting import until


async def test_it_recovers_when_every_connection_of_it_is_cut(stage: Stage) -> None:
    """R12: with work in hand."""
    seen, wallet = Recorder(), uuid4()
    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=0.05)):
        for n in range(4):
            await stage.put(f"e{n}", of=wallet)
            if n % 2:
                await cut(stage)
            await until(all_delivered(stage, n + 1))
    assert list(dict.fromkeys(seen.seen)) == [f"e{n}" for n in range(4)]
    assert await stage.witness.fetchval("SELECT sum(retry_count) FROM outbox_events") == 0


async def test_a_mark_that_met_a_cut_connection_is_written_again(stage: Stage) -> None:
    """R12: the handler is not run a second time for it."""
    h, go, begun, seen = at_the_gate()
    await stage.put("a")
    relay = stage.relay(h, at=None, poll_interval_seconds=3600)
    async with serving(relay):
        await begun.wait()
        # A claim under way would be another story: its answer is lost.
        await until(lambda: has_looked_everywhere(relay))
        await cut(stage)
        await until(lambda: has_heard_of_the_cut(relay))
        go.set()
        await until(all_delivered(stage, 1))
    assert seen == ["a"]


async def test_a_database_that_is_gone_for_a_while_ends_no_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: a claim that never reached it has claimed nothing, so the lease still says what is in hand."""
    h, go, begun, seen = at_the_gate()
    refused: list[int] = []
    opens, is_down = connections.connect, [False]

    async def connect(engine: Any) -> Any:
        if is_down[0]:
            refused.append(1)
            raise DatabaseUnreachable("nobody answers")
        return await opens(engine)

    monkeypatch.setattr(line_module, "connect", connect)
    monkeypatch.setattr(serving_module, "EXPONENTIAL", RetrySchedule((STEP,)))
    await stage.put("a")
    relay = stage.relay(h, at=None, poll_interval_seconds=3600)
    async with serving(relay):
        await begun.wait()
        await until(lambda: has_looked_everywhere(relay))
        is_down[0] = True
        await cut(stage)
        await until(lambda: has_heard_of_the_cut(relay))
        assert relay._work is not None  # noqa: SLF001 - as a notification does
        relay._work.wake_up("")  # noqa: SLF001 - as above
        await until(lambda: has_begun(refused, 20))
        is_down[0] = False
        go.set()
        await until(all_delivered(stage, 1))
        assert await stage.witness.fetchval("SELECT epoch FROM outbox_relays") == 1
    assert seen == ["a"]


async def test_it_goes_on_when_its_lease_was_ended_while_a_handler_ran(stage: Stage) -> None:
    """R3, R12: the handler is ended, and its work is done under the next lease."""
    begun, seen = asyncio.Event(), []

    async def act(event: Any) -> None:
        seen.append(event.what)
        begun.set()
        if len(seen) == 1:
            await asyncio.Event().wait()

    await stage.put("a", "b", of=uuid4())
    relay = stage.relay(
        handler("h", act), at=None, lease_seconds=0.6, poll_interval_seconds=0.05, grace_seconds=0.1
    )
    async with serving(relay):
        await begun.wait()
        await stage.witness.execute("DELETE FROM outbox_relays")
        await until(all_delivered(stage, 2))
    assert seen == ["a", "a", "b"]
    assert await stage.witness.fetchval("SELECT sum(retry_count) FROM outbox_events") == 0


async def test_what_was_claimed_when_nobody_could_say_who_is_due_is_given_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2, R12: the subscriptions have changed, and the database does not let them be read."""
    seen, read = Recorder(), Store.subscriptions
    refusals = [asyncpg.QueryCanceledError("canceling statement due to statement timeout")]

    async def refuse(self: Store, line: Line) -> Any:
        if refusals:
            raise refusals.pop()
        return await read(self, line)

    monkeypatch.setattr(serving_module, "EXPONENTIAL", RetrySchedule((STEP,)))
    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=0.05)):
        await stage.put("a")
        await until(all_delivered(stage, 1))
        monkeypatch.setattr(Store, "subscriptions", refuse)
        await stage.witness.execute("UPDATE outbox_subscriptions SET revision = revision + 1")
        await stage.put("b")
        await until(all_delivered(stage, 2))
    assert seen.seen == ["a", "b"]
    assert not refusals
    assert await stage.witness.fetchval("SELECT sum(takeovers + retry_count) FROM outbox_events") == 0


async def test_what_was_given_back_without_an_answer_is_not_given_back_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4, R12: this relay may have claimed it again meanwhile, so it moves on to the next epoch."""
    seen, release = Recorder().fail("a", times=2), Store.release_deliveries
    cuts = [1]

    async def cut_off(self: Store, line: Line, *given: Any) -> None:
        await release(self, line, *given)
        if cuts:
            cuts.pop()
            line._drop()  # noqa: SLF001 - as when it is cut
            raise DatabaseUnreachable("cut before the answer")

    monkeypatch.setattr(Store, "release_deliveries", cut_off)
    monkeypatch.setattr(serving_module, "EXPONENTIAL", RetrySchedule((STEP,)))
    h = handler("h", seen, retry=RetrySchedule((STEP,)))
    await stage.put("a", "b", of=uuid4())
    async with serving(stage.relay(h, at=None, poll_interval_seconds=0.05)):
        await until(all_delivered(stage, 2))
        assert not cuts
        assert await stage.witness.fetchval("SELECT epoch FROM outbox_relays") == 2
    assert list(dict.fromkeys(seen.seen)) == ["a", "b"]


async def test_a_lease_that_cannot_be_taken_anew_is_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: without a claim after the other meanwhile, which could only fail."""
    claim, register, claims, refusals = Store.claim_events, Store.register, [0], [1, 1]

    async def count(self: Store, *given: Any, **named: Any) -> Any:
        claims[0] += bool(len(refusals) == 1)
        return await claim(self, *given, **named)

    async def refuse(self: Store, *given: Any) -> None:
        if refusals and lost:
            refusals.pop()
            raise DatabaseUnreachable("not now")
        await register(self, *given)

    lost: list[int] = []
    monkeypatch.setattr(Store, "claim_events", count)
    monkeypatch.setattr(Store, "register", refuse)
    monkeypatch.setattr(serving_module, "EXPONENTIAL", RetrySchedule((0.3,)))
    seen = Recorder()
    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=0.05)):
        await stage.put("a")
        await until(all_delivered(stage, 1))
        lost.append(1)
        await stage.witness.execute("DELETE FROM outbox_relays")
        await stage.put("b")
        await until(all_delivered(stage, 2))
    assert not refusals
    assert claims[0] <= 3


@pytest.mark.parametrize("once", [False, True])
async def test_an_error_that_nobody_foresaw_ends_the_relay_loudly(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    """R12: rather than to hold an aggregate for ever; its work is released."""

    def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(InHand, "note", fail)
    await stage.put("a", of=uuid4())
    relay = stage.relay(handler("h", Recorder().fail("a")), at=None, poll_interval_seconds=0.05)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        async with asyncio.timeout(LONG):
            await (relay.run_until_idle() if once else relay.run())
    assert await stage.events() == {"a": "pending"}


async def test_nothing_more_begins_under_a_lease_that_is_lost(stage: Stage) -> None:
    """R3: what has no receipt would happen beside what the next holder does."""
    epochs: dict[str, list[int]] = {}
    begun = asyncio.Event()

    async def act(event: Any) -> None:
        run = current_run()
        assert run is not None
        epochs.setdefault(event.what, []).append(run.epoch)
        begun.set()
        if event.what == "a" and run.epoch == 1:
            await asyncio.Event().wait()

    await stage.put("a")
    relay = stage.relay(handler("h", act), at=None, concurrency=1, poll_interval_seconds=0.05)
    async with serving(relay):
        await begun.wait()
        await stage.put("b")
        await until(lambda: has_events(stage, "leased", 2))
        await stage.witness.execute("DELETE FROM outbox_relays")
        await stage.put("c")
        await until(all_delivered(stage, 3))
    assert (epochs["a"], epochs["b"]) == ([1, 2], [2])


async def test_a_lease_that_is_lost_while_a_suspect_waits_its_turn_is_replaced(stage: Stage) -> None:
    """R3, R7b: though the relay claims nothing else until all in hand has ended."""
    h, go, begun, seen = at_the_gate()
    suspect = Recorder().fail("s")
    await stage.put("s", event_type="bank.announced")
    listed = handler("listed", suspect, Announced, retry=RetrySchedule((3600,)))
    await stage.drain(listed)
    await stage.put("a")
    relay = stage.relay(h, listed, at=None, poll_interval_seconds=0.05, lease_seconds=0.6)
    async with serving(relay):
        await begun.wait()
        await stage.witness.execute("UPDATE outbox_deliveries SET takeovers = 2, available_at = now()")
        await until(lambda: waits_for_its_suspect(relay))
        await stage.witness.execute("DELETE FROM outbox_relays")
        await until(lambda: has_run_again(seen))
        go.set()
        await until(all_delivered(stage, 2))
    assert await stage.witness.fetchval("SELECT sum(retry_count) FROM outbox_events WHERE position = 2") == 0


async def test_what_a_claim_took_whose_answer_was_lost_is_claimed_anew(stage: Stage) -> None:
    """R12: the server commits it, nobody hears of it, and its relay lives on, under a new epoch."""
    h, go, begun, seen = at_the_gate()
    quick = Recorder()
    wallet = uuid4()
    await stage.put("a", of=wallet)
    relay = stage.relay(
        *(h, handler("quick", quick, Announced)), at=None, poll_interval_seconds=3600, lease_seconds=60
    )
    async with serving(relay), stage.engine.connect() as connection:
        await begun.wait()
        await until(lambda: has_looked_everywhere(relay))
        holder: Any = (await connection.get_raw_connection()).driver_connection
        await holder.execute("BEGIN")
        await holder.execute("SELECT FROM outbox_relays FOR UPDATE")
        await stage.put("b", event_type="bank.announced")
        assert relay._work is not None  # noqa: SLF001 - as a notification does
        relay._work.wake_up("")  # noqa: SLF001 - as above
        await until(lambda: claim_waits(stage))
        line = relay._lines["claim"]  # noqa: SLF001 - the one whose answer gets lost
        assert line._connection is not None  # noqa: SLF001
        line._connection.terminate()  # noqa: SLF001
        await holder.execute("COMMIT")
        await until(lambda: has_seen(quick, {"b"}))
        go.set()
        await until(all_delivered(stage, 2))
    assert set(seen) == {"a"}
    assert await stage.witness.fetchval("SELECT sum(takeovers + retry_count) FROM outbox_events") == 0
