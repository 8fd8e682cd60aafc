"""C6: what an application hands over keeps its type; mypy reads this file, strictly, as an application's own."""

from __future__ import annotations

from typing import Any, assert_type

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from outbox_kernel.errors import KernelError
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork, session_factory
from outbox_kernel.infrastructure.outbox import bus_of, install_capture
from outbox_kernel.kernel import EventBus
from tests.bank import Bank
from tests.domain import Announced


class OwnAsyncSession(AsyncSession):
    tenant = "blue"


class OwnSession(Session):
    tenant = "red"


async def test_a_maker_of_ones_own_async_sessions_keeps_their_type(bank: Bank) -> None:
    """C6: through the call, the unit of work and the bus."""
    maker = install_capture(async_sessionmaker(bank.engine, class_=OwnAsyncSession))
    assert_type(maker, async_sessionmaker[OwnAsyncSession])
    async with SqlAlchemyUnitOfWork(maker) as uow:
        uow.emit(Announced("by the unit of work"))
        await uow.commit()
    async with maker() as session:
        assert session.tenant == "blue"
        bus: EventBus = bus_of(session)
        bus.emit(Announced("by the session"))
        await session.commit()
    assert await bank.outbox() == ["- by the unit of work", "- by the session"]


def test_every_target_keeps_its_type(bank: Bank) -> None:
    """C6: makers and classes, theirs and ours."""
    assert_type(install_capture(sessionmaker()), sessionmaker[Session])
    assert_type(install_capture(async_sessionmaker()), async_sessionmaker[AsyncSession])
    assert_type(install_capture(OwnAsyncSession).tenant, str)
    assert_type(install_capture(OwnSession).tenant, str)
    assert_type(install_capture(sessionmaker(class_=OwnSession)), sessionmaker[OwnSession])
    assert_type(session_factory(bank.engine), async_sessionmaker[AsyncSession])


def test_what_makes_no_sessions_is_refused_by_the_types_too() -> None:
    """C6: an editor says it before the program does."""
    refused: Any = KernelError
    with pytest.raises(refused):
        install_capture("sessions")  # type: ignore[type-var]  # that it needs this comment is the test


@pytest.mark.parametrize("session", [AsyncSession(), Session()])
def test_a_session_without_capture_has_no_bus(session: AsyncSession | Session) -> None:
    """C6: it would lose what is emitted."""
    with pytest.raises(
        KernelError, match=r"does not capture events; make it with session_factory\(engine\), or"
    ):
        bus_of(session)
