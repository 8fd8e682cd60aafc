"""The relay as a measured process: the product's own, with the settings that ship, and a meter on its connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import asyncpg
from lagom import Container, Singleton
from sqlalchemy.ext.asyncio import async_sessionmaker

from benchmarks.relay.parcels import NoteStart
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork, create_engine, session_factory
from outbox_kernel.infrastructure.outbox.sql import in_schema
from outbox_kernel.infrastructure.outbox.sql.claims import CLAIM_EVENTS
from outbox_kernel.infrastructure.outbox.sql.outcomes import MARK_DELIVERED, SETTLE_DELIVERIES
from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
from outbox_kernel.kernel.handlers import registered_handlers

if TYPE_CHECKING:
    from benchmarks.relay.meter import Meter

_CLAIM = in_schema(CLAIM_EVENTS, None)
# An event's one handler is done in its first pass, or later if the machine kept it waiting for a second.
_MARKS = {in_schema(statement, None) for statement in (MARK_DELIVERED, SETTLE_DELIVERIES)}


class MeteredConnection(asyncpg.Connection):
    """Sees the relay claim and mark, as the database does."""

    meter: ClassVar[Meter]

    async def fetch(self, query: str, *arguments: Any, **options: Any) -> list[Any]:
        """Do as told, and note what it was."""
        if query == _CLAIM:
            self.meter.begin()
        rows: list[Any] = await super().fetch(query, *arguments, **options)
        if query in _MARKS:
            self.meter.marked(len(rows))
        return rows


async def relay(
    meter: Meter, over: asyncio.Event, *, url: str, handler: str, concurrency: int | None = None
) -> dict[str, Any]:
    """Relay to one handler until told to stop; `concurrency` also sizes the pool of the handler's sessions."""
    MeteredConnection.meter = meter
    pool: dict[str, Any] = {"pool_size": concurrency, "max_overflow": 0} if concurrency else {}
    engine = create_engine(url, connect_args={"connection_class": MeteredConnection}, **pool)
    container = Container()
    container[async_sessionmaker] = Singleton(lambda: session_factory(engine))
    container[SqlAlchemyUnitOfWork] = lambda found: SqlAlchemyUnitOfWork(found[async_sessionmaker])
    outbox_relay = OutboxRelay(
        engine,
        container,
        handlers=[each for each in registered_handlers() if each.name == handler],
        settings=RelaySettings(concurrency=concurrency) if concurrency else RelaySettings(),
    )
    running = asyncio.create_task(outbox_relay.run())
    stopping = asyncio.create_task(over.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    outbox_relay.stop()
    stopping.cancel()
    await running
    await engine.dispose()
    return {"moments_ns": NoteStart.started_ns}
