"""The service as a whole: it wakes, stops, is cancelled, loses its database and comes back (R1, R10-R12)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from infrastructure.errors import BadSetting, DatabaseUnreachable
from infrastructure.outbox.receipts import current_run
from infrastructure.relay import OutboxRelay, crew
from infrastructure.relay import line as line_module
from infrastructure.relay import serving as serving_module
from infrastructure.relay.in_hand import InHand
from infrastructure.relay.line import Line
from infrastructure.relay.store import Store
from kernel import RetrySchedule
from kernel.handlers import HandlerRegistration
from tests.domain import Announced
from tests.relaying import Recorder, Stage, handler
from tests.waiting import until

LONG = 10.0
STEP = 0.01
RELAYS = "SELECT count(*) FROM outbox_relays"


@asynccontextmanager
async def serving(relay: OutboxRelay) -> AsyncIterator[asyncio.Task[None]]:
    """Run it in the background, and stop it at the end."""
    task = asyncio.create_task(relay.run())
    try:
        yield task
    finally:
        relay.stop()
        await task


def all_delivered(stage: Stage, count: int) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        statuses = list((await stage.events()).values())
        return statuses == ["delivered"] * count

    return holds


def at_the_gate() -> tuple[HandlerRegistration, asyncio.Event, asyncio.Event, list[str]]:
    """A handler that waits for leave; the leave; that it has begun; what it has begun with."""
    go, begun, seen = asyncio.Event(), asyncio.Event(), []

    async def act(event: Any) -> None:
        seen.append(event.what)
        begun.set()
        await go.wait()

    return handler("h", act), go, begun, seen


async def test_it_delivers_what_is_committed_while_it_runs(stage: Stage) -> None:
    """R1: by polling alone, too."""
    seen = Recorder()
    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=0.05)):
        for n in range(5):
            await stage.put(f"e{n}", of=uuid4())
            await until(all_delivered(stage, n + 1))
    assert seen.seen == [f"e{n}" for n in range(5)]


async def test_it_tries_again_when_the_time_has_come(stage: Stage) -> None:
    """R7: with no event and no poll to remind it."""
    seen = Recorder().fail("a", times=2)
    h = handler("h", seen, retry=RetrySchedule((0.05,)))
    await stage.put("a")
    async with serving(stage.relay(h, at=None, poll_interval_seconds=3600)):
        await until(all_delivered(stage, 1))
    assert seen.seen == ["a", "a", "a"]


async def test_several_relays_share_one_outbox_in_order(stage: Stage) -> None:
    """R1, R4."""
    wallets = [uuid4() for _ in range(4)]
    seen = Recorder().fail("0-3").fail("1-5")
    h = handler("h", seen, retry=RetrySchedule((0.01,)))
    relays = [
        stage.relay(h, at=None, poll_interval_seconds=0.02, batch_size_max=5, concurrency=2) for _ in range(3)
    ]
    async with serving(relays[0]), serving(relays[1]), serving(relays[2]):
        for n in range(20):
            for number, wallet in enumerate(wallets):
                await stage.put(f"{number}-{n}", of=wallet)
        await until(all_delivered(stage, 80))
    for number in range(4):
        mine = [what for what in seen.seen if what.startswith(f"{number}-")]
        assert list(dict.fromkeys(mine)) == [f"{number}-{n}" for n in range(20)]
    assert len(seen.seen) == 82
    assert await stage.witness.fetchval(RELAYS) == 0


async def test_stopping_lets_running_handlers_end(stage: Stage) -> None:
    """R11."""
    h, go, begun, _ = at_the_gate()
    await stage.put("a")
    relay = stage.relay(h, at=None)
    task = asyncio.create_task(relay.run())
    await begun.wait()
    relay.stop()
    await until(lambda: _stops_claiming(relay))
    go.set()
    await task
    assert await stage.events() == {"a": "delivered"}
    assert await stage.witness.fetchval(RELAYS) == 0


async def _stops_claiming(relay: OutboxRelay) -> bool:
    assert relay._work is not None  # noqa: SLF001 - nobody else can say
    return relay._work.crew.stopping  # noqa: SLF001 - as above


async def test_stopping_releases_the_rest_at_once(stage: Stage) -> None:
    """R11: while a handler still uses its grace period; nothing is charged, and no takeover is counted."""
    h, go, begun, seen = at_the_gate()
    await stage.put("a")
    for n in range(3):
        await stage.put(f"b{n}", of=uuid4())
    relay = stage.relay(h, at=None, concurrency=1, batch_size_max=10, grace_seconds=60)
    task = asyncio.create_task(relay.run())
    await begun.wait()
    await until(lambda: _has(stage, "leased", 2))
    relay.stop()
    await until(lambda: _has(stage, "pending", 3))
    assert not task.done()
    other = Recorder()
    await stage.drain(handler("h", other))
    assert sorted(other.seen) == ["b0", "b1", "b2"]
    go.set()
    await task
    assert seen == ["a"]
    assert set((await stage.events()).values()) == {"delivered"}
    assert await stage.witness.fetchval("SELECT sum(takeovers + retry_count) FROM outbox_events") == 0


async def _has(stage: Stage, status: str, at_least: int) -> bool:
    return list((await stage.events()).values()).count(status) >= at_least


async def test_a_handler_that_outlasts_the_grace_period_is_ended_and_given_back(stage: Stage) -> None:
    """R11: uncharged."""
    h, _, begun, seen = at_the_gate()
    wallet = uuid4()
    await stage.put("a", "b", of=wallet)
    relay = stage.relay(h, at=None, grace_seconds=0.05)
    task = asyncio.create_task(relay.run())
    await begun.wait()
    relay.stop()
    await task
    assert seen == ["a"]
    assert "leased" not in (await stage.events()).values()
    other = Recorder()
    await stage.drain(handler("h", other))
    assert other.seen == ["a", "b"]
    assert await stage.witness.fetchval("SELECT sum(takeovers + retry_count) FROM outbox_events") == 0


async def test_cancelling_it_releases_its_work_and_ends_without_an_error(stage: Stage) -> None:
    """R11: as an API's lifespan does."""
    h, _, begun, _ = at_the_gate()
    await stage.put("a", "b", of=uuid4())
    task = asyncio.create_task(stage.relay(h, at=None, grace_seconds=0.05).run())
    await begun.wait()
    task.cancel()
    await task
    assert not task.cancelled()
    assert "leased" not in (await stage.events()).values()
    assert await stage.witness.fetchval(RELAYS) == 0


