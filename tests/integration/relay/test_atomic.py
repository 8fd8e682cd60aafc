"""With atomic=True all that a run does is one transaction: there when it returns, gone when it raises (R6)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast
from uuid import uuid4

import asyncpg
import attrs
import pytest
from sqlalchemy import column, create_engine, func, insert, select, text, update
from sqlalchemy.event import listen
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker
from sqlalchemy.util import await_only

from outbox_kernel.infrastructure.errors import NotOneTransaction
from outbox_kernel.infrastructure.in_process import InProcessEventDispatcher
from outbox_kernel.infrastructure.outbox import atomic as atomic_module
from outbox_kernel.infrastructure.outbox import capture, install_capture
from outbox_kernel.infrastructure.outbox.receipts import current_run
from outbox_kernel.infrastructure.outbox.room import room_in
from outbox_kernel.kernel.catalogue import isolated_definitions
from outbox_kernel.kernel.errors import SecondCommit
from outbox_kernel.kernel.handlers import HandlerRegistration, handles
from tests.bank import Bank, engine_of
from tests.domain import Noted, Wallet, journal, wallets
from tests.relaying import Stage, handler
from tests.serving import has_looked_everywhere
from tests.waiting import DEADLINE_SECONDS, until


def line(what: str) -> Any:
    return insert(journal).values(line=what)


def atomic(act: Any, **options: Any) -> HandlerRegistration:
    return handler("h", act, atomic=True, **options)


async def make_due_again(stage: Stage) -> None:
    """As after a crash between the commit and the mark."""
    await stage.rewind()


async def error_of(stage: Stage) -> str:
    return str((await stage.status("a"))["error_message"])


async def in_three(stage: Stage) -> None:
    """A unit of work with an aggregate, another one, and a session."""
    async with stage.uow() as uow:
        uow.repository(Wallet).add(Wallet.open("eve"))
        await uow.commit()
    await stage.enter("second")
    async with stage.sessions.begin() as session:
        await session.execute(line("third"))


async def test_all_commits_of_a_run_are_one_with_its_receipt(stage: Stage) -> None:
    """R6: nothing of it is there before the handler returns, all of it afterwards, and once."""
    seen: list[Any] = []

    async def act(event: Any) -> None:
        await in_three(stage)
        seen.append((await stage.journal(), await stage.receipts(), list(await stage.events())))

    await stage.put("a")
    await stage.drain(atomic(act))
    assert seen == [([], [], ["a"])]
    for _ in range(2):
        assert await stage.journal() == ["second", "third"]
        assert await stage.receipts() == [("a", "h", "done")]
        assert await stage.events() == {"a": "delivered", "eve": "delivered"}
        await make_due_again(stage)
        await stage.drain(atomic(act))
    assert await stage.deliveries() == {}


async def test_a_run_that_raises_leaves_nothing_and_is_tried_again_as_a_whole(stage: Stage) -> None:
    """R6."""
    failing = [True]

    async def act(event: Any) -> None:
        await in_three(stage)
        if failing:
            raise ValueError(failing.pop())

    await stage.put("a")
    await stage.drain(atomic(act))
    assert (await stage.journal(), await stage.receipts()) == ([], [])
    assert await stage.deliveries() == {("a", "h"): "waiting"}
    await stage.drain(atomic(act), at=10)
    assert await stage.journal() == ["second", "third"]
    assert await stage.receipts() == [("a", "h", "done")]


async def test_sessions_over_async_psycopg_are_one_transaction_too(stage: Stage) -> None:
    """R6, C9."""
    engine = create_async_engine(stage.engine.url.set(drivername="postgresql+psycopg"))
    sessions = install_capture(async_sessionmaker(engine))
    seen: list[str] = []

    async def act(event: Any) -> None:
        for what in ("first", "second"):
            async with sessions.begin() as session:
                await session.execute(line(what))
        async with sessions() as session:
            await session.execute(line("never"))
        seen.extend(await stage.journal())

    await stage.put("a")
    await stage.drain(atomic(act))
    assert seen == []
    assert await stage.journal() == ["first", "second"]
    assert await stage.receipts() == [("a", "h", "done")]
    await engine.dispose()


async def test_what_one_session_commits_the_next_one_reads(stage: Stage) -> None:
    """R6: they are in one transaction."""
    seen: list[Any] = []

    async def act(event: Any) -> None:
        await stage.enter("first")
        async with stage.sessions() as session:
            seen.extend(await session.scalars(select(journal)))

    await stage.put("a")
    await stage.drain(atomic(act))
    assert seen == ["first"]


async def test_a_unit_of_work_that_is_left_takes_back_its_own_alone(stage: Stage) -> None:
    """R6: what the handler bears, the rest of its transaction does."""

    async def act(event: Any) -> None:
        await stage.enter("first")
        with suppress(ValueError):
            async with stage.uow() as uow:
                await uow.session.execute(line("never"))
                raise ValueError
        async with stage.uow() as uow:
            await uow.session.execute(line("never, either"))
        await stage.enter("last")

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == ["first", "last"]
    assert await stage.receipts() == [("a", "h", "done")]


async def test_a_statement_that_fails_breaks_its_own_session_alone(stage: Stage) -> None:
    """R6."""

    async def act(event: Any) -> None:
        await stage.enter("first")
        async with stage.sessions() as session:
            row = {"id": uuid4(), "owner": "eve", "balance": 0, "version": 1, "revision": 1}
            with pytest.raises(IntegrityError):
                await session.execute(insert(wallets), [{**row, "owner": None}])
            await session.rollback()
            await session.execute(line("second"))
            await session.commit()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == ["first", "second"]


async def test_a_savepoint_of_a_session_can_be_undone(stage: Stage) -> None:
    """R6."""

    async def act(event: Any) -> None:
        async with stage.sessions() as session:
            await session.execute(line("first"))
            with suppress(ValueError):
                async with session.begin_nested():
                    await session.execute(line("never"))
                    raise ValueError
            async with session.begin_nested():
                await session.execute(line("second"))
            await session.commit()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == ["first", "second"]


async def test_an_injected_session_and_a_unit_of_work_are_one_transaction(stage: Stage) -> None:
    """R6: the one is open while the other commits."""

    @attrs.frozen
    class Booking:
        session: AsyncSession

        async def handle(self, event: Noted) -> None:
            assert (await self.session.scalars(select(journal))).all() == []
            await stage.enter("by the unit of work")
            await self.session.execute(line("by the session"))
            await self.session.commit()

    await stage.put("a")
    await stage.drain(HandlerRegistration("h", Booking, (Noted,), atomic=True))
    assert await stage.journal() == ["by the session", "by the unit of work"]
    assert await stage.receipts() == [("a", "h", "done")]


async def test_a_session_that_only_reads_may_be_open_while_others_write(stage: Stage) -> None:
    """R6: its end, and its rollback, take nothing along."""

    async def act(event: Any) -> None:
        async with stage.sessions() as reader, stage.sessions() as other:
            await reader.scalars(select(journal))
            await other.scalars(select(journal))
            await stage.enter("kept")
            await reader.rollback()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == ["kept"]


@pytest.mark.parametrize("outer_writes", [False, True])
async def test_a_unit_of_work_inside_another_takes_back_its_own_alone(
    stage: Stage, outer_writes: bool
) -> None:
    """R6: the outer one has sent nothing since the inner one began."""

    async def act(event: Any) -> None:
        async with stage.uow() as outer:
            await outer.session.scalars(select(journal))
            if outer_writes:
                await outer.session.execute(line("outer"))
            with suppress(ValueError):
                async with stage.uow() as inner:
                    await inner.session.execute(line("never"))
                    raise ValueError
            await stage.enter("inner")
            await outer.commit()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == (["inner", "outer"] if outer_writes else ["inner"])
    assert await stage.deliveries() == {}


async def test_what_a_session_writes_in_its_savepoint_is_not_taken_along_in_silence(stage: Stage) -> None:
    """R6: by the rollback of one that has begun meanwhile."""

    async def act(event: Any) -> None:
        async with stage.sessions() as outer, stage.sessions() as inner:
            async with outer.begin_nested():
                await outer.execute(line("outer"))
                await inner.execute(line("never"))
                await outer.execute(line("outer, once more"))
                await inner.rollback()
            await outer.commit()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == []
    assert "NotOneTransaction" in await error_of(stage)


async def test_what_a_session_flushes_in_its_savepoint_is_not_taken_along_in_silence(stage: Stage) -> None:
    """R6."""

    async def act(event: Any) -> None:
        async with stage.sessions() as outer, stage.sessions() as inner:
            await outer.scalars(select(journal))
            await inner.execute(line("never"))
            async with outer.begin_nested():
                outer.add(Wallet.open("eve"))
                await outer.flush()
                await inner.rollback()
            await outer.commit()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert list(await stage.events()) == ["a"]
    assert "NotOneTransaction" in await error_of(stage)


@pytest.mark.parametrize("writes_on", [False, True])
async def test_a_rollback_beside_a_task_that_writes_takes_nothing_of_it_along(
    stage: Stage, writes_on: bool
) -> None:
    """R6: what that one has written since is not lost in silence, and what it has written before stays."""

    async def act(event: Any) -> None:
        begun, undone = asyncio.Event(), asyncio.Event()

        async def writes() -> None:
            async with stage.sessions() as session:
                await session.execute(line("beside"))
                begun.set()
                await undone.wait()
                await session.commit()

        async def rolls_back() -> None:
            await begun.wait()
            async with stage.sessions() as session:
                await session.execute(line("never"))
                if writes_on:
                    await stage.enter("in between")
                await session.rollback()
            undone.set()

        await asyncio.gather(writes(), rolls_back())

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == ([] if writes_on else ["beside"])
    assert ("NotOneTransaction" in await error_of(stage)) == writes_on


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_rollback_that_would_take_others_along_breaks_the_run(stage: Stage, swallows: bool) -> None:
    """R6: with a sentence, and with nothing of it committed, whatever the handler makes of that."""

    async def act(event: Any) -> None:
        async with stage.sessions() as outer:
            await outer.execute(line("taken back"))
            await stage.enter("would go with it")
            await outer.rollback()
        with suppress(*((Exception,) if swallows else ())):
            await stage.enter("afterwards")

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == []
    assert await stage.receipts() == []
    assert await stage.deliveries() == {("a", "h"): "waiting"}
    assert (await error_of(stage)).startswith("NotOneTransaction: handler 'h' is atomic, and one of its")


async def test_a_savepoint_whose_rollback_would_take_others_along_breaks_the_run(stage: Stage) -> None:
    """R6."""

    async def act(event: Any) -> None:
        async with stage.sessions() as outer:
            await outer.execute(line("first"))
            with suppress(ValueError):
                async with outer.begin_nested():
                    await outer.execute(line("taken back"))
                    await stage.enter("would go with it")
                    raise ValueError
            await outer.commit()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == []
    assert "NotOneTransaction" in await error_of(stage)


async def test_a_savepoint_that_has_written_nothing_takes_nothing_along(stage: Stage) -> None:
    """R6."""

    async def act(event: Any) -> None:
        async with stage.sessions() as outer:
            await outer.execute(line("first"))
            with suppress(ValueError):
                async with outer.begin_nested():
                    await outer.scalars(select(journal))
                    await stage.enter("second")
                    raise ValueError
            await outer.commit()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == ["first", "second"]


async def by_connection(session: AsyncSession) -> None:
    await (await session.connection()).execute(line("x"))


async def by_sync(session: AsyncSession) -> None:
    await session.run_sync(lambda sync: sync.connection().execute(line("x")))


async def by_cte(session: AsyncSession) -> None:
    await session.execute(select(line("x").returning(journal.c.line).cte()))


async def by_function(session: AsyncSession) -> None:
    await session.execute(select(func.write_line("x")))


async def by_driver_sql(session: AsyncSession) -> None:
    await (await session.connection()).exec_driver_sql("INSERT INTO bank_journal VALUES ('x')")


HIDDEN_WRITES = [by_connection, by_sync, by_cte, by_function, by_driver_sql]
WRITE_LINE = """
CREATE OR REPLACE FUNCTION write_line(what text) RETURNS int LANGUAGE sql
AS $$ INSERT INTO bank_journal VALUES (what); SELECT 1 $$
"""


@pytest.mark.parametrize("way", HIDDEN_WRITES)
@pytest.mark.parametrize("end", ["rollback", "close", "commit"])
async def test_a_session_that_only_reads_takes_nothing_along_however_it_was_written(
    stage: Stage, way: Any, end: str
) -> None:
    """R6: what another one has committed inside it is there with the receipt."""
    await stage.witness.execute(WRITE_LINE)

    async def act(event: Any) -> None:
        async with stage.sessions() as reader:
            await reader.execute(select(func.count()).select_from(journal))
            async with stage.sessions() as writer:
                await way(writer)
                await writer.commit()
            await getattr(reader, end)()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == ["x"]
    assert await stage.receipts() == [("a", "h", "done")]


@pytest.mark.parametrize("way", HIDDEN_WRITES)
async def test_what_was_written_in_whatever_way_is_undone_with_its_session(stage: Stage, way: Any) -> None:
    """R6."""
    await stage.witness.execute(WRITE_LINE)

    async def act(event: Any) -> None:
        await stage.enter("kept")
        async with stage.sessions() as session:
            await way(session)
            await session.rollback()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == ["kept"]


@pytest.mark.parametrize("way", HIDDEN_WRITES)
async def test_a_rollback_takes_nothing_along_however_that_was_written(stage: Stage, way: Any) -> None:
    """R6: without a word, at least."""
    await stage.witness.execute(WRITE_LINE)

    async def act(event: Any) -> None:
        async with stage.sessions() as outer:
            await outer.execute(line("taken back"))
            async with stage.sessions() as inner:
                await way(inner)
                await inner.commit()
            await outer.rollback()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert (await stage.journal(), await stage.receipts()) == ([], [])
    assert "NotOneTransaction" in await error_of(stage)


@pytest.mark.parametrize("before", [False, True])
async def test_a_connection_that_is_kept_writes_for_its_session(stage: Stage, before: bool) -> None:
    """R6: while another one is open, and after its own has ended."""

    async def act(event: Any) -> None:
        async with stage.sessions() as kept:
            connection = await kept.connection()
            await kept.scalars(select(journal))
            if before:
                await kept.commit()
            async with stage.sessions() as other:
                await other.execute(line("never"))
                await connection.execute(line("kept"))
                await other.rollback()
            await kept.commit()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert (await stage.journal(), await stage.receipts()) == ([], [])
    assert "NotOneTransaction" in await error_of(stage)


async def test_a_session_that_only_reads_lets_go_of_no_row_that_another_has_locked(stage: Stage) -> None:
    """R6: a stranger who would change it waits until the handler has returned."""
    bank = Bank.on(stage.engine)
    wallet = await bank.open_wallet("eve")
    nowait = "SELECT FROM bank_wallets WHERE id = $1 FOR UPDATE NOWAIT"

    async def act(event: Any) -> None:
        reader, writer = stage.sessions(), stage.sessions()
        await reader.scalars(select(journal))
        balance: Any = await writer.scalar(
            select(wallets.c.balance).where(wallets.c.id == wallet).with_for_update()
        )
        await reader.close()
        with pytest.raises(asyncpg.LockNotAvailableError):
            await stage.witness.execute(nowait, wallet)
        await writer.execute(update(wallets).where(wallets.c.id == wallet).values(balance=balance + 1))
        await writer.commit()
        await writer.close()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.witness.fetchval("SELECT balance FROM bank_wallets WHERE id = $1", wallet) == 1
    assert await stage.deliveries() == {}


@pytest.mark.parametrize("outer_writes", [False, True])
@pytest.mark.parametrize("nests", [False, True])
async def test_a_session_is_not_harmed_by_the_end_of_one_that_is_older(
    stage: Stage, outer_writes: bool, nests: bool
) -> None:
    """R6: its savepoints are there when it needs them, whatever a rollback has taken along."""

    async def act(event: Any) -> None:
        async with stage.sessions() as older, stage.sessions() as younger:
            await older.scalars(select(journal))
            if outer_writes:
                await older.execute(line("never"))
            await younger.scalars(select(journal))
            nested = await younger.begin_nested() if nests else None
            await younger.scalars(select(journal))
            await older.rollback()
            await younger.execute(line("never, either"))
            if nested is not None:
                await nested.rollback()
                await younger.execute(line("nor that"))
            await younger.rollback()
            await younger.execute(line("kept"))
            await younger.commit()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == ["kept"]
    assert await stage.deliveries() == {}


async def test_a_statement_that_fails_in_a_session_that_only_reads_is_borne(stage: Stage) -> None:
    """R6."""

    async def act(event: Any) -> None:
        await stage.enter("first")
        async with stage.sessions() as session:
            with pytest.raises(DBAPIError):
                await session.execute(select(column("missing")).select_from(journal))
            await session.rollback()
        await stage.enter("second")

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == ["first", "second"]


async def test_a_failure_that_nobody_takes_back_commits_nothing(stage: Stage) -> None:
    """R6: the server would answer the commit with a rollback, and say so to nobody."""

    async def act(event: Any) -> None:
        await stage.enter("first")
        async with stage.sessions() as session:
            with suppress(DBAPIError):
                await session.execute(select(column("missing")).select_from(journal))
            await session.commit()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == []
    assert "current transaction is aborted" in await error_of(stage)


async def test_a_long_run_holds_no_savepoint_for_what_has_ended(stage: Stage) -> None:
    """R6: neither here nor at the server."""
    left: list[int] = []

    async def act(event: Any) -> None:
        for number in range(50):
            await stage.enter(f"{number:02}")
            with suppress(ValueError):
                async with stage.uow() as uow:
                    await uow.session.execute(line("never"))
                    raise ValueError
        run: Any = current_run()
        left.append(len(run.whole.savepoints._stack))  # noqa: SLF001 - nobody else can say

    await stage.put("a")
    await stage.drain(atomic(act))
    assert left == [0]
    assert len(await stage.journal()) == 50


async def test_what_the_handler_raises_is_told_rather_than_what_that_broke(stage: Stage) -> None:
    """R6."""

    async def act(event: Any) -> None:
        async with stage.sessions() as outer:
            await outer.execute(line("outer"))
            await stage.enter("inner")
            raise ValueError("the reason")

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == []
    assert await error_of(stage) == "ValueError: the reason"


async def test_what_a_session_left_open_has_written_is_not_committed(stage: Stage) -> None:
    """R6: nobody has committed it."""
    left: list[AsyncSession] = []

    async def act(event: Any) -> None:
        await stage.enter("kept")
        session = stage.sessions()
        left.append(session)
        await session.execute(line("never"))

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == ["kept"]
    await left[0].close()
    pool: Any = stage.engine.pool
    assert pool.checkedout() == 0


async def test_a_session_used_after_the_run_is_refused(stage: Stage) -> None:
    """R3, R6."""
    left: list[AsyncSession] = []

    async def act(event: Any) -> None:
        left.append(stage.sessions())
        await left[0].execute(line("never"))

    await stage.put("a")
    await stage.drain(atomic(act))
    with pytest.raises(Exception, match="is used after it has ended"):
        await left[0].execute(line("late"))
    await left[0].close()
    assert await stage.journal() == []


async def test_sessions_at_work_at_once_are_one_transaction(stage: Stage) -> None:
    """R6: their statements take turns."""

    async def act(event: Any) -> None:
        await asyncio.gather(*(stage.enter(str(number)) for number in range(5)))

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == ["0", "1", "2", "3", "4"]
    assert await stage.receipts() == [("a", "h", "done")]


async def test_a_duplicate_rolls_back_all_of_the_run(stage: Stage) -> None:
    """R6: two runs of it at once meet at the receipt."""

    async def act(event: Any) -> None:
        await stage.enter("first")
        await stage.enter("second")

    await stage.put("a")
    event_id = (await stage.event("a"))["event_id"]
    await stage.witness.execute("INSERT INTO outbox_receipts (event_id, handler) VALUES ($1, 'h')", event_id)
    await stage.drain(atomic(act))
    assert await stage.journal() == []
    assert await stage.events() == {"a": "delivered"}
    assert await stage.deliveries() == {}


async def test_a_run_that_only_read_leaves_no_receipt(stage: Stage) -> None:
    """R6."""

    async def act(event: Any) -> None:
        async with stage.sessions() as session:
            await session.scalars(select(journal))
            await session.commit()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.receipts() == []
    assert await stage.events() == {"a": "delivered"}


async def test_a_run_whose_lease_has_run_out_commits_nothing(stage: Stage) -> None:
    """R3, R6."""

    async def act(event: Any) -> None:
        await stage.enter("never")
        await until(lambda: has_looked_everywhere(relay))
        await stage.witness.execute("UPDATE outbox_relays SET expires_at = clock_timestamp()")

    await stage.put("a")
    relay = stage.relay(atomic(act))
    await relay.run_once()
    assert (await stage.journal(), await stage.receipts()) == ([], [])


async def test_a_run_that_is_cancelled_gives_its_connection_back(stage: Stage) -> None:
    """R6, R8: in the middle of a statement."""

    async def act(event: Any) -> None:
        await stage.enter("never")
        async with stage.sessions() as session:
            await session.execute(text("SELECT pg_sleep(60)"))

    await stage.put("a")
    await stage.drain(atomic(act, timeout_seconds=0.2))
    assert await stage.journal() == []
    assert "TimeoutError" in await error_of(stage)
    pool: Any = stage.engine.pool
    assert pool.checkedout() == 0


async def test_a_session_of_a_thread_is_refused_with_a_sentence(stage: Stage) -> None:
    """R6: it cannot share the transaction, so it would commit alone."""
    engine = create_engine(stage.engine.url.set(drivername="postgresql+psycopg"))
    sessions = install_capture(sessionmaker(engine))

    def enter() -> None:
        with sessions.begin() as session:
            session.execute(line("alone"))

    async def act(event: Any) -> None:
        await asyncio.to_thread(enter)

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == []
    assert "atomic, and commits through a session that is no part of its one transaction" in await error_of(
        stage
    )
    engine.dispose()


async def test_another_engine_of_the_outbox_is_refused_with_a_sentence(stage: Stage) -> None:
    """R6: one connection cannot be of two engines, which may differ in what they see."""
    other = engine_of(stage.engine.url.render_as_string(hide_password=False))

    async def act(event: Any) -> None:
        await stage.enter("one")
        async with Bank.on(other).session() as session:
            await session.execute(line("other"))

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == []
    assert "they ask for different engines or options of it" in await error_of(stage)
    await other.dispose()


async def test_what_is_committed_in_another_database_is_there_at_once(stage: Stage, elsewhere: Bank) -> None:
    """R6: it is no part of the one transaction, and at least once."""

    async def act(event: Any) -> None:
        await stage.enter("here")
        for what in ("there", "there too"):
            async with elsewhere.session() as session:
                await session.execute(line(what))
                await session.commit()
        raise ValueError

    await stage.put("a")
    await stage.drain(atomic(act))
    assert await stage.journal() == []
    assert await elsewhere.journal() == ["there", "there too"]


async def test_a_session_begun_before_the_run_is_refused_with_a_sentence(stage: Stage) -> None:
    """R6: it has a transaction of its own already."""

    async def act(event: Any) -> None:
        await before.execute(line("alone"))
        await before.commit()

    async with stage.sessions() as before:
        await before.execute(select(journal))
        await stage.put("a")
        await stage.drain(atomic(act))
    assert await stage.journal() == []
    assert "begun before the handler was" in await error_of(stage)


async def test_a_first_session_may_choose_the_isolation_level(stage: Stage) -> None:
    """R6: and the others share it."""
    levels: list[str] = []

    async def act(event: Any) -> None:
        for _ in range(2):
            async with stage.sessions() as session:
                _ = await session.connection(execution_options={"isolation_level": "SERIALIZABLE"})
                levels.append(str(await session.scalar(text("SHOW transaction_isolation"))))
                await session.commit()

    await stage.put("a")
    await stage.drain(atomic(act))
    assert levels == ["serializable", "serializable"]
    assert await stage.deliveries() == {}


async def test_relays_hear_of_its_events_when_they_are_there(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6, R10: and not of an inner commit, which nobody can see yet."""
    heard: list[str] = []
    inside: list[int] = []
    for module in (atomic_module, capture):
        monkeypatch.setattr(module, "wake_relays", lambda _, channel: heard.append(channel))

    async def act(event: Any) -> None:
        async with stage.uow() as uow:
            uow.repository(Wallet).add(Wallet.open("eve"))
            await uow.commit()
        inside.append(len(heard))

    await stage.put("a")
    await stage.relay(atomic(act)).run_once()
    assert (inside, heard) == ([0], ["outbox_channel"])


