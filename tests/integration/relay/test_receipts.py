"""An effect happens once: the receipt commits with it or neither does (R6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import event, insert, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.util import await_only

from outbox_kernel.infrastructure.errors import AlreadyHandled, RunOver
from outbox_kernel.infrastructure.operations import Desk, Selection, stories
from outbox_kernel.infrastructure.operations.health_of_work import examine_work
from outbox_kernel.infrastructure.operations.mending import HalfDone, choose_for_retry, retry
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.operations.replaying import replay, rewind
from outbox_kernel.infrastructure.outbox.receipts import HandlerRun
from outbox_kernel.infrastructure.relay.run import Handling, Run
from outbox_kernel.kernel.errors import SecondCommit
from tests.domain import Wallet, journal
from tests.relaying import LEASE_SECONDS, Recorder, Stage, handler
from tests.serving import has_looked_everywhere
from tests.waiting import until


def entering(stage: Stage) -> Any:
    async def act(event: Any) -> None:
        await stage.enter(event.what)

    return act


async def after_its_commit(session: AsyncSession, then: Callable[[], None]) -> None:
    """Do something once the server has committed a session's transaction and nobody has been told so."""
    connection: Any = (await session.connection()).sync_connection
    commit = connection._commit_impl  # noqa: SLF001 - the last place before the answer is heard

    def commit_and_then() -> None:
        commit()
        then()

    connection._commit_impl = commit_and_then  # noqa: SLF001


async def test_a_unit_of_work_leaves_a_receipt_with_its_effect(stage: Stage) -> None:
    """R6."""
    await stage.put("a")
    await stage.drain(handler("h", entering(stage)), handler("i", entering(stage)))
    assert await stage.journal() == ["a", "a"]
    assert await stage.receipts() == [("a", "h", "done"), ("a", "i", "done")]


async def test_a_receipt_is_heard_of_by_who_listens_to_the_engine(stage: Stage) -> None:
    """R6: what an application has hung on its engine sees it like any other statement, and it works as ever."""
    heard: list[str] = []

    def listen(_: object, __: object, statement: str, *___: object) -> None:
        heard.append(statement)

    event.listen(stage.engine.sync_engine, "after_cursor_execute", listen)
    await stage.put("a")
    for _ in range(2):
        await stage.drain(handler("h", entering(stage)))
        await stage.rewind()
    event.remove(stage.engine.sync_engine, "after_cursor_execute", listen)
    assert sum("INTO outbox_receipts" in statement for statement in heard) == 2
    assert await stage.journal() == ["a"]
    assert await stage.receipts() == [("a", "h", "done")]


async def test_an_effect_happens_once_though_its_mark_was_lost(stage: Stage) -> None:
    """R6: the relay dies between the handler's commit and the mark."""
    await stage.put("a")
    await stage.drain(handler("h", entering(stage)))
    await stage.rewind()
    await stage.drain(handler("h", entering(stage)))
    assert await stage.journal() == ["a"]
    assert await stage.events() == {"a": "delivered"}
    assert await stage.deliveries() == {}


async def test_a_duplicate_rolls_back_all_of_its_transaction(stage: Stage) -> None:
    """R6: what it changed, and what it emitted."""

    async def act(event: Any) -> None:
        async with stage.uow() as uow:
            uow.repository(Wallet).add(Wallet.open("eve"))
            await uow.commit()

    await stage.put("a")
    await stage.drain(handler("h", act))
    await stage.rewind()
    await stage.drain(handler("h", act))
    assert await stage.events() == {"a": "delivered", "eve": "delivered"}
    assert await stage.witness.fetchval("SELECT count(*) FROM bank_wallets") == 1


async def test_a_duplicate_that_the_handler_swallows_counts_as_success_too(stage: Stage) -> None:
    """R6."""

    async def act(event: Any) -> None:
        try:
            await stage.enter(event.what)
        except AlreadyHandled:
            return

    await stage.put("a")
    for _ in range(2):
        await stage.drain(handler("h", act))
        await stage.rewind()
    assert await stage.journal() == ["a"]