async def test_cancelling_it_before_it_has_begun_ends_it_too(stage: Stage) -> None:
    """R11."""
    task = asyncio.create_task(stage.relay(handler("h", Recorder()), at=None).run())
    await asyncio.sleep(0)
    task.cancel()
    await task
    assert await stage.witness.fetchval(RELAYS) == 0


async def test_it_can_run_again_after_it_was_stopped(stage: Stage) -> None:
    """R11."""
    seen = Recorder()
    relay = stage.relay(handler("h", seen))
    await stage.put("a")
    await relay.run_until_idle()
    await stage.put("b")
    await relay.run_until_idle()
    assert seen.seen == ["a", "b"]


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
        await until(lambda: _has_looked_everywhere(relay))
        await cut(stage)
        await until(lambda: _has_heard_of_the_cut(relay))
        go.set()
        await until(all_delivered(stage, 1))
    assert seen == ["a"]


async def test_a_database_that_is_gone_for_a_while_ends_no_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: a claim that never reached it has claimed nothing, so the lease still says what is in hand."""
    h, go, begun, seen = at_the_gate()
    refused: list[int] = []
    opens, is_down = line_module.connect, [False]

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
        await until(lambda: _has_looked_everywhere(relay))
        is_down[0] = True
        await cut(stage)
        await until(lambda: _has_heard_of_the_cut(relay))
        assert relay._work is not None  # noqa: SLF001 - as a notification does
        relay._work.wake_up("")  # noqa: SLF001 - as above
        await until(lambda: _begun(refused, 20))
        is_down[0] = False
        go.set()
        await until(all_delivered(stage, 1))
        assert await stage.witness.fetchval("SELECT epoch FROM outbox_relays") == 1
    assert seen == ["a"]


async def _has_heard_of_the_cut(relay: OutboxRelay) -> bool:
    connection = relay._lines["claim"]._connection  # noqa: SLF001 - nobody else can say
    return connection is None or connection.is_closed()


async def cut(stage: Stage) -> None:
    await stage.witness.execute(
        """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
        """
    )


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


async def test_it_frees_what_another_relay_left_behind(stage: Stage) -> None:
    """R3."""
    seen = Recorder()
    await stage.put("a")
    await stage.claimer_that_vanishes()
    await stage.witness.execute("UPDATE outbox_relays SET expires_at = clock_timestamp()")
    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=0.05)):
        await until(all_delivered(stage, 1))
    assert seen.seen == ["a"]


async def test_a_slow_handler_delays_no_other_aggregate_and_no_other_handler(stage: Stage) -> None:
    """R4: it runs as long as it may, and the rest is delivered meanwhile."""
    h, go, begun, seen = at_the_gate()
    good, wallet = Recorder(), uuid4()
    await stage.put("a", "b", of=wallet)
    async with serving(
        stage.relay(h, handler("z", good), at=None, poll_interval_seconds=0.05, concurrency=2)
    ):
        await begun.wait()
        await until(lambda: _seen(good, {"a", "b"}))
        assert seen == ["a"]
        go.set()
        await until(all_delivered(stage, 2))
    assert seen == ["a", "b"]


async def _seen(recorder: Recorder, whats: set[str]) -> bool:
    return set(recorder.seen) >= whats


async def test_handlers_that_hang_as_deliveries_delay_no_other_handler(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4: however many, what is slow does not count as what the crew is busy with."""
    monkeypatch.setattr(crew, "SLOW_SECONDS", STEP)
    go, quick, hanging = asyncio.Event(), Recorder(), Recorder()

    async def hang(event: Any) -> None:
        await hanging(event)
        await go.wait()

    hanging.fail("a", times=3)
    names = ["h1", "h2", "h3"]
    slow = [handler(name, hang, retry=RetrySchedule((0.0,))) for name in names]
    await stage.put("a", of=uuid4())
    relay = stage.relay(
        *slow,
        handler("quick", quick, Announced),
        at=None,
        poll_interval_seconds=0.05,
        concurrency=1,
        batch_size_max=1,
    )
    async with serving(relay):
        await until(lambda: _count(hanging, 6))
        await stage.put("q", event_type="bank.announced")
        await until(lambda: _seen(quick, {"q"}))
        go.set()
        await until(all_delivered(stage, 2))


