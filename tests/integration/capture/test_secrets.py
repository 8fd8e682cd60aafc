"""K11: what an event keeps to itself is in no error of the database either, nor in its traceback."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Callable

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from outbox_kernel.errors import ConcurrencyError
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.kernel import DomainEvent, event, sensitive
from tests.bank import Bank, loaded

SECRET = "hunter2"


@event("test.invited")
class Invited(DomainEvent):
    what: str
    token: str = sensitive()


def of_ours(url: str) -> AsyncEngine:
    return create_engine(url)


def of_the_application(url: str) -> AsyncEngine:
    return create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))


@pytest.fixture(params=[of_ours, of_the_application])
async def either(request: pytest.FixtureRequest, bank_url: str) -> AsyncIterator[Bank]:
    make: Callable[[str], AsyncEngine] = request.param
    engine = make(bank_url)
    yield Bank.on(engine)
    await engine.dispose()


@pytest.mark.parametrize("others", [0, 1])
async def test_a_conflict_shows_nothing_of_the_payloads_that_it_refused(
    bank: Bank, either: Bank, others: int
) -> None:
    """K11: of one event as of several in a flush."""
    wallet_id = await bank.open_wallet()
    async with either.session() as session:
        wallet = await loaded(session, wallet_id)
        async with bank.session() as rival:
            (await loaded(rival, wallet_id)).note("first")
            await rival.commit()
        wallet.record(Invited("second", token=SECRET))
        for _ in range(others):
            wallet.note("beside")
        with pytest.raises(ConcurrencyError) as refused:
            await session.commit()
    assert SECRET not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    "rule",
    [
        "ADD CONSTRAINT own CHECK (payload->>'token' <> 'hunter2')",
        "ADD CONSTRAINT own EXCLUDE ((payload->>'token') WITH =)",
    ],
)
async def test_a_constraint_of_an_operators_own_shows_nothing_of_the_payloads_that_it_refused(
    bank: Bank, either: Bank, rule: str
) -> None:
    """K11: the server quotes the failing row, or a part of it, whatever the engine hides."""
    wallet_id = await bank.open_wallet()
    async with bank.engine.begin() as connection:
        await connection.execute(text(f"ALTER TABLE outbox_events {rule}"))
    async with either.session() as session:
        wallet = await loaded(session, wallet_id)
        for _ in range(2):
            wallet.record(Invited("once", token=SECRET))
        with pytest.raises(IntegrityError, match=r"constraint \"own\"") as refused:
            await session.commit()
    async with bank.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE outbox_events DROP CONSTRAINT own"))
    assert SECRET not in "".join(traceback.format_exception(refused.value))


async def test_an_engine_of_ours_shows_no_parameters_unless_it_is_told_to(bank_url: str) -> None:
    """K11: those of the application's own tables may be as secret."""
    for engine, shown in (
        (create_engine(bank_url), False),
        (create_engine(bank_url, hide_parameters=False), True),
    ):
        async with AsyncSession(engine) as session:
            with pytest.raises(DBAPIError) as failed:
                await session.execute(text("SELECT :token FROM nowhere"), {"token": SECRET})
        assert (SECRET in str(failed.value)) is shown
        await engine.dispose()
