"""The operator's connection: whatever the database answers is a sentence, and nothing waits without end (O1)."""

from __future__ import annotations

import sys
from typing import Any

import asyncpg
import pytest

from outbox_kernel.infrastructure.errors import DatabaseRefusal
from outbox_kernel.infrastructure.operations.desk import Desk, OutboxLocked, desk
from outbox_kernel.infrastructure.operations.limits import DEADLOCK_ATTEMPTS_MAX
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.settings import Settings


async def test_a_command_does_not_wait_for_a_lock_without_end(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[Desk.__module__], "LOCK_SECONDS_MAX", 0.01)
    async with outbox.desk.connection.transaction():
        await outbox.execute("LOCK TABLE outbox_events")
        with pytest.raises(OutboxLocked, match=r"has held a lock on the outbox for 0\.01 s: let"):
            async with desk(Settings(database_url=outbox.url)) as opened:
                await overview(opened)


async def test_what_the_server_cannot_do_is_a_sentence(outbox: Any) -> None:
    with pytest.raises(
        DatabaseRefusal, match=r"could not do it \(canceling statement due to statement timeout"
    ):
        async with desk(Settings(database_url=outbox.url)) as opened:
            await opened.connection.execute("SET statement_timeout = 1")
            await opened.connection.fetch("SELECT pg_sleep(60)")


async def test_a_statement_that_is_wrong_is_no_answer_to_an_operator(outbox: Any) -> None:
    with pytest.raises(asyncpg.PostgresSyntaxError):
        async with desk(Settings(database_url=outbox.url)) as opened:
            await opened.connection.fetch("SELEC")


async def test_what_a_relay_was_in_the_way_of_is_done_again(outbox: Any) -> None:
    attempts: list[int] = []

    async def work() -> int:
        attempts.append(len(attempts))
        if len(attempts) < DEADLOCK_ATTEMPTS_MAX:
            raise asyncpg.DeadlockDetectedError("deadlock detected")
        return len(attempts)

    assert await outbox.desk.in_turn(work) == DEADLOCK_ATTEMPTS_MAX
    with pytest.raises(asyncpg.DeadlockDetectedError):
        await outbox.desk.in_turn(_always_in_the_way)


async def _always_in_the_way() -> None:
    raise asyncpg.DeadlockDetectedError("deadlock detected")