async def test_a_duplicate_that_the_handler_tells_in_its_own_words_counts_as_success_too(
    stage: Stage,
) -> None:
    """R6: or it would fail again and again until it is dead, with its effect done long ago."""

    async def act(event: Any) -> None:
        try:
            await stage.enter(event.what)
        except AlreadyHandled as error:
            raise ValueError("could not book it") from error

    await stage.put("a")
    await stage.drain(handler("h", act))
    await stage.rewind()
    await stage.drain(handler("h", act))
    assert await stage.events() == {"a": "delivered"}
    assert await stage.deliveries() == {}


@pytest.mark.parametrize("atomic", [False, True])
async def test_what_fails_since_its_effect_is_there_already_counts_as_success(
    stage: Stage, caplog: pytest.LogCaptureFixture, atomic: bool
) -> None:
    """R6: it never comes to the commit that the receipt would refuse, and would be dead with its effect done."""
    caplog.set_level(logging.INFO, "outbox.relay")
    booked: set[str] = set()

    async def act(event: Any) -> None:
        if event.what in booked:
            raise ValueError("it is booked already")
        await stage.enter(event.what)
        booked.add(event.what)

    await stage.put("a", "b")
    await stage.drain(handler("h", act, atomic=atomic))
    await stage.rewind()
    await stage.drain(handler("h", act, atomic=atomic))
    assert await stage.events() == {"a": "delivered", "b": "delivered"}
    assert await stage.deliveries() == {}
    told = [each.getMessage() for each in caplog.records if "had its effect" in each.getMessage()]
    assert len(told) == 2
    assert told[0].endswith("which counts as success: ValueError: it is booked already")
    assert not [each for each in caplog.records if each.levelname in ("WARNING", "CRITICAL")]


async def test_what_takes_too_long_since_its_effect_is_there_already_counts_as_success(stage: Stage) -> None:
    """R6, R8: as one that waits for what it has done itself."""

    async def act(event: Any) -> None:
        if event.what in await stage.journal():
            await asyncio.Event().wait()
        await stage.enter(event.what)

    await stage.put("a")
    await stage.drain(handler("h", act, timeout_seconds=0.2))
    await stage.rewind()
    await stage.drain(handler("h", act, timeout_seconds=0.2))
    assert await stage.events() == {"a": "delivered"}


async def test_what_fails_with_no_receipt_of_its_own_has_failed(stage: Stage) -> None:
    """R6: another handler's says nothing of it."""
    await stage.put("a")
    await stage.drain(handler("h", entering(stage)), handler("i", Recorder().fail("a")))
    assert await stage.deliveries() == {("a", "i"): "waiting"}


async def test_a_second_commit_in_one_run_is_dead_at_once_and_names_both_ways_out(stage: Stage) -> None:
    """R6: the first effect stays, and nobody is told that all is well."""

    async def act(event: Any) -> None:
        await stage.enter("first")
        await stage.enter("second")

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert await stage.journal() == ["first"]
    assert await stage.events() == {"a": "dead"}
    assert await stage.receipts() == [("a", "h", "done")]
    delivery = await stage.delivery("a", "h")
    assert (delivery["status"], delivery["attempts"]) == ("dead", 1)
    error = (await stage.status("a"))["error_message"]
    assert error.startswith("SecondCommit: handler 'h' commits a second time")
    assert "atomic=True" in error
    assert "two handlers" in error


async def test_a_second_commit_is_shown_to_who_looks(stage: Stage) -> None:
    """R6, O1: as dead among what failed, with its reason and its receipt in the event's story, and by the doctor."""

    async def act(event: Any) -> None:
        await stage.enter("first")
        await stage.enter("second")

    await stage.put("a")
    await stage.drain(handler("h", act))
    desk, event_id = Desk(stage.witness), (await stage.event("a"))["event_id"]
    (failed,) = (await stories.failed(desk, 10)).failed
    assert (failed.event_id, failed.handler, failed.status) == (event_id, "h", "dead")
    assert "commits a second time" in (failed.error_message or "")
    story = await stories.show(desk, event_id)
    assert [each.status for each in story.deliveries] == ["dead"]
    assert [each.outcome for each in story.receipts] == ["done"]
    found = {each.check: each for each in await examine_work(desk, await overview(desk))}
    assert (found["dead letters"].state, found["dead letters"].detail) == ("warn", "1 delivery is dead")


