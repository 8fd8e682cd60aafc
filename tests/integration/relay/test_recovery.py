"""A database that is gone, cuts or does not answer, and a lost lease: nothing is stuck, lost or charged (R3, R12)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.outbox import own_connection as line_module
from outbox_kernel.infrastructure.outbox.receipts import current_run
from outbox_kernel.infrastructure.outbox.sql.deliveries import RELEASE_DELIVERIES
from outbox_kernel.infrastructure.relay import shift as shift_module
from outbox_kernel.infrastructure.relay import subscription
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.infrastructure.relay.starting import Assembly
from outbox_kernel.infrastructure.relay.subscriber import Subscriber
from outbox_kernel.kernel import RetrySchedule
from tests.domain import Announced
from tests.relaying import Recorder, Stage, handler
from tests.serving import (
    LONG,
    STEP,
    all_delivered,
    at_the_gate,
    cut,
    has_begun,
    has_looked_everywhere,
    has_run_again,
    has_seen,
    knows_of_a_suspect,
    serving,
)
from tests.waiting import until

EPOCH = "SELECT epoch FROM outbox_relays"
CHARGED = """
SELECT (SELECT coalesce(sum(takeovers + attempts), 0) FROM outbox_deliveries)
       + (SELECT sum(takeovers) FROM outbox_cursors)
"""
# From the moment on at which the database answers again, with what a busy machine needs to begin a shift.
BACK_SECONDS_MAX = 2.5


# --- a database that cuts, or is gone ------------------------------------------------------------------


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
    assert await stage.witness.fetchval(CHARGED) == 0


async def test_what_was_done_when_the_connection_broke_has_its_effect_once(stage: Stage) -> None:
    """R2b, R6, R12: nothing in memory is believed, so it is read again, and meets its receipt."""
    begun, go, seen = asyncio.Event(), asyncio.Event(), []

    async def act(event: Any) -> None:
        seen.append(event.what)
        await stage.enter(event.what)
        begun.set()
        await go.wait()

    await stage.put("a", "b", of=uuid4())
    async with serving(stage.relay(handler("h", act), at=None, poll_interval_seconds=3600)):
        await begun.wait()
        await cut(stage)
        await until(lambda: has_begun(seen, 2))
        go.set()
        await until(all_delivered(stage, 2))
    assert await stage.journal() == ["a", "b"]
    assert await stage.witness.fetchval(CHARGED) == 0


@asynccontextmanager
async def gone_database(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[float]]:
    """While the block runs nobody lets the relay in; each time that it asks is noted."""
    asked: list[float] = []

    async def refuse(_: Any) -> Any:
        asked.append(time.monotonic())
        raise DatabaseUnreachable("nobody answers")

    with monkeypatch.context() as patch:
        patch.setattr(line_module, "connect", refuse)
        await cut(stage)
        yield asked


async def test_after_an_outage_it_is_back_within_about_a_second(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R12: however long it was; it asks often, and says so once."""
    seen = Recorder()
    caplog.set_level(logging.WARNING)
    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=3600)):
        await stage.put("a")
        await until(all_delivered(stage, 1))
        async with gone_database(stage, monkeypatch) as asked:
            await stage.put("b")
            await until(lambda: has_begun(asked, 8))
        back = time.monotonic()
        await until(lambda: has_seen(seen, {"b"}))
        assert time.monotonic() - back < BACK_SECONDS_MAX
    assert seen.seen == ["a", "b"]
    told = [each.message for each in caplog.records if "reads its cursors anew" in each.message]
    assert len([each for each in told if "nobody answers" in each]) == 1


async def test_one_ended_connection_is_told_as_that_and_the_lease_is_not_given_up(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """R12: who reads the log is not sent to start a server that runs."""
    caplog.set_level(logging.WARNING)
    seen = Recorder()
    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=0.05)) as task:
        await stage.put("a")
        await until(all_delivered(stage, 1))
        await cut(stage)
        await stage.put("b")
        await until(all_delivered(stage, 2))
        assert not task.done()
    text = "\n".join(each.message for each in caplog.records)
    assert "was lost (" in text
    assert "start the server" not in text
    assert "lease" not in text


async def test_a_start_of_a_shift_that_fails_is_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: the lease cannot be taken anew at once."""
    register, refusals = Assembly.register, [1, 1]
    lost: list[int] = []

    async def refuse(self: Assembly) -> None:
        if lost and refusals:
            refusals.pop()
            raise DatabaseUnreachable("not now")
        await register(self)

    monkeypatch.setattr(Assembly, "register", refuse)
    seen = Recorder()
    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=0.05)):
        await stage.put("a")
        await until(all_delivered(stage, 1))
        lost.append(1)
        await stage.witness.execute("DELETE FROM outbox_relays")
        await stage.put("b")
        await until(all_delivered(stage, 2))
    assert not refusals
    assert seen.seen == ["a", "b"]


async def test_when_nobody_can_say_who_is_due_nothing_is_delivered_until_somebody_can(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2, R12: the subscriptions have changed, and the database does not let them be read."""
    seen, ask = Recorder(), subscription.subscriptions_now
    refusals = [asyncpg.QueryCanceledError("canceling statement due to statement timeout")]

    async def refuse(log: Log) -> Any:
        if refusals:
            raise refusals.pop()
        return await ask(log)

    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=0.05)):
        await stage.put("a")
        await until(all_delivered(stage, 1))
        monkeypatch.setattr(shift_module, "subscriptions_now", refuse)
        await stage.witness.execute("UPDATE outbox_subscriptions SET revision = revision + 1")
        await stage.put("b")
        await until(all_delivered(stage, 2))
    assert seen.seen == ["a", "b"]
    assert not refusals
    assert await stage.witness.fetchval(CHARGED) == 0