async def test_an_aggregate_changed_by_two_units_of_work_is_committed_whole(stage: Stage) -> None:
    """C1, R6: its events are numbered on."""
    wallet = Wallet.open("ada")
    async with stage.uow() as uow:
        uow.repository(Wallet).add(wallet)
        await uow.commit()

    async def act(event: Any) -> None:
        for amount in (1, 2):
            async with stage.uow() as uow:
                found = await uow.repository(Wallet).get(wallet.id)
                assert found is not None
                found.pay(amount)
                await uow.commit()

    await stage.put("a")
    await stage.drain(atomic(act))
    rows = await stage.witness.fetch(
        "SELECT aggregate_version FROM outbox_events WHERE aggregate_id = $1 ORDER BY position", wallet.id
    )
    assert [row[0] for row in rows] == [1, 2, 3]
    assert await stage.witness.fetchval("SELECT balance FROM bank_wallets") == 3


async def test_no_second_commit_is_refused_in_an_atomic_run(stage: Stage) -> None:
    """R6."""
    refused: list[SecondCommit] = []

    async def act(event: Any) -> None:
        try:
            for number in range(3):
                await stage.enter(str(number))
        except SecondCommit as error:
            refused.append(error)

    await stage.put("a")
    await stage.drain(atomic(act))
    assert refused == []
    assert await stage.journal() == ["0", "1", "2"]


