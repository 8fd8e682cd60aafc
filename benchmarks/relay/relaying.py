"""The relay as a measured process: the product's own, with the settings that ship, and a meter on its connections."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any, ClassVar

import asyncpg
import attrs
from lagom import Container, Singleton
from sqlalchemy.ext.asyncio import async_sessionmaker

from benchmarks.relay.parcels import NoteStart
from outbox_kernel.infrastructure.addresses import listen
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork, create_engine, session_factory
from outbox_kernel.infrastructure.operations.gauges import Gauges
from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
from outbox_kernel.infrastructure.outbox.sql.progress import LEAVE_AND_MOVE, MOVE
from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
from outbox_kernel.infrastructure.telemetry import Metrics, MetricsApp
from outbox_kernel.infrastructure.telemetry.serving import MetricsServer
from outbox_kernel.kernel.handlers import registered_handlers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Literal

    from sqlalchemy.ext.asyncio import AsyncEngine

    from benchmarks.relay.meter import Meter
    from outbox_kernel.kernel.handlers import HandlerRegistration

# With the number of the argument that says who has passed how many events so far. A line of the relay's names the
# schema that it has found the tables in.
_MOVES = {
    text: names.index("moved")
    for text, names in (statement.in_schema("public") for statement in (MOVE, LEAVE_AND_MOVE))
}


class MeteredConnection(asyncpg.Connection):
    """Sees the relay read and move on, as the database does."""

    on_read: ClassVar[Callable[[], None]]
    on_move: ClassVar[Callable[[int], None]]
    passed: ClassVar[dict[str, int]] = {}
    """By each reader, as it was last written down."""

    async def fetch(self, query: str, *arguments: Any, **options: Any) -> list[Any]:
        """Do as told, and note what it was."""
        if options.get("record_class") is LoggedEvent:
            type(self).on_read()
        rows: list[Any] = await super().fetch(query, *arguments, **options)
        move = _MOVES.get(query)
        if move is not None and rows:
            moved = {each["reader"]: each["events"] for each in json.loads(arguments[move])}
            type(self).on_move(sum(moved[reader] - self.passed.get(reader, 0) for reader in moved))
            self.passed.update(moved)
        return rows


def metered(url: str, meter: Meter, *, on_read: Callable[[], None] | None = None, **pool: Any) -> AsyncEngine:
    """Make an engine whose connections tell the meter what is passed, and when reading begins."""
    MeteredConnection.on_read = staticmethod(on_read or meter.begin)
    MeteredConnection.on_move = staticmethod(meter.marked)
    return create_engine(url, connect_args={"connection_class": MeteredConnection}, **pool)


async def relay(
    meter: Meter,
    over: asyncio.Event,
    *,
    url: str,
    handler: str,
    copies: int = 1,
    concurrency: int | None = None,
    start: Literal["now", "beginning"] = "beginning",
    metrics_port: int | None = None,
) -> dict[str, Any]:
    """Relay to one handler, or to some that are alike; `concurrency` also sizes the pool of their sessions.

    With a port its metrics are served there, as `outbox relay --metrics` does.
    """
    pool: dict[str, Any] = {"pool_size": concurrency, "max_overflow": 0} if concurrency else {}
    engine = metered(url, meter, **pool)
    container = Container()
    container[async_sessionmaker] = Singleton(lambda: session_factory(engine))
    container[SqlAlchemyUnitOfWork] = lambda found: SqlAlchemyUnitOfWork(found[async_sessionmaker])
    settings = RelaySettings(concurrency=concurrency) if concurrency else RelaySettings()
    metrics = None if metrics_port is None else Metrics()
    found = OutboxRelay(
        engine, container, handlers=alike(handler, copies, start), settings=settings, metrics=metrics
    )
    async with _served(metrics, metrics_port or 0, url):
        await relayed(found, over)
    await engine.dispose()
    return {"moments_ns": NoteStart.started_ns}


@asynccontextmanager
async def _served(metrics: Metrics | None, port: int, url: str) -> AsyncIterator[None]:
    if metrics is None:
        yield
        return
    engine = create_engine(url)
    gauges, server = Gauges(engine), MetricsServer(MetricsApp(metrics).text)
    metrics.asks(gauges)
    with closing(listen("127.0.0.1", port)) as listening:
        await server.start(listening)
        try:
            yield
        finally:
            await server.close()
            await gauges.close()
            await engine.dispose()


async def relayed(outbox_relay: OutboxRelay, over: asyncio.Event) -> None:
    """Run a relay until told to stop; raise what it dies of before."""
    running, stopping = asyncio.create_task(outbox_relay.run()), asyncio.create_task(over.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    outbox_relay.stop()
    stopping.cancel()
    await running


def alike(handler: str, copies: int, start: Literal["now", "beginning"]) -> list[HandlerRegistration]:
    """Return so many handlers that differ in their names only."""
    [found] = [each for each in registered_handlers() if each.name == handler]
    names = [handler] if copies == 1 else [f"{handler}_{number}" for number in range(1, copies + 1)]
    return [attrs.evolve(found, name=name, start=start) for name in names]