async def _count(recorder: Recorder, count: int) -> bool:
    return len(recorder.seen) == count


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


async def test_time_limits_hold_while_a_relay_stops(stage: Stage) -> None:
    """R8, R11: a long grace period is not for those who hang."""
    begun = asyncio.Event()

    async def hang(event: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    await stage.put("a")
    relay = stage.relay(handler("h", hang, timeout_seconds=0.3), at=None, grace_seconds=3600)
    task = asyncio.create_task(relay.run())
    await begun.wait()
    relay.stop()
    async with asyncio.timeout(LONG):
        await task
    assert (await stage.delivery("a", "h"))["attempts"] == 1


async def test_what_ends_well_while_a_relay_stops_is_marked_at_once(stage: Stage) -> None:
    """R11: not only when the last one has ended, before which the process may be killed."""
    gates = {"a": asyncio.Event(), "b": asyncio.Event()}
    begun: list[str] = []

    async def act(event: Any) -> None:
        begun.append(event.what)
        await gates[event.what].wait()

    await stage.put("a")
    await stage.put("b")
    relay = stage.relay(handler("h", act), at=None, grace_seconds=60)
    task = asyncio.create_task(relay.run())
    await until(lambda: _begun(begun, 2))
    relay.stop()
    await until(lambda: _stops_claiming(relay))
    gates["a"].set()
    await until(lambda: _has(stage, "delivered", 1))
    assert not task.done()
    gates["b"].set()
    await task
    assert set((await stage.events()).values()) == {"delivered"}


async def _begun(begun: list[Any], count: int) -> bool:
    return len(begun) >= count


async def test_a_second_cancellation_leaves_nobody_to_renew_the_lease(stage: Stage) -> None:
    """R3, R11: a keeper that went on would end its process when the loop has ended."""
    h, _, begun, _ = at_the_gate()
    await stage.put("a")
    relay = stage.relay(h, at=None, grace_seconds=60)
    task = asyncio.create_task(relay.run())
    await begun.wait()
    task.cancel()
    await until(lambda: _stops_claiming(relay))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await until(_no_keeper_lives)
    assert await stage.witness.fetchval(RELAYS) == 0


async def _no_keeper_lives() -> bool:
    return all(thread.name != "outbox-lease-keeper" for thread in threading.enumerate())


async def test_cancelling_it_before_its_first_step_ends_it_without_an_error(stage: Stage) -> None:
    """R11."""
    task = asyncio.create_task(stage.relay(handler("h", Recorder()), at=None).run())
    task.cancel()
    await task
    assert not task.cancelled()


async def test_it_serves_again_after_it_was_told_to_stop(stage: Stage) -> None:
    """R11."""
    relay = stage.relay(handler("h", Recorder()), at=None, poll_interval_seconds=0.05)
    for n in range(2):
        await stage.put(f"e{n}")
        async with serving(relay):
            await until(all_delivered(stage, n + 1))


async def test_a_start_that_fails_leaves_no_lease(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """R14: or it would count as a live relay for a while."""

    async def refuse(*_: object) -> None:
        raise DatabaseUnreachable("gone again")

    monkeypatch.setattr(Store, "subscribe", refuse)
    with pytest.raises(DatabaseUnreachable):
        await stage.relay(handler("h", Recorder()), at=None).run()
    assert await stage.witness.fetchval(RELAYS) == 0


async def test_a_bad_url_to_listen_at_is_one_sentence_and_leaves_nothing_running(stage: Stage) -> None:
    """R14, R15."""
    relay = stage.relay(handler("h", Recorder()), at=None, listen_url="mysql://here")
    with pytest.raises(BadSetting, match="mysql"):
        await relay.run()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("outbox-")]


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
        await until(lambda: _has(stage, "leased", 2))
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
        await until(lambda: _waits_for_its_suspect(relay))
        await stage.witness.execute("DELETE FROM outbox_relays")
        await until(lambda: _again(seen))
        go.set()
        await until(all_delivered(stage, 2))
    assert await stage.witness.fetchval("SELECT sum(retry_count) FROM outbox_events WHERE position = 2") == 0


async def _again(seen: list[str]) -> bool:
    return len(seen) == 2


async def _waits_for_its_suspect(relay: OutboxRelay) -> bool:
    work = relay._work  # noqa: SLF001 - nobody else can say
    return work is not None and work.claimer.suspects and work.claiming.locked()


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
        await until(lambda: _has_looked_everywhere(relay))
        holder: Any = (await connection.get_raw_connection()).driver_connection
        await holder.execute("BEGIN")
        await holder.execute("SELECT FROM outbox_relays FOR UPDATE")
        await stage.put("b", event_type="bank.announced")
        assert relay._work is not None  # noqa: SLF001 - as a notification does
        relay._work.wake_up("")  # noqa: SLF001 - as above
        await until(lambda: _claim_waits(stage))
        line = relay._lines["claim"]  # noqa: SLF001 - the one whose answer gets lost
        assert line._connection is not None  # noqa: SLF001
        line._connection.terminate()  # noqa: SLF001
        await holder.execute("COMMIT")
        await until(lambda: _seen(quick, {"b"}))
        go.set()
        await until(all_delivered(stage, 2))
    assert set(seen) == {"a"}
    assert await stage.witness.fetchval("SELECT sum(takeovers + retry_count) FROM outbox_events") == 0


async def _has_looked_everywhere(relay: OutboxRelay) -> bool:
    work = relay._work  # noqa: SLF001 - nobody else can say
    return work is not None and not (work.claimer.deliveries_due or work.claiming.locked())


async def _claim_waits(stage: Stage) -> bool:
    return bool(
        await stage.witness.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%candidate%'"
        )
    )


async def test_what_a_deaf_handler_holds_is_released_when_its_relay_stops(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R11: at once, uncharged; it may not commit any more."""
    monkeypatch.setattr(crew, "GRACE_SECONDS", 0.05)
    go, begun = asyncio.Event(), asyncio.Event()
    refused: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def deaf(event: Any) -> None:
        begun.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        try:
            await stage.enter("too late")
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            refused.set_result(error)

    await stage.put("a")
    relay = stage.relay(handler("h", deaf), at=None, grace_seconds=0.05)
    task = asyncio.create_task(relay.run())
    await begun.wait()
    relay.stop()
    await task
    other = Recorder()
    await stage.drain(handler("h", other))
    assert other.seen == ["a"]
    go.set()
    assert type(await refused).__name__ == "RunOver"
    assert await stage.witness.fetchval("SELECT sum(takeovers + retry_count) FROM outbox_events") == 0