@pytest.mark.parametrize("fails", [False, True])
async def test_an_atomic_handler_is_so_in_process_too(stage: Stage, fails: bool) -> None:
    """K6, R6: without a receipt, since no relay runs it."""

    async def enter(event: Noted) -> None:
        await stage.enter("first")
        await stage.enter("second")
        seen.extend(await stage.journal())
        if fails:
            raise ValueError

    seen: list[str] = []
    with isolated_definitions():
        handles(Noted, name="bank.enter", atomic=True)(enter)
        dispatcher = InProcessEventDispatcher(stage.container)
        await dispatcher.dispatch([Noted("a")])
    assert seen == []
    assert await stage.journal() == ([] if fails else ["first", "second"])
    assert (dispatcher.handled, dispatcher.failed) == ((0, 1) if fails else (1, 0))
    assert await stage.witness.fetchval("SELECT count(*) FROM outbox_receipts") == 0


async def test_a_run_may_be_idle_for_as_long_as_it_may_take(stage: Stage) -> None:
    """R6: however soon its engine would have the server end an idle transaction."""
    url = stage.engine.url
    engine = create_async_engine(
        url, connect_args={"server_settings": {"idle_in_transaction_session_timeout": "15s"}}
    )
    sessions = install_capture(async_sessionmaker(engine))
    seen: list[Any] = []

    async def act(event: Any) -> None:
        async with sessions() as session:
            seen.append(await session.scalar(text("SHOW idle_in_transaction_session_timeout")))

    await stage.put("a")
    await stage.drain(atomic(act, timeout_seconds=50))
    assert seen == ["1min"]
    async with engine.connect() as connection:
        assert await connection.scalar(text("SHOW idle_in_transaction_session_timeout")) == "15s"
    await engine.dispose()