# --- answers that nobody hears ---------------------------------------------------------------------------


async def test_what_was_given_back_without_an_answer_is_not_given_back_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4, R12: this relay may have taken it again meanwhile, so it moves on to the next epoch."""
    seen, run, cuts = Recorder().fail("a", times=2), Log.run, [1]

    async def cut_off(self: Log, statement: Any, *given: Any, **values: Any) -> Any:
        found = await run(self, statement, *given, **values)
        if statement is RELEASE_DELIVERIES and cuts:
            cuts.pop()
            raise DatabaseUnreachable("cut before the answer")
        return found

    monkeypatch.setattr(Log, "run", cut_off)
    h = handler("h", seen, retry=RetrySchedule((STEP,)))
    await stage.put("a", "b", of=uuid4())
    async with serving(stage.relay(h, at=None, poll_interval_seconds=0.05)):
        await until(all_delivered(stage, 2))
        assert not cuts
        assert await stage.witness.fetchval(EPOCH) == 2
    assert list(dict.fromkeys(seen.seen)) == ["a", "b"]


async def test_what_was_taken_and_the_answer_lost_is_given_back_uncharged(stage: Stage) -> None:
    """R12: the server commits it, nobody hears of it, and its relay lives on, under a new epoch."""
    seen = Recorder().fail("a")
    h = handler("h", seen, retry=RetrySchedule((3600,)))
    relay = stage.relay(h, at=None, poll_interval_seconds=3600, lease_seconds=60)
    async with serving(relay), stage.engine.connect() as connection:
        await stage.put("a")
        await relay.subscribed.wait()
        relay._shift.hear("")  # type: ignore[union-attr]  # noqa: SLF001 - as a notification does
        await until(lambda: has_delivery(stage, "waiting"))
        await until(lambda: has_looked_everywhere(relay))
        holder: Any = (await connection.get_raw_connection()).driver_connection
        await holder.execute("BEGIN")
        await holder.execute("SELECT FROM outbox_relays FOR UPDATE")
        await stage.witness.execute("UPDATE outbox_deliveries SET available_at = clock_timestamp()")
        shift = relay._shift  # noqa: SLF001 - its connection is to break
        assert shift is not None
        shift.hear("deliveries")
        await until(lambda: taking_waits(stage))
        line = shift.lines.write
        assert line._connection is not None  # noqa: SLF001 - as above
        line._connection.terminate()  # noqa: SLF001 - as above
        await holder.execute("COMMIT")
        await until(all_delivered(stage, 1))
        assert await stage.witness.fetchval(EPOCH) == 2
    assert seen.seen == ["a", "a"]
    row = await stage.delivery("a", "h")
    assert (row["attempts"], row["takeovers"]) == (1, 0)


async def has_delivery(stage: Stage, status: str) -> bool:
    return status in (await stage.deliveries()).values()


async def taking_waits(stage: Stage) -> bool:
    return bool(
        await stage.witness.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%WITH RECURSIVE%'"
        )
    )


# --- a lease that is lost --------------------------------------------------------------------------------


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
    assert await stage.witness.fetchval("SELECT coalesce(sum(attempts), 0) FROM outbox_deliveries") == 0


async def test_nothing_more_begins_under_a_lease_that_is_lost(stage: Stage) -> None:
    """R3: what has no receipt would happen beside what the next holder does."""
    epochs: dict[str, list[int]] = {}
    begun = asyncio.Event()

    async def act(event: Any) -> None:
        run = current_run()
        assert run is not None
        epochs.setdefault(event.what, []).append(run.terms.epoch)
        begun.set()
        if event.what == "a" and run.terms.epoch == 1:
            await asyncio.Event().wait()

    await stage.put("a", "b")
    relay = stage.relay(handler("h", act), at=None, concurrency=1, poll_interval_seconds=0.05)
    async with serving(relay):
        await begun.wait()
        await stage.witness.execute("DELETE FROM outbox_relays")
        await stage.put("c")
        await until(all_delivered(stage, 3))
    assert (epochs["a"], epochs["b"]) == ([1, 2], [2])


async def test_a_lease_that_is_lost_while_a_suspect_waits_its_turn_is_replaced(stage: Stage) -> None:
    """R3, R7b: though the relay takes nothing else until all in hand has ended."""
    h, go, begun, seen = at_the_gate()
    suspect = Recorder().fail("s")
    await stage.put("s", event_type="bank.announced")
    listed = handler("listed", suspect, Announced, retry=RetrySchedule((3600,)))
    await stage.drain(h, listed)
    await stage.put("a")
    relay = stage.relay(h, listed, at=None, poll_interval_seconds=0.05, lease_seconds=0.6)
    async with serving(relay):
        await begun.wait()
        await stage.witness.execute("UPDATE outbox_deliveries SET takeovers = 2, available_at = now()")
        await until(lambda: knows_of_a_suspect(relay))
        await stage.witness.execute("DELETE FROM outbox_relays")
        await until(lambda: has_run_again(seen))
        go.set()
        await until(all_delivered(stage, 2))
    assert (await stage.delivery("s", "listed"))["attempts"] == 1


# --- mistakes of ours ------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [lambda relay: relay.run(), lambda relay: relay.run_until_idle()])
async def test_an_error_that_nobody_foresaw_ends_the_relay_loudly(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, runs: Callable[[Any], Awaitable[object]]
) -> None:
    """R12: rather than to hold an aggregate for ever; its work is released."""

    def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(Subscriber, "_note", fail)
    await stage.put("a", of=uuid4())
    relay = stage.relay(handler("h", Recorder().fail("a")), at=None, poll_interval_seconds=0.05)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        async with asyncio.timeout(LONG):
            await runs(relay)
    assert set(await stage.owners("h")) == {None}
    assert await stage.deliveries() == {}
