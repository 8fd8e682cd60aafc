"""`OutboxRecord`: a row of the outbox as a plain object (S)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.errors import AlreadyMapped
from outbox_kernel.infrastructure.outbox import OutboxRecord, map_outbox_table
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.settings import Settings

NOW = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)


@pytest.fixture
async def session(empty_postgres_url: str) -> AsyncIterator[AsyncSession]:
    map_outbox_table()
    engine = create_engine(empty_postgres_url)
    await migrate(engine, Settings(contexts=()))
    async with AsyncSession(engine, expire_on_commit=False) as session:
        yield session
    await engine.dispose()


def record(event_id: UUID | None = None) -> OutboxRecord:
    return OutboxRecord(
        event_id=event_id or uuid4(),
        event_type="AccountCreated",
        event_version=2,
        occurred_at=NOW,
        payload={"email": "ada@example.org"},
    )


async def test_a_record_that_is_added_is_a_row_with_the_servers_defaults(session: AsyncSession) -> None:
    added = record()
    session.add(added)
    await session.commit()
    await session.refresh(added)
    assert (added.position, added.status, added.retry_count, added.headers) == (1, "pending", 0, {})
    assert added.xid > 0
    assert added.source is None
    assert added.occurred_at == NOW
    assert added.payload == {"email": "ada@example.org"}
    assert (added.delivered, added.delivered_at) == (False, None)


async def test_records_get_positions_in_the_order_they_were_added(session: AsyncSession) -> None:
    added = [record() for _ in range(20)]
    session.add_all(added)
    await session.commit()
    stored = await session.scalars(select(OutboxRecord.event_id).order_by(OutboxRecord.position))
    assert stored.all() == [each.event_id for each in added]


async def test_delivered_is_answered_by_the_object_and_in_queries(session: AsyncSession) -> None:
    waiting, done = record(), record()
    session.add_all([waiting, done])
    await session.flush()
    await session.execute(
        update(OutboxRecord)
        .where(OutboxRecord.event_id == done.event_id)
        .values(status="delivered", processed_at=func.now())
    )
    await session.refresh(done)
    assert done.delivered
    assert done.delivered_at == done.processed_at
    assert (await session.scalars(select(OutboxRecord).where(OutboxRecord.delivered))).all() == [done]
    unanswered = select(OutboxRecord).where(OutboxRecord.delivered_at.is_(None))
    assert [each.event_id for each in await session.scalars(unanswered)] == [waiting.event_id]


def test_mapping_again_is_no_harm_and_mapping_elsewhere_is_refused() -> None:
    assert map_outbox_table() is map_outbox_table() is OutboxRecord
    with pytest.raises(AlreadyMapped, match=r"OutboxRecord is mapped to .* one schema per process"):
        map_outbox_table("elsewhere")


def test_a_record_in_a_log_shows_no_payload() -> None:
    map_outbox_table()
    assert "ada@example.org" not in repr(record())