async def test_an_atomic_handler_in_process_may_write_another_database_too(
    stage: Stage, elsewhere: Bank
) -> None:
    """K6, R6: the one transaction is where it begins."""

    async def enter(event: Noted) -> None:
        await stage.enter("here")
        async with elsewhere.sessions.begin() as session:
            await session.execute(line("there"))
        await stage.enter("here, too")

    with isolated_definitions():
        handles(Noted, name="bank.enter", atomic=True)(enter)
        dispatcher = InProcessEventDispatcher(stage.container)
        await dispatcher.dispatch([Noted("a")])
    assert (dispatcher.handled, dispatcher.failed) == (1, 0)
    assert await stage.journal() == ["here", "here, too"]
    assert await elsewhere.journal() == ["there"]


async def test_atomic_runs_wait_for_room_in_the_pool_and_are_not_charged_for_it(stage: Stage) -> None:
    """R6, R8: with more of them due at once than there are connections, and all in all longer than one may take."""
    engine = create_async_engine(stage.engine.url, pool_size=2, max_overflow=0, pool_timeout=0.1)
    sessions = install_capture(async_sessionmaker(engine))
    at_work: list[int] = []
    inside = 0

    async def act(event: Any) -> None:
        nonlocal inside
        async with sessions.begin() as session:
            await session.execute(line(event.what))
            inside += 1
            at_work.append(inside)
            await session.execute(text("SELECT pg_sleep(0.2)"))
            inside -= 1

    slow = atomic(act, timeout_seconds=1.0, ordered=False)
    await stage.put("0")
    await stage.drain(slow)  # after which it is known where the engine leads
    await stage.put(*map(str, range(1, 8)))
    await stage.drain(slow)
    assert await stage.journal() == [str(number) for number in range(8)]
    assert set(at_work) == {1}
    assert set((await stage.deliveries()).values()) <= {"done"}
    await engine.dispose()


