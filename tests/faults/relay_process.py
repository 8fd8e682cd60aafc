"""A relay as a process of its own: `python -m tests.faults.relay_process`, told all by its environment."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from typing import Any

from lagom import Container, Singleton
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

import tests.faults.handlers
import tests.faults.unruly  # noqa: F401 - registers its handler
from outbox_kernel.infrastructure.brokers import Outlet, Publisher
from outbox_kernel.infrastructure.brokers.rabbitmq import rabbitmq
from outbox_kernel.infrastructure.brokers.rabbitmq.inlet import RabbitInlet
from outbox_kernel.infrastructure.cli import leaving
from outbox_kernel.infrastructure.cli.consume import serve_until
from outbox_kernel.infrastructure.cli.serving import run_loop, stopped_by_signals
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork, create_engine, session_factory
from outbox_kernel.infrastructure.inbox.consumer import Consumer
from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
from outbox_kernel.kernel.handlers import registered_handlers
from tests.faults.parent import end_with_parent
from tests.faults.town import QUEUE, topology


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
    if os.environ.get("FAULTS_CONSUME"):
        await consume()
        return
    carried = os.environ["FAULTS_CARRIED"].split(",")
    handlers = [each for each in registered_handlers() if each.name in carried]
    container = container_of(os.environ["DATABASE_URL"])
    relay = OutboxRelay(
        container[AsyncEngine],
        container,
        handlers=handlers,
        publishers=publishers(),
        settings=RelaySettings.from_environment(),
    )
    end_with_parent()
    try:
        with stopped_by_signals(relay.stop):
            await relay.run()
    finally:
        await container[AsyncEngine].dispose()


def publishers() -> dict[Publisher, Outlet]:
    """What there is to publish, where there is a broker."""
    url = os.environ.get("RABBITMQ_URL")
    if url is None:
        return {}
    found = topology()
    return {each: rabbitmq(url).outlet(each, found) for each in found.publishers}


async def consume() -> None:
    """Take and handle until SIGTERM, as `outbox consume` does."""
    import tests.faults.consumed  # noqa: F401 - registers its handler

    container = container_of(os.environ["DATABASE_URL"])
    engine, stopping = container[AsyncEngine], asyncio.Event()
    relay = OutboxRelay(engine, container, queues=[QUEUE], settings=RelaySettings.from_environment())
    prefetch = int(os.environ.get("FAULTS_PREFETCH", "1000"))
    consumer = Consumer(
        rabbitmq(os.environ["RABBITMQ_URL"]), topology(), [QUEUE], engine, relay=relay, prefetch=prefetch
    )
    _may_die()
    end_with_parent()
    try:
        with stopped_by_signals(stopping.set):
            await serve_until(relay, consumer, stopping)
    finally:
        await engine.dispose()


def _may_die() -> None:
    """Die between a commit and its acknowledgement, now and then."""
    share, before = float(os.environ.get("FAULTS_DIE_BEFORE_ACK", "0")), RabbitInlet.acknowledge

    async def may_die(self: RabbitInlet, messages: Any) -> None:
        if random.random() < share:
            os._exit(9)
        await before(self, messages)

    RabbitInlet.acknowledge = may_die  # type: ignore[method-assign]


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    run_loop(serve())
    leaving.end(0)  # in spite of what unruly handlers have left behind, as the command does