async def test_what_was_skipped_while_a_run_was_paused_is_not_committed_by_it(stage: Stage) -> None:
    """R6: later events have passed it, so its effect would come after theirs."""

    async def act(event: Any) -> None:
        event_id = (await stage.event("a"))["event_id"]
        await stage.witness.execute(
            "INSERT INTO outbox_receipts (event_id, handler, outcome) VALUES ($1, 'h', 'skipped')", event_id
        )
        async with stage.sessions.begin() as session:
            await session.execute(insert(journal).values(line="late"))

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert await stage.journal() == []
    assert await stage.receipts() == [("a", "h", "skipped")]
    assert await stage.deliveries() == {}


@pytest.mark.parametrize("own_words", [False, True])
async def test_a_second_commit_that_the_handler_swallows_is_dead_too(stage: Stage, own_words: bool) -> None:
    """R6: half of what it is for is missing, whatever it makes of that."""

    async def act(event: Any) -> None:
        await stage.enter("first")
        try:
            await stage.enter("second")
        except SecondCommit as error:
            if own_words:
                raise ValueError("could not book it") from error

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert await stage.journal() == ["first"]
    assert await stage.deliveries() == {("a", "h"): "dead"}
    assert "commits a second time" in (await stage.status("a"))["error_message"]


async def test_what_a_second_commit_left_runs_again_only_when_its_first_effect_may_happen_again(
    stage: Stage,
) -> None:
    """R6: no retry and no replay repeats it in silence, and none forgets the second one."""

    async def act(event: Any) -> None:
        await stage.enter("first")
        if not mended:
            await stage.enter("second")

    mended: list[bool] = []
    await stage.put("a")
    await stage.drain(handler("h", act))
    mended.append(True)
    desk = Desk(stage.witness, now=stage.at(1))
    assert (await replay(desk, "h", event_id=(await stage.event("a"))["event_id"], again=True)).due == 0
    await rewind(desk, "h", 1)
    await stage.drain(handler("h", act), at=1)
    assert await stage.deliveries() == {("a", "h"): "dead"}
    chosen = await choose_for_retry(desk, Selection())
    with pytest.raises(HalfDone):
        await retry(desk, chosen)
    await stage.drain(handler("h", act), at=2)
    assert await stage.journal() == ["first"]
    await retry(desk, chosen, again=True)
    await stage.drain(handler("h", act), at=2)
    assert await stage.journal() == ["first", "first"]
    assert await stage.events() == {"a": "delivered"}


async def test_of_two_commits_at_once_one_is_refused(stage: Stage) -> None:
    """R6: the other's effect must not vanish without a word."""

    async def act(event: Any) -> None:
        await asyncio.gather(stage.enter("one"), stage.enter("other"))

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert len(await stage.journal()) == 1
    assert await stage.deliveries() == {("a", "h"): "dead"}
    assert (await stage.status("a"))["error_message"].startswith("SecondCommit: ")


async def test_of_two_commits_at_once_one_is_refused_though_it_hears_first(stage: Stage) -> None:
    """R6: the server may answer the one that waited before the other has read that its commit is done."""
    refused: list[BaseException] = []

    async def act(event: Any) -> None:
        async with stage.sessions() as session:
            await session.execute(insert(journal).values(line="one"))
            await after_its_commit(session, try_another)
            await session.commit()

    def try_another() -> None:
        try:
            await_only(stage.enter("other"))
        except SecondCommit as error:
            refused.append(error)

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert len(refused) == 1
    assert await stage.journal() == ["one"]
    assert await stage.deliveries() == {("a", "h"): "dead"}


async def test_a_commit_whose_answer_was_lost_counts_though_the_handler_tries_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """R6: its effect has committed, so it is no failure that could make the event dead."""

    async def act(event: Any) -> None:
        with suppress(asyncio.CancelledError):
            async with stage.uow() as uow:
                await uow.session.execute(insert(journal).values(line=event.what))
                await after_its_commit(uow.session, lose_the_answer)
                await uow.commit()
        await stage.enter(event.what)

    def lose_the_answer() -> None:
        raise asyncio.CancelledError

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert await stage.journal() == ["a"]
    assert await stage.events() == {"a": "delivered"}
    assert "after its effect had committed" in caplog.text


