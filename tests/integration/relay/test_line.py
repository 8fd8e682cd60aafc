"""A line is dropped when it is broken, kept when the server has answered, and each failure is a sentence (R12)."""
# ruff: noqa: SLF001 - what it does with its connection is seen at the connection

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.outbox.own_connection import Line
from tests.relaying import Stage
from tests.waiting import until

SLOW = "SELECT pg_sleep(5)"


async def test_a_call_that_is_not_answered_in_time_drops_the_connection(stage: Stage) -> None:
    line = Line(stage.engine, deadline_seconds=0.05)
    with pytest.raises(DatabaseUnreachable, match=r"did not answer within 0\.05 s"):
        await line.fetch(SLOW)
    assert (line.unanswered, line._connection) == (True, None)
    [row] = await line.fetch("SELECT 1 AS one")
    assert (row["one"], line.unanswered) == (1, False)
    await line.close()


async def test_an_error_that_the_server_answers_keeps_the_connection(stage: Stage) -> None:
    line = stage.line()
    await line.fetch("SELECT 1")
    connection = line._connection
    with pytest.raises(asyncpg.DivisionByZeroError):
        await line.fetch("SELECT 1 / 0")
    assert (line.unanswered, line._connection is connection) == (False, True)


async def test_a_step_that_fails_undoes_the_steps_before_it(stage: Stage) -> None:
    line = stage.line()
    with pytest.raises(asyncpg.DivisionByZeroError):
        await line.transact(
            [("INSERT INTO public.bank_journal (line) VALUES ('a')", ()), ("SELECT 1 / 0", ())]
        )
    assert await stage.journal() == []
    assert not line.unanswered
    await line.fetch("SELECT 1")


async def test_a_call_that_is_cancelled_leaves_no_answer_to_the_next(stage: Stage) -> None:
    line = stage.line()
    pid = await opened(line)
    call = asyncio.create_task(line.fetch(SLOW))
    await until(lambda: _sleeps(stage, pid))
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    [row] = await line.fetch("SELECT 2 AS two")
    assert row["two"] == 2


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_a_connection_that_is_ended_in_a_call_is_made_anew(stage: Stage, in_transaction: bool) -> None:
    line = stage.line()
    pid = await opened(line)
    call = asyncio.create_task(line.transact([(SLOW, ())]) if in_transaction else line.fetch(SLOW))
    await until(lambda: _sleeps(stage, pid))
    await stage.witness.execute("SELECT pg_terminate_backend($1)", pid)
    with pytest.raises((DatabaseUnreachable, asyncpg.PostgresError)):
        await call
    assert line.unanswered
    [row] = await line.fetch("SELECT 3 AS three")
    assert row["three"] == 3


async def test_what_the_driver_says_of_a_cut_connection_is_a_sentence(stage: Stage) -> None:
    """Its own words are of protocol states."""

    def cut(_: object) -> tuple[object, ...]:
        raise asyncpg.InternalClientError("got result for unknown protocol state 3")

    line = stage.line()
    with pytest.raises(DatabaseUnreachable, match="broke in the middle of a call"):
        await line.transact([("SELECT 1", cut)])
    assert line.unanswered


async def test_a_line_that_cannot_say_farewell_is_cut(stage: Stage) -> None:
    line = stage.line()
    pid = await opened(line)
    connection = line._connection
    assert connection is not None
    busy = asyncio.create_task(connection.fetch(SLOW))
    await until(lambda: _sleeps(stage, pid))
    await line.close()  # another operation is in progress
    assert connection.is_closed()
    await asyncio.wait([busy])
    assert busy.exception() is not None


async def opened(line: Line) -> int:
    """Open it, and tell the server's process behind it."""
    await line.fetch("SELECT 1")
    assert line._connection is not None
    return line._connection.get_server_pid()


async def _sleeps(stage: Stage, pid: int) -> bool:
    return bool(
        await stage.witness.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND query = $2 AND state = 'active'",
            pid,
            SLOW,
        )
    )
