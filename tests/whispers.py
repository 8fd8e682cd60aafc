"""Events with sealed fields, for whichever tests need some: what a person has whispered, and to whom (O6)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.infrastructure.operations.forgetting import Forgotten, forget
from outbox_kernel.infrastructure.operations.opening import opened
from outbox_kernel.infrastructure.postgres.connections import connect
from outbox_kernel.kernel import DomainEvent, event, sensitive

SECRET = "the key lies under the mat"


@event("whisper.told")
class Whispered(DomainEvent):
    what: str
    who: UUID
    secret: str | None = sensitive(subject="who", default=SECRET)


@event("whisper.passed_on")
class PassedOn(DomainEvent):
    what: str
    who: UUID
    whom: str
    secret: str = sensitive(subject="who", default=SECRET)
    address: str = sensitive(subject="whom", default="12 Byron Row", forgotten="nowhere")


async def forgotten(engine: AsyncEngine, subject: object) -> Forgotten:
    """Forget somebody, as the command does."""
    connection = await connect(engine.sync_engine)
    try:
        return await forget(Desk(connection), str(subject))
    finally:
        await connection.close()


async def secrets_told(engine: AsyncEngine) -> list[str | None]:
    """What was whispered, as a handler gets it now."""
    connection = await connect(engine.sync_engine)
    try:
        events: list[Any] = await opened(Desk(connection), "whisper.told")
    finally:
        await connection.close()
    return [event.secret for event in events]


async def stored(engine: AsyncEngine) -> str:
    """All that the tables of events and keys hold, as text."""
    async with engine.connect() as connection:
        rows = [
            *(
                await connection.scalars(
                    text("SELECT event::text FROM outbox_events AS event ORDER BY position")
                )
            ),
            *(await connection.scalars(text("SELECT key::text FROM outbox_subject_keys AS key"))),
        ]
    return "\n".join(rows)


async def keys_of(engine: AsyncEngine, subject: object) -> list[tuple[UUID, bool]]:
    """The keys that a subject has had, the oldest first, each with whether it is destroyed."""
    query = text(
        "SELECT id, forgotten_at IS NOT NULL FROM outbox_subject_keys WHERE subject = :subject ORDER BY created_at"
    )
    async with engine.connect() as connection:
        return [(row[0], row[1]) for row in await connection.execute(query, {"subject": str(subject)})]
