"""A handler that forgets to commit: its event counts as delivered, so the relay's log says what is gone (C8, R6)."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest
from lagom import Container
from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncSession

from outbox_kernel.infrastructure.container import scope
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.infrastructure.outbox import bus_of, forgotten
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.domain import Announced, Noted, Wallet, journal
from tests.log_relaying import LogStage

Act = Callable[[AsyncSession], Awaitable[None]]


@pytest.fixture(autouse=True)
def nobody_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgotten, "_told", set())


async def adds(session: AsyncSession) -> None:
    session.add(Wallet.open("ada"))


async def flushes(session: AsyncSession) -> None:
    session.add(Wallet.open("ada"))
    await session.flush()


async def writes(session: AsyncSession) -> None:
    await session.execute(insert(journal).values(line="x"))


async def emits(session: AsyncSession) -> None:
    bus_of(session).emit(Announced("x"))


def of(act: Act, name: str = "shop.Forgets", **options: bool) -> HandlerRegistration:
    async def forgets(event: Noted, session: AsyncSession) -> None:
        await act(session)

    return HandlerRegistration(name, forgets, (Noted,), **options)  # type: ignore[arg-type]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


@pytest.mark.parametrize("atomic", [False, True], ids=["plain", "atomic"])
@pytest.mark.parametrize("act", [adds, flushes, writes, emits])
async def test_a_session_that_nobody_commits_is_said_once_with_its_handler_and_the_remedy(
    stage: LogStage, caplog: pytest.LogCaptureFixture, act: Act, *, atomic: bool
) -> None:
    await stage.put("a", "b", of=uuid4())  # in order
    await stage.drain(of(act, atomic=atomic))
    [sentence] = told(caplog)
    event_id = str((await stage.event("a"))["event_id"])
    assert sentence.startswith(f"handler shop.Forgets returned from event {event_id} without a commit")
    assert "end it with `await session.commit()`" in sentence
    [record] = [each for each in caplog.records if each.levelname == "WARNING"]
    assert (record.__dict__["handler"], record.__dict__["event_id"]) == ("shop.Forgets", event_id)
    assert await stage.events() == {"a": "delivered", "b": "delivered"}


async def test_the_events_that_are_gone_with_it_are_named(
    stage: LogStage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.put("a")
    await stage.drain(of(emits))
    [sentence] = told(caplog)
    assert "these events are gone: Announced;" in sentence


async def commits(session: AsyncSession) -> None:
    await emits(session)
    await session.commit()


async def rolls_back(session: AsyncSession) -> None:
    await writes(session)
    await session.rollback()


async def reads(session: AsyncSession) -> None:
    await session.execute(text("SELECT 1"))


async def touches_nothing(session: AsyncSession) -> None: ...


@pytest.mark.parametrize("act", [commits, rolls_back, reads, touches_nothing])
async def test_who_has_nothing_left_to_commit_is_told_nothing(
    stage: LogStage, caplog: pytest.LogCaptureFixture, act: Act
) -> None:
    await stage.put("a")
    await stage.drain(of(act))
    assert told(caplog) == []


async def test_a_session_of_no_handler_is_nobodys_to_tell(
    stage: LogStage, caplog: pytest.LogCaptureFixture
) -> None:
    async with scope(stage.container) as found:
        await adds(found[AsyncSession])
    assert told(caplog) == []


async def test_a_unit_of_work_left_in_a_handler_is_a_line_of_the_log_and_no_warning_of_pythons(
    stage: LogStage, caplog: pytest.LogCaptureFixture
) -> None:
    """For each event anew, since each time something is gone."""

    async def leaves(event: Noted, uow: SqlAlchemyUnitOfWork) -> None:
        async with uow:
            uow.emit(Announced(event.what), aggregate_type="bank.wallet", aggregate_id=uuid4())

    container: Container = stage.container
    container[SqlAlchemyUnitOfWork] = lambda: stage.uow()  # noqa: PLW0108 - a method would be taken for the thing itself
    await stage.put("a", "b", of=uuid4())  # in order
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        await stage.drain(HandlerRegistration("shop.Leaves", leaves, (Noted,)))
    said = told(caplog)
    assert [str(each.message) for each in warned if "unit of work" in str(each.message)] == []
    for sentence, what in zip(said, "ab", strict=True):
        event_id = (await stage.event(what))["event_id"]
        assert sentence.startswith(
            f"handler shop.Leaves, event {event_id}: a unit of work was left without a commit"
        )
        assert f"({__file__}:" in sentence
