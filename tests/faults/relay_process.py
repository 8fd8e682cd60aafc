"""A relay as a process of its own: `python -m tests.faults.relay_process`, told all by its environment."""

from __future__ import annotations

import logging
import os

from lagom import Container, Singleton
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

import tests.faults.handlers
import tests.faults.unruly  # noqa: F401 - registers its handler
from infrastructure.cli.serving import run_loop, stopped_by_signals
from infrastructure.database import SqlAlchemyUnitOfWork, create_engine, session_factory
from infrastructure.relay import OutboxRelay, RelaySettings
from kernel.handlers import registered_handlers
from tests.faults.parent import end_with_parent


def container_of(url: str) -> Container:
    """What the handlers are made from."""
    pool_size = int(os.environ.get("FAULTS_POOL", "10"))
    container = Container()
    container[AsyncEngine] = Singleton(lambda: create_engine(url, pool_size=pool_size, max_overflow=0))
    container[async_sessionmaker] = Singleton(lambda found: session_factory(found[AsyncEngine]))
    container[SqlAlchemyUnitOfWork] = lambda found: SqlAlchemyUnitOfWork(found[async_sessionmaker])
    return container


async def serve() -> None:
    """Relay until SIGTERM, with the beginning and the end that `outbox relay` has."""
    carried = os.environ["FAULTS_CARRIED"].split(",")
    handlers = [each for each in registered_handlers() if each.name in carried]
    container = container_of(os.environ["DATABASE_URL"])
    relay = OutboxRelay(
        container[AsyncEngine], container, handlers=handlers, settings=RelaySettings.from_environment()
    )
    end_with_parent()
    try:
        with stopped_by_signals(relay.stop):
            await relay.run()
    finally:
        await container[AsyncEngine].dispose()


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    run_loop(serve())
