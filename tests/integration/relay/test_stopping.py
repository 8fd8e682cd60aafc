"""Beginning and ending: what is in hand is finished or given back, and no lease is left (R8, R11, R14)."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from outbox_kernel.infrastructure.cancelling import CancelledByOthers
from outbox_kernel.infrastructure.errors import BadSetting, DatabaseUnreachable
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.relay import OutboxRelay, shift, starting
from outbox_kernel.infrastructure.relay import serving as serving_steps
from outbox_kernel.infrastructure.relay.ownership import Ownership
from outbox_kernel.infrastructure.relay.reading import Reading
from tests.relaying import Recorder, Stage, handler
from tests.serving import (
    LONG,
    RELAYS,
    all_delivered,
    at_the_gate,
    begins_nothing_more,
    cut,
    has_begun,
    has_events,
    has_in_hand,
    no_keeper_lives,
    serving,
)
from tests.waiting import until


async def test_stopping_lets_running_handlers_end(stage: Stage) -> None:
    """R11."""
    h, go, begun, _ = at_the_gate()
    await stage.put("a")
    relay = stage.relay(h, at=None)
    task = asyncio.create_task(relay.run())
    await begun.wait()
    relay.stop()
    await until(lambda: begins_nothing_more(relay))
    go.set()
    await task
    assert await stage.events() == {"a": "delivered"}
    assert await stage.witness.fetchval(RELAYS) == 0


async def test_a_relay_that_is_ended_before_it_hears_that_it_is_registered_leaves_no_lease(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R11: others would give it its share, and nobody would read for that."""
    transact, committed = Line._all, asyncio.Event()  # noqa: SLF001 - where an answer is late

    async def late(self: Line, *given: Any) -> Any:
        await transact(self, *given)
        if not committed.is_set():
            committed.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(Line, "_all", late)
    running = asyncio.create_task(stage.relay(handler("h", Recorder()), at=None).run())
    await committed.wait()
    assert await stage.witness.fetchval(RELAYS) == 1
    running.cancel()
    await running
    assert await stage.witness.fetchval(RELAYS) == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_a_place_whose_answer_is_late_costs_nobody_the_grace_period(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """R11, R5: it is written again, and is there already; what has come since is written all the same."""
    fetch, written = Line._fetch, asyncio.Event()  # noqa: SLF001 - where an answer is late

    async def late(self: Line, connection: Any, text: str, *given: Any) -> Any:
        found = await fetch(self, connection, text, *given)
        if "json_to_recordset" in text and not written.is_set():
            written.set()
            await asyncio.Event().wait()
        return found

    go, begun = asyncio.Event(), asyncio.Event()

    async def act(_: Any) -> None:
        begun.set()
        await go.wait()
        if fails:
            raise ValueError("not today")

    await stage.put("a")
    relay = stage.relay(handler("h", act), handler("quick", Recorder()), at=None)
    monkeypatch.setattr(Line, "_fetch", late)
    monkeypatch.setattr(serving_steps, "ANSWER_SECONDS_MAX", 0.05)
    task = asyncio.create_task(relay.run())
    await asyncio.gather(begun.wait(), written.wait())
    if fails:
        go.set()
        await until(lambda: has_in_hand(relay, 0))
        relay.stop()
    else:
        relay.stop()
        await until(lambda: begins_nothing_more(relay))
        go.set()
    await task
    assert await stage.events() == {"a": "open" if fails else "delivered"}


@pytest.mark.parametrize("name", ["outbox-read", "outbox-write", "outbox-Listener.run", "outbox-stop"])
async def test_a_relay_whose_task_is_cancelled_by_a_handler_ends_with_a_sentence(
    stage: Stage, name: str
) -> None:
    """R11: or its supervisor would take that for an end which was asked for."""

    async def act(event: Any) -> None:
        [task] = [each for each in asyncio.all_tasks() if each.get_name() == name]
        task.cancel()

    await stage.put("a")
    with pytest.raises(CancelledByOthers, match=f"{name} was cancelled by other code of this process"):
        await stage.relay(handler("h", act), at=None).run()
    assert await stage.witness.fetchval(RELAYS) == 0


async def test_threads_that_handlers_have_filled_with_endless_calls_hold_up_no_stop(stage: Stage) -> None:
    """R11: the lease's keeper is not joined in line behind them."""
    released, begun = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
    calls: list[asyncio.Future[bool]] = []

    async def act(event: Any) -> None:
        calls.append(loop.run_in_executor(None, released.wait))
        begun.set()

    await stage.put("a")
    relay = stage.relay(handler("h", act), at=None)
    task = asyncio.create_task(relay.run())
    await begun.wait()
    relay.stop()
    try:
        await asyncio.wait([task], timeout=LONG)
        assert task.done()
    finally:
        released.set()
        await asyncio.gather(*calls)
    assert await stage.witness.fetchval(RELAYS) == 0


async def test_stopping_releases_the_rest_at_once(stage: Stage) -> None:
    """R11: while a handler still uses its grace period; nothing is charged, and no takeover is counted."""
    h, go, begun, seen = at_the_gate()
    await stage.put("a")
    for n in range(3):
        await stage.put(f"b{n}", of=uuid4())
    relay = stage.relay(h, at=None, concurrency=1, batch_size_max=10, grace_seconds=60)
    task = asyncio.create_task(relay.run())
    await begun.wait()
    relay.stop()
    await until(lambda: nothing_is_owned(stage))
    assert not task.done()
    other = Recorder()
    await stage.drain(handler("h", other))
    assert sorted(other.seen) == ["b0", "b1", "b2"]
    assert (await stage.deliveries())["a", "h"] == "leased"
    go.set()
    await task
    assert seen == ["a"]
    assert set((await stage.events()).values()) == {"delivered"}
    assert await charged(stage) == 0


async def nothing_is_owned(stage: Stage) -> bool:
    return set(await stage.owners("h")) == {None}


async def charged(stage: Stage) -> int:
    """What anything was charged with, or taken over for."""
    charged: int = await stage.witness.fetchval(
        "SELECT (SELECT coalesce(sum(takeovers + attempts), 0) FROM outbox_deliveries) "
        "+ (SELECT sum(takeovers) FROM outbox_cursors)"
    )
    return charged


async def test_stopping_releases_what_a_read_brings_at_that_very_moment(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R11: its answer is on the way when the relay is told to stop."""
    h, go, begun, _ = at_the_gate()
    answered, heard, read = asyncio.Event(), asyncio.Event(), Reading.read_for

    async def slow(reading: Reading, *arguments: Any) -> Any:
        found = await read(reading, *arguments)
        if begun.is_set() and found.rows:
            answered.set()
            await heard.wait()
        return found

    monkeypatch.setattr(Reading, "read_for", slow)
    await stage.put("a")
    relay = stage.relay(h, at=None, concurrency=1, poll_interval_seconds=0.05, grace_seconds=60)
    task = asyncio.create_task(relay.run())
    await begun.wait()
    await stage.put("b", of=uuid4())
    await answered.wait()
    relay.stop()
    asyncio.get_running_loop().call_later(0.1, heard.set)
    await until(lambda: nothing_is_owned(stage))
    assert not task.done()
    other = Recorder()
    await stage.drain(handler("h", other))
    assert other.seen == ["b"]
    go.set()
    await task
    assert set((await stage.events()).values()) == {"delivered"}


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
    assert "leased" not in (await stage.deliveries()).values()
    other = Recorder()
    await stage.drain(handler("h", other))
    assert other.seen == ["a", "b"]
    assert await charged(stage) == 0


async def test_cancelling_it_releases_its_work_and_ends_without_an_error(stage: Stage) -> None:
    """R11: as an API's lifespan does."""
    h, _, begun, _ = at_the_gate()
    await stage.put("a", "b", of=uuid4())
    task = asyncio.create_task(stage.relay(h, at=None, grace_seconds=0.05).run())
    await begun.wait()
    task.cancel()
    await task
    assert not task.cancelled()
    assert "leased" not in (await stage.deliveries()).values()
    assert await nothing_is_owned(stage)
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


async def told_to_stop_amid_two(
    stage: Stage,
) -> tuple[OutboxRelay, asyncio.Task[None], dict[str, asyncio.Event]]:
    """A relay that is stopping while two runs wait, each for its own gate."""
    gates = {"a": asyncio.Event(), "b": asyncio.Event()}
    begun: list[str] = []

    async def act(event: Any) -> None:
        begun.append(event.what)
        await gates[event.what].wait()

    await stage.put("a")
    await stage.put("b")
    relay = stage.relay(handler("h", act), at=None, grace_seconds=60)
    task = asyncio.create_task(relay.run())
    await until(lambda: has_begun(begun, 2))
    relay.stop()
    return relay, task, gates


async def test_what_ends_well_while_a_relay_stops_is_marked_at_once(stage: Stage) -> None:
    """R11: not only when the last one has ended, before which the process may be killed."""
    relay, task, gates = await told_to_stop_amid_two(stage)
    await until(lambda: begins_nothing_more(relay))
    gates["a"].set()
    await until(lambda: has_events(stage, "delivered", 1))
    assert not task.done()
    gates["b"].set()
    await task
    assert set((await stage.events()).values()) == {"delivered"}


async def test_a_second_cancellation_leaves_nobody_to_renew_the_lease(stage: Stage) -> None:
    """R3, R11: a keeper that went on would end its process when the loop has ended."""
    h, _, begun, _ = at_the_gate()
    await stage.put("a")
    relay = stage.relay(h, at=None, grace_seconds=60)
    task = asyncio.create_task(relay.run())
    await begun.wait()
    task.cancel()
    await until(lambda: begins_nothing_more(relay))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await until(no_keeper_lives)
    assert await stage.witness.fetchval(RELAYS) == 0


async def test_what_has_ended_when_a_stop_is_cut_short_is_not_repeated(stage: Stage) -> None:
    """R11: cancelled while it gives grace, it writes what it knows, and gives back the rest uncharged."""
    _, task, gates = await told_to_stop_amid_two(stage)
    await until(lambda: nothing_is_owned(stage))
    gates["b"].set()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert await stage.deliveries() == {("a", "h"): "waiting", ("b", "h"): "done"}
    other = Recorder()
    await stage.drain(handler("h", other))
    assert other.seen == ["a"]
    assert await charged(stage) == 0


async def test_a_relay_that_is_cancelled_ends_though_it_cannot_release_anything(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R11, R12: its database is gone at that moment; it does not begin again."""
    h, _, begun, _ = at_the_gate()

    async def fail(_: Ownership) -> None:
        raise DatabaseUnreachable("gone at that moment")

    monkeypatch.setattr(Ownership, "give_all", fail)
    await stage.put("a")
    task = asyncio.create_task(stage.relay(h, at=None, grace_seconds=0.05).run())
    await begun.wait()
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=LONG)
    assert done
    assert (task.cancelled(), task.exception()) == (False, None)
    assert await stage.witness.fetchval(RELAYS) == 0


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

    monkeypatch.setattr(starting, "subscriptions_now", refuse)
    with pytest.raises(DatabaseUnreachable):
        await stage.relay(handler("h", Recorder()), at=None).run()
    assert await stage.witness.fetchval(RELAYS) == 0


async def test_a_bad_url_to_listen_at_is_one_sentence_and_leaves_nothing_running(stage: Stage) -> None:
    """R14, R15."""
    relay = stage.relay(handler("h", Recorder()), at=None, listen_url="mysql://here")
    with pytest.raises(BadSetting, match=r"^OUTBOX_LISTEN_URL begins with mysql"):
        await relay.run()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("outbox-")]


async def test_what_a_deaf_handler_holds_is_released_when_its_relay_stops(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R11: at once, uncharged; it may not commit any more."""
    monkeypatch.setattr(shift, "GRACE_SECONDS", 0.05)
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
    assert await charged(stage) == 0


async def test_a_relay_whose_connection_ends_as_it_resigns_leaves_its_lease_to_run_out(stage: Stage) -> None:
    """R11, R12: it ends in order all the same."""
    relay = stage.relay(handler("h", Recorder()), at=None)
    task = asyncio.create_task(relay.run())
    await relay.subscribed.wait()
    async with stage.engine.connect() as connection:
        # Which lets everything happen to the lease but its end.
        await connection.execute(text("SELECT FROM outbox_relays FOR KEY SHARE"))
        relay.stop()
        await until(lambda: is_resigning(stage))
        await cut(stage)
        await connection.invalidate()
        await task
    assert await stage.witness.fetchval(RELAYS) == 1


async def is_resigning(stage: Stage) -> bool:
    waiting = "wait_event_type = 'Lock' AND query LIKE '%DELETE FROM%outbox_relays%'"
    return bool(await stage.witness.fetchval(f"SELECT count(*) FROM pg_stat_activity WHERE {waiting}"))