async def test_a_run_whose_connection_is_gone_leaves_its_room_to_the_next(stage: Stage) -> None:
    """R6, R12: and what the handler raises is told, not what its rollback meets."""
    engine = create_async_engine(stage.engine.url, pool_size=2, max_overflow=0, pool_timeout=0.1)
    sessions = install_capture(async_sessionmaker(engine))

    async def act(event: Any) -> None:
        async with sessions.begin() as session:
            await session.execute(line(event.what))
            backend = await session.scalar(text("SELECT pg_backend_pid()"))
        if event.what == "a":
            await stage.witness.execute("SELECT pg_terminate_backend($1, 10000)", backend)
            raise ValueError("the reason")

    async with asyncio.timeout(DEADLINE_SECONDS):
        for what in ("a", "b"):
            await stage.put(what)
            await stage.drain(atomic(act))
    assert await stage.journal() == ["b"]
    assert await error_of(stage) == "ValueError: the reason"
    assert cast("Any", engine.pool).checkedout() == 0
    await engine.dispose()


def narrow(stage: Stage, driver: str = "asyncpg") -> AsyncEngine:
    """An engine in whose pool there is room for one atomic run."""
    url = stage.engine.url.set(drivername=f"postgresql+{driver}")
    return create_async_engine(url, pool_size=2, max_overflow=0, pool_timeout=0.1)


