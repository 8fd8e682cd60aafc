"""`OutboxRecord`: a row of the outbox as a plain object (S)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.errors import AlreadyMapped
from outbox_kernel.infrastructure.outbox import OutboxRecord, map_outbox_table
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.settings import Settings

NOW = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
# It has passed nothing, so that what it is due for is pending.
SUBSCRIBED = (
    "INSERT INTO outbox_subscriptions (name, kind, patterns) VALUES ('h', 'handler', ARRAY['Waiting'])"
)
LEFT = f"""
INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status, attempts, error_message, updated_at)
VALUES (:event_id, 3, 'other', 'x', 'dead', 10, 'no', '{NOW}')
"""


@pytest.fixture
async def session(empty_postgres_url: str) -> AsyncIterator[AsyncSession]:
    map_outbox_table()
    engine = create_engine(empty_postgres_url)
    await migrate(engine, Settings(contexts=()))
    async with AsyncSession(engine, expire_on_commit=False) as session:
        yield session
    await engine.dispose()


def record(event_type: str = "test.signed_up") -> OutboxRecord:
    return OutboxRecord(
        event_id=uuid4(),
        event_type=event_type,
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
    # Nobody has ever read it.
    assert (added.delivered, added.delivered_at) == (False, None)


async def test_records_get_positions_in_the_order_they_were_added(session: AsyncSession) -> None:
    added = [record() for _ in range(20)]
    session.add_all(added)
    await session.commit()
    stored = await session.scalars(select(OutboxRecord.event_id).order_by(OutboxRecord.position))
    assert stored.all() == [each.event_id for each in added]


async def test_what_became_of_it_is_answered_by_the_object_and_in_queries(session: AsyncSession) -> None:
    waiting, done, dead = record("Waiting"), record("Done"), record("Dead")
    session.add_all([waiting, done, dead])
    await session.flush()
    await session.execute(text(SUBSCRIBED))
    await session.execute(text(LEFT), {"event_id": dead.event_id})
    await session.commit()
    for each in (waiting, done, dead):
        await session.refresh(each)
    assert [(each.status, each.delivered) for each in (waiting, done, dead)] == [
        ("pending", False),
        ("delivered", True),
        ("dead", False),
    ]
    assert done.delivered_at == done.processed_at == done.created_at
    assert (dead.retry_count, dead.error_message, dead.processed_at, dead.delivered_at) == (
        10,
        "no",
        NOW,
        None,
    )
    assert (await session.scalars(select(OutboxRecord).where(OutboxRecord.delivered))).all() == [done]
    failed = select(OutboxRecord).where(OutboxRecord.status == "dead", OutboxRecord.retry_count > 9)
    assert (await session.scalars(failed)).all() == [dead]
    unanswered = select(OutboxRecord).where(OutboxRecord.delivered_at.is_(None))
    assert {each.event_id for each in await session.scalars(unanswered)} == {waiting.event_id, dead.event_id}


async def test_a_record_in_a_schema_is_answered_by_the_view_of_that_schema(empty_postgres_url: str) -> None:
    """By SQLAlchemy's map of schemas, as capture is."""
    map_outbox_table()
    engine = create_engine(empty_postgres_url)
    await migrate(engine, Settings(contexts=(), outbox_schema="events"))
    there = engine.execution_options(schema_translate_map={None: "events"})
    async with AsyncSession(there) as session:
        session.add(record())
        await session.commit()
        [found] = await session.scalars(select(OutboxRecord))
        assert (found.status, found.delivered) == ("pending", False)
    await engine.dispose()


def test_mapping_again_is_no_harm_and_mapping_elsewhere_is_refused() -> None:
    assert map_outbox_table() is map_outbox_table() is OutboxRecord
    with pytest.raises(AlreadyMapped, match=r"OutboxRecord is mapped to .* one schema per process"):
        map_outbox_table("elsewhere")


def test_a_record_in_a_log_shows_no_payload() -> None:
    map_outbox_table()
    assert "ada@example.org" not in repr(record())
