"""The lease's keeper: what it makes of a lost lease, a database that is gone, a loop that stands still (R3, R12)."""
# ruff: noqa: SLF001 - its thread is not begun: what it would do is done here, step by step

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import asyncpg
import attrs
import pytest

from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.outbox.sql import leases
from outbox_kernel.infrastructure.relay.lease import EXIT_STANDSTILL, Lease, LeaseKeeper
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.infrastructure.relay.workers import Workers

SHOWN = 8e8


class Answers:
    """A line to a database whose leases are as the test says."""

    def __init__(self, *, answer: bool | Exception) -> None:
        self.answer = answer

    async def close(self) -> None:
        pass

    async def fetch(self, *_: object) -> list[dict[str, float]]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return [{"shown": SHOWN}] if self.answer else []


def keeper(
    *,
    lost: list[str],
    patience_seconds: float = 1.0,
    shown: list[float] | None = None,
    answer: bool | Exception = True,
) -> LeaseKeeper:
    return LeaseKeeper(
        Log(line(answer=answer), Lease()),
        lease_seconds=15,
        patience_seconds=lambda _: patience_seconds,
        on_lost=lambda: lost.append("lost"),
        on_renewed=lambda _, seconds: (shown if shown is not None else []).append(seconds),
    )


def line(*, answer: bool | Exception) -> Line:
    return cast("Line", Answers(answer=answer))


def of_no_patience(lost: list[str]) -> LeaseKeeper:
    return attrs.evolve(keeper(lost=lost), patience_seconds=lambda _: 1 / 0)


async def test_a_lease_that_cannot_be_renewed_any_more_is_told_in_the_loop() -> None:
    lost: list[str] = []
    await keeper(lost=lost, answer=False)._renew()
    await asyncio.sleep(0)
    assert lost == ["lost"]


async def test_a_keeper_that_has_died_of_whatever_it_is_says_that_the_lease_is_renewed_no_more() -> None:
    """R3: or the relay would work on until others take it for one that vanished."""
    lost: list[str] = []
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(of_no_patience(lost)._run)
    await asyncio.sleep(0)
    assert lost == ["lost"]


def test_it_looks_at_who_is_at_work_while_that_changes() -> None:
    """R3: its thread asks for what runs longest, and the loop goes on."""
    signal: Any = None
    workers = Workers(signal, 1, signal, steps_aside=True, is_bounded=False, pacer=None)

    class Beginning:
        @property
        def run(self) -> None:
            workers._all.add(cast("Any", object()))

    workers._all.update(cast("Any", {Beginning(), Beginning()}))
    assert workers.running == []


async def test_a_statement_that_a_deadlock_has_ended_is_sent_again() -> None:
    """R12: it has done nothing; an operator may have locked the same rows in another order."""
    answers: list[Any] = [asyncpg.DeadlockDetectedError("deadlock detected"), [{"held": True}]]

    class Once:
        async def fetch(self, *_: object) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    log = Log(cast("Line", Once()), Lease())
    assert await log.run(leases.ANY_EXPIRED) == [{"held": True}]


async def test_each_renewal_tells_what_the_servers_clock_shows() -> None:
    """O4: by which the time of an event in the outbox is measured."""
    shown: list[float] = []
    await keeper(lost=[], shown=shown)._renew()
    assert shown == [SHOWN]


async def test_a_database_that_is_gone_for_a_moment_costs_no_lease(caplog: pytest.LogCaptureFixture) -> None:
    lost: list[str] = []
    with caplog.at_level(logging.WARNING):
        await keeper(lost=lost, answer=DatabaseUnreachable("nobody answers"))._renew()
    assert lost == []
    assert "the lease could not be renewed: nobody answers" in caplog.text


async def test_a_loop_that_stands_still_ends_the_process_and_says_where(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    monkeypatch.setattr("logging.shutdown", lambda: None)
    watched = keeper(lost=[])
    watched._check_standstill()
    watched._moved_at -= 2.0
    with caplog.at_level(logging.CRITICAL):
        watched._check_standstill()
    assert codes == [EXIT_STANDSTILL]
    assert "test_lease_keeper.py" in caplog.text


async def test_a_loop_that_has_come_to_another_task_has_not_stood_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R3: what a patient handler has kept it for is not the next one's doing."""
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    watched = keeper(lost=[])
    watched._check_standstill()

    async def come_next() -> None:
        watched._moved_at -= 2.0
        watched._check_standstill()

    await asyncio.create_task(come_next())
    assert codes == []


async def test_a_process_that_was_stopped_has_not_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    watched = keeper(lost=[])
    watched._moved_at -= 3600.0
    watched._looked_at -= 3600.0
    watched._check_standstill()
    assert codes == []