def is_all_given_back(engine: AsyncEngine) -> bool:
    pool: Any = engine.pool
    room = room_in(pool)
    return room is not None and not room.locked() and pool.checkedout() == 0


async def is_waited_for(stage: Stage) -> bool:
    """Whether a statement waits for a lock of the witness."""
    return bool(
        await stage.witness.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
        )
    )


async def wait_for_the_witness(sessions: Any) -> None:
    async with sessions.begin() as session:
        await session.execute(text("SELECT pg_advisory_xact_lock(6)"))
        await session.execute(line("never"))


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_what_a_run_has_left_at_work_spoils_its_connection_for_nobody_else(
    stage: Stage, driver: str
) -> None:
    """R6, R12: asyncpg sends no rollback past a statement that is under way, and psycopg's waits for its end."""
    engine, raised = narrow(stage, driver), asyncio.Event()
    sessions = install_capture(async_sessionmaker(engine))
    left: list[asyncio.Task[None]] = []

    async def act(event: Any) -> None:
        async with sessions.begin() as session:
            await session.execute(line(event.what))
        if event.what == "a":
            left.append(asyncio.create_task(wait_for_the_witness(sessions)))
            await until(lambda: is_waited_for(stage))
            raised.set()
            raise ValueError("the reason")

    await stage.witness.execute("SELECT pg_advisory_lock(6)")
    await stage.put("a")
    draining = asyncio.create_task(stage.drain(atomic(act)))
    await raised.wait()
    if driver == "asyncpg":
        await draining
    await stage.witness.execute("SELECT pg_advisory_unlock(6)")
    await draining
    [ended] = await asyncio.gather(*left, return_exceptions=True)
    assert isinstance(ended, DBAPIError if driver == "asyncpg" else NotOneTransaction)
    await stage.put("b")
    await stage.drain(atomic(act))
    assert await stage.journal() == ["b"]
    assert await error_of(stage) == "ValueError: the reason"
    assert is_all_given_back(engine)
    await engine.dispose()