@pytest.mark.parametrize("error", [ValueError("late"), asyncio.CancelledError(), SystemExit(3)])
async def test_an_error_after_the_commit_is_kept_and_counts_as_success(
    stage: Stage, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """R6."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)
        raise error

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert await stage.events() == {"a": "delivered"}
    assert (await stage.status("a"))["error_message"] is None
    assert (await stage.delivery("a", "h"))["status"] == "done"
    kept = await stage.witness.fetchval("SELECT error_message FROM outbox_deliveries")
    assert kept == f"{type(error).__name__}: {error}"
    assert "after its effect had committed" in caplog.text


async def test_a_handler_that_rolls_back_has_no_receipt_and_is_tried_again(stage: Stage) -> None:
    """R6."""
    failing = [True]

    async def act(event: Any) -> None:
        async with stage.uow() as uow:
            await uow.session.execute(insert(journal).values(line=event.what))
            if failing.pop() if failing else False:
                raise ValueError("not yet")
            await uow.commit()

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert (await stage.journal(), await stage.receipts()) == ([], [])
    await stage.drain(handler("h", act), at=10)
    assert (await stage.journal(), await stage.receipts()) == (["a"], [("a", "h", "done")])


async def test_a_handler_that_commits_elsewhere_leaves_no_receipt(stage: Stage) -> None:
    """R6: it is delivered at least once."""
    await stage.put("a")
    await stage.drain(handler("h", Recorder()))
    assert await stage.receipts() == []


async def test_a_run_whose_relay_was_replaced_commits_nothing(stage: Stage) -> None:
    """R3, R6: it is nobody's failure, and somebody else's to run."""
    refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def act(event: Any) -> None:
        try:
            await until(lambda: has_looked_everywhere(relay))
            await stage.take_over(at=LEASE_SECONDS + 1)
            await stage.enter(event.what)
        except RunOver as error:
            refused.set_result(str(error))
            raise

    await stage.put("a")
    relay = stage.relay(handler("h", act))
    await relay.run_once()
    assert "the relay has lost its lease" in await refused
    await stage.close()
    assert (await stage.journal(), await stage.receipts()) == ([], [])
    assert await stage.events() == {"a": "pending"}
    assert await stage.deliveries() == {}
    assert await stage.witness.fetchval("SELECT DISTINCT takeovers FROM outbox_cursors") == 1


async def test_a_run_whose_lease_has_run_out_commits_nothing_though_nobody_took_over(stage: Stage) -> None:
    """R3."""

    async def act(event: Any) -> None:
        await until(lambda: has_looked_everywhere(relay))
        await stage.witness.execute("UPDATE outbox_relays SET expires_at = clock_timestamp()")
        await stage.enter(event.what)

    await stage.put("a")
    relay = stage.relay(handler("h", act))
    await relay.run_once()
    assert (await stage.journal(), await stage.receipts()) == ([], [])


@pytest.mark.parametrize("own_words", [False, True])
async def test_a_refusal_that_the_handler_swallows_delivers_nothing(stage: Stage, own_words: bool) -> None:
    """R3, R6: the lease has run out, though nobody took over, and the event is still this relay's to mark."""
    runs: list[str] = []

    async def act(event: Any) -> None:
        runs.append(event.what)
        if len(runs) == 1:
            await until(lambda: has_looked_everywhere(relay))
            await stage.witness.execute("UPDATE outbox_relays SET expires_at = clock_timestamp()")
        try:
            await stage.enter(event.what)
        except RunOver as error:
            if own_words:
                raise ValueError("could not book it") from error

    await stage.put("a")
    relay = stage.relay(handler("h", act))
    await relay.run_once()
    await stage.close()
    row = await stage.status("a")
    assert (row["status"] in ("pending", "open"), row["retry_count"]) == (True, 0)
    await stage.drain(handler("h", act))
    assert await stage.journal() == ["a"]
    assert await stage.events() == {"a": "delivered"}


async def test_a_transaction_whose_snapshot_is_older_than_the_lease_is_a_failure_in_a_sentence(
    stage: Stage,
) -> None:
    """R3, R6: it cannot see that the lease was renewed; to give it back uncharged would be for ever."""

    async def act(event: Any) -> None:
        await until(lambda: has_looked_everywhere(relay))
        await stage.witness.execute(
            "UPDATE outbox_relays SET expires_at = clock_timestamp() + interval '0.05 s'"
        )
        async with stage.uow() as uow:
            _ = await uow.session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            await uow.session.execute(insert(journal).values(line=event.what))
            await stage.witness.execute("UPDATE outbox_relays SET expires_at = 'infinity'")
            await uow.session.execute(text("SELECT pg_sleep(0.1)"))
            await uow.commit()

    await stage.put("a")
    relay = stage.relay(handler("h", act))
    await relay.run_once()
    delivery = await stage.delivery("a", "h")
    assert (delivery["status"], delivery["attempts"]) == ("waiting", 1)
    assert "isolation" in (await stage.status("a"))["error_message"]
    assert (await stage.journal(), await stage.receipts()) == ([], [])


async def test_a_task_left_behind_by_a_handler_commits_nothing_after_its_run(stage: Stage) -> None:
    """R3, R6: its run is over, and the next may be under way."""
    left: list[asyncio.Task[None]] = []
    go = asyncio.Event()

    async def later() -> None:
        await go.wait()
        await stage.enter("later")

    async def act(event: Any) -> None:
        left.append(asyncio.create_task(later()))

    await stage.put("a", of=uuid4())
    await stage.drain(handler("h", act))
    go.set()
    with pytest.raises(RunOver):
        await left[0]
    assert await stage.journal() == []


async def test_what_a_second_commit_left_runs_again_when_all_since_may_have_its_effect_again(
    stage: Stage,
) -> None:
    """R6, R17."""

    async def act(event: Any) -> None:
        await stage.enter("first")
        if not mended:
            await stage.enter("second")

    mended: list[bool] = []
    await stage.put("a")
    await stage.drain(handler("h", act))
    mended.append(True)
    await rewind(Desk(stage.witness, now=stage.at(1)), "h", 1, again=True)
    await stage.drain(handler("h", act), at=1)
    assert await stage.journal() == ["first", "first"]
    assert await stage.deliveries() == {}


async def test_what_a_failed_run_has_left_in_another_task_commits_no_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6: with the receipt of what failed, which the next run would meet, and have no effect."""
    handled, go, others = Handling.handled, asyncio.Event(), list[asyncio.Task[None]]()

    async def asked(self: Handling, run: Run) -> set[UUID]:
        found = await handled(self, run)
        go.set()
        await asyncio.wait(others)
        return found

    async def late() -> None:
        await go.wait()
        await stage.enter("late")

    async def act(_: Any) -> None:
        if others:
            await stage.enter("in time")
            return
        others.append(asyncio.create_task(late()))
        raise ValueError("not today")

    monkeypatch.setattr(Handling, "handled", asked)
    await stage.put("a")
    await stage.drain(handler("h", act))
    assert isinstance(others[0].exception(), RunOver)
    await stage.drain(handler("h", act), at=1000)
    assert await stage.journal() == ["in time"]


async def test_what_a_failed_run_commits_meanwhile_is_its_effect(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R6: it was under way as the handler failed, and counts as if it had been before."""
    committed, others = asyncio.Event(), list[asyncio.Task[None]]()
    handled, take = Handling.handled, HandlerRun._take_receipt  # noqa: SLF001 - where its commit begins

    async def asked(self: Handling, run: Run) -> set[UUID]:
        found = await handled(self, run)
        await asyncio.wait(others)
        return found

    def taken(self: HandlerRun, *given: Any, **options: Any) -> bool:
        found = take(self, *given, **options)
        committed.set()
        return found

    async def act(_: Any) -> None:
        others.append(asyncio.create_task(stage.enter("in time")))
        await committed.wait()
        raise ValueError("not today")

    monkeypatch.setattr(Handling, "handled", asked)
    monkeypatch.setattr(HandlerRun, "_take_receipt", taken)
    await stage.put("a")
    await stage.drain(handler("h", act))
    assert (await stage.journal(), await stage.events()) == (["in time"], {"a": "delivered"})
    assert "after its effect had committed" in caplog.text
