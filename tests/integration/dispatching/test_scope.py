"""What the container gives inside one request or one run of a handler (K6, R5)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import attrs
import pytest
from lagom import Container
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from contexts.profiles.events import ProfileCreated
from outbox_kernel.infrastructure.container import build_container, scope
from outbox_kernel.infrastructure.outbox import OutboxEventDispatcher
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import EventDispatcher


@attrs.frozen
class Asks:
    """Wants both, as a use case may."""

    session: AsyncSession
    dispatcher: EventDispatcher


@pytest.fixture
async def container(empty_postgres_url: str) -> AsyncIterator[Container]:
    settings = Settings(database_url=empty_postgres_url, contexts=())
    container = build_container(settings)
    await migrate(container[AsyncEngine], settings)
    yield container
    await container[AsyncEngine].dispose()


async def test_a_scope_has_one_session_and_the_next_has_another(container: Container) -> None:
    async with scope(container) as first, scope(container) as second:
        assert first[Asks].session is first[AsyncSession]
        assert first[AsyncSession] is not second[AsyncSession]


async def test_the_dispatcher_writes_with_the_scopes_session_and_neither_flushes_nor_commits(
    container: Container,
) -> None:
    async with scope(container) as inner:
        asks = inner[Asks]
        assert isinstance(asks.dispatcher, OutboxEventDispatcher)
        await asks.dispatcher.dispatch([ProfileCreated(uuid4(), uuid4())])
        assert await stored(container) == 0
        assert await asks.session.scalar(text("SELECT count(*) FROM outbox_events")) == 1
        assert await stored(container) == 0
        await asks.session.commit()
    assert await stored(container) == 1


async def test_what_a_scope_leaves_uncommitted_is_rolled_back(container: Container) -> None:
    async with scope(container) as inner:
        await inner[EventDispatcher].dispatch([ProfileCreated(uuid4(), uuid4())])  # type: ignore[type-abstract]  # a port is what it is asked by
        await inner[AsyncSession].flush()
    assert await stored(container) == 0
    assert container[AsyncEngine].sync_engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # it is a QueuePool


async def stored(container: Container) -> int:
    async with container[AsyncEngine].connect() as connection:
        return int(await connection.scalar(text("SELECT count(*) FROM outbox_events")) or 0)