async def test_a_session_that_connects_while_its_run_ends_gives_the_connection_back(stage: Stage) -> None:
    """R6: a run that has ended has nobody who would do so for it."""
    engine, connects, may_go_on = narrow(stage), asyncio.Event(), asyncio.Event()
    sessions = install_capture(async_sessionmaker(engine))
    left: list[asyncio.Task[None]] = []

    def pause(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("SET LOCAL"):
            connects.set()
            await_only(may_go_on.wait())

    async def write() -> None:
        async with sessions.begin() as session:
            await session.execute(line("never"))

    async def act(event: Any) -> None:
        left.append(asyncio.create_task(write()))
        await connects.wait()
        raise ValueError("the reason")

    listen(engine.sync_engine, "before_cursor_execute", pause)
    await stage.put("a")
    await stage.drain(atomic(act))
    may_go_on.set()
    [ended] = await asyncio.gather(*left, return_exceptions=True)
    assert isinstance(ended, NotOneTransaction)
    assert is_all_given_back(engine)
    await engine.dispose()


async def test_a_session_that_waits_for_its_turn_while_its_run_ends_makes_no_connection(stage: Stage) -> None:
    """R6: nor does it take room."""
    engine, begins = narrow(stage), asyncio.Event()
    sessions = install_capture(async_sessionmaker(engine))
    left: list[asyncio.Task[None]] = []

    async def write() -> None:
        async with sessions.begin() as session:
            begins.set()
            await session.execute(line("never"))

    async def act(event: Any) -> None:
        left.append(asyncio.create_task(wait_for_the_witness(sessions)))
        await until(lambda: is_waited_for(stage))
        left.append(asyncio.create_task(write()))
        await begins.wait()
        raise ValueError("the reason")

    await stage.witness.execute("SELECT pg_advisory_lock(6)")
    await stage.put("a")
    await stage.drain(atomic(act))
    _, ended = await asyncio.gather(*left, return_exceptions=True)
    assert isinstance(ended, NotOneTransaction)
    assert is_all_given_back(engine)
    await stage.witness.execute("SELECT pg_advisory_unlock(6)")
    await engine.dispose()


async def test_a_session_that_waits_for_room_while_its_run_ends_takes_none(stage: Stage) -> None:
    """R6: it would never be given back, and every later run would wait for it."""
    engine, begins = narrow(stage), asyncio.Event()
    sessions = install_capture(async_sessionmaker(engine))
    left: list[asyncio.Task[None]] = []

    async def write() -> None:
        async with sessions.begin() as session:
            begins.set()
            await session.scalar(select(journal))

    async def act(event: Any) -> None:
        if event.what == "a":
            await write()  # after which it is known where the engine leads
            begins.clear()
            return
        left.append(asyncio.create_task(write()))
        await begins.wait()
        raise ValueError("the reason")

    await stage.put("a")
    await stage.drain(atomic(act))
    room = room_in(cast("Any", engine.pool))
    assert room is not None
    async with room:
        await stage.put("b")
        await stage.drain(atomic(act))
        assert not left[0].done()
    [ended] = await asyncio.gather(*left, return_exceptions=True)
    assert isinstance(ended, NotOneTransaction)
    assert is_all_given_back(engine)
    await engine.dispose()


ROWS = "SELECT CASE WHEN n > 100 THEN pg_advisory_xact_lock(6) END FROM generate_series(1, 1000) AS n"


async def test_a_fetch_that_a_run_has_left_under_way_spoils_its_connection_for_nobody_else(
    stage: Stage,
) -> None:
    """R6, R12: the pool takes a connection whose rollback has failed for one that is rolled back."""
    engine = narrow(stage)
    sessions = install_capture(async_sessionmaker(engine))
    left: list[asyncio.Task[None]] = []

    async def wait_for_the_witness() -> None:
        async with sessions() as session:
            rows = await session.stream(text(ROWS))
            await rows.fetchall()

    async def act(event: Any) -> None:
        async with sessions.begin() as session:
            await session.execute(line(event.what))
        if event.what == "a":
            left.append(asyncio.create_task(wait_for_the_witness()))
            await until(lambda: is_waited_for(stage))
            raise ValueError("the reason")

    await stage.witness.execute("SELECT pg_advisory_lock(6)")
    for what in ("a", "b"):
        await stage.put(what)
        await stage.drain(atomic(act))
    assert await stage.journal() == ["b"]
    [ended] = await asyncio.gather(*left, return_exceptions=True)
    assert isinstance(ended, asyncpg.PostgresError)
    assert is_all_given_back(engine)
    await stage.witness.execute("SELECT pg_advisory_unlock(6)")
    await engine.dispose()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_run_has_left_between_two_fetches_fetches_nothing_on_the_connection_of_another(
    stage: Stage, driver: str, fails: bool
) -> None:
    """R6: the server would answer with an error, in the transaction of whoever has the connection next."""
    engine, fetched, may_go_on = narrow(stage, driver), asyncio.Event(), asyncio.Event()
    sessions = install_capture(async_sessionmaker(engine))
    left: list[asyncio.Task[None]] = []

    async def fetch() -> None:
        async with sessions() as session:
            rows = await session.stream(text("SELECT generate_series(1, 1000)"))
            await rows.fetchone()
            fetched.set()
            await may_go_on.wait()
            try:
                await rows.fetchall()
            finally:
                await rows.close()

    async def act(event: Any) -> None:
        async with sessions.begin() as session:
            await session.execute(line(event.what))
            if event.what == "b":
                may_go_on.set()
                [ended] = await asyncio.gather(*left, return_exceptions=True)
                assert isinstance(ended, Exception)
        if event.what == "a":
            left.append(asyncio.create_task(fetch()))
            await fetched.wait()
            if fails:
                raise ValueError("the reason")

    for what in ("a", "b"):
        await stage.put(what)
        await stage.drain(atomic(act))
    assert await stage.journal() == (["b"] if fails else ["a", "b"])
    assert (await stage.deliveries()).get(("b", "h")) is None
    assert is_all_given_back(engine)
    await engine.dispose()
