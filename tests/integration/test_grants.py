"""The rights that docs/reference/outbox-table.md names are enough, and each of them is needed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from infrastructure.database import SqlAlchemyUnitOfWork, create_engine, session_factory
from infrastructure.errors import PermissionDenied
from infrastructure.outbox import OutboxMiddleware
from infrastructure.outbox.migrator import migrate
from infrastructure.settings import Settings
from kernel import ConcurrencyError, EventBus
from tests.commands import ROOT
from tests.domain import Announced, Wallet, bank_metadata

PAGE = (ROOT / "docs" / "reference" / "outbox-table.md").read_text()
GRANTS = re.findall(r"`(GRANT .+)` \|$", PAGE, re.MULTILINE)
ROLES = ("app", "plain", "reader")
OF_ITS_OWN_TABLES = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {}"


@pytest.fixture
async def owner(empty_postgres_url: str) -> AsyncIterator[AsyncEngine]:
    """The database with the outbox in `events` and the bank in `public`, by the role that migrates."""
    engine = create_engine(empty_postgres_url)
    await migrate(engine, Settings(contexts=(), outbox_schema="events"))
    async with engine.begin() as connection:
        await connection.run_sync(bank_metadata.create_all)
    yield engine
    await engine.dispose()


@pytest.fixture
async def engines(owner: AsyncEngine) -> AsyncIterator[dict[str, AsyncEngine]]:
    """An engine for each role of the page; roles are the whole server's, so their names are of this test."""
    names = {role: f"outbox_{role}_{uuid4().hex}" for role in ROLES}
    async with owner.begin() as connection:
        await connection.execute(text("SET LOCAL search_path = events"))
        for name in names.values():
            await connection.execute(text(f"CREATE ROLE {name}"))
        for grant in (*GRANTS, *(OF_ITS_OWN_TABLES.format(role) for role in ("app", "plain"))):
            head, _, roles = grant.partition(" TO ")
            granted = ", ".join(names[role] for role in roles.split(", "))
            await connection.execute(text(f"{head} TO {granted}"))
    settings = {role: {"role": name, "search_path": "events, public"} for role, name in names.items()}
    found = {
        role: create_engine(owner.url, connect_args={"server_settings": each})
        for role, each in settings.items()
    }
    yield found
    for engine in found.values():
        await engine.dispose()
    async with owner.begin() as connection:
        for name in names.values():
            await connection.execute(text(f"DROP OWNED BY {name}"))
            await connection.execute(text(f"DROP ROLE {name}"))


async def read(engine: AsyncEngine, table: str) -> int:
    async with engine.connect() as connection:
        return int(await connection.scalar(text(f"SELECT count(*) FROM {table}")) or 0)


def test_the_page_names_a_grant_for_every_role() -> None:
    assert {role for grant in GRANTS for role in grant.partition(" TO ")[2].split(", ")} == {*ROLES}


async def test_the_application_lives_with_what_it_is_granted(
    engines: dict[str, AsyncEngine], owner: AsyncEngine
) -> None:
    sessions = session_factory(engines["app"])
    uow, other = SqlAlchemyUnitOfWork(sessions), SqlAlchemyUnitOfWork(sessions)
    wallet = Wallet.open()
    async with uow:
        uow.repository(Wallet).add(wallet)
        uow.emit(Announced("opened"))
        await uow.commit()
    async with uow, other:
        first, second = [await each.repository(Wallet).get(wallet.id) for each in (uow, other)]
        assert first is not None
        assert second is not None
        first.pay(1)
        second.pay(2)
        await uow.commit()
        with pytest.raises(ConcurrencyError):
            await other.commit()
        await uow.repository(Wallet).remove(first)
        await uow.commit()
    assert await read(owner, "events.outbox_events") == 3
    with pytest.raises(DBAPIError, match="permission denied"):
        await read(engines["app"], "outbox_events")


async def test_events_written_by_hand_need_the_right_to_read_as_well(engines: dict[str, AsyncEngine]) -> None:
    async def by_hand(role: str) -> int:
        bus = EventBus()
        bus.emit(Announced("by hand"))
        async with AsyncSession(engines[role]) as session, session.begin():
            return await OutboxMiddleware.flush(session, bus)

    assert await by_hand("plain") == 1
    with pytest.raises(DBAPIError, match="permission denied"):
        await by_hand("app")


async def test_a_reader_of_the_view_sees_nothing_else(engines: dict[str, AsyncEngine]) -> None:
    assert await read(engines["reader"], "outbox") == 0
    with pytest.raises(DBAPIError, match="permission denied"):
        await read(engines["reader"], "outbox_events")


async def test_without_its_grant_the_application_is_told(
    engines: dict[str, AsyncEngine], owner: AsyncEngine
) -> None:
    async with owner.begin() as connection:
        role = await _name_of(engines["app"])
        await connection.execute(text(f"REVOKE INSERT ON events.outbox_events FROM {role}"))
    uow = SqlAlchemyUnitOfWork(session_factory(engines["app"]))
    async with uow:
        uow.repository(Wallet).add(Wallet.open())
        with pytest.raises(PermissionDenied, match="permission denied for table outbox_events"):
            await uow.commit()


async def _name_of(engine: AsyncEngine) -> str:
    async with engine.connect() as connection:
        return str(await connection.scalar(text("SELECT current_role")))
