"""The product as measured processes: a relay that publishes, and a consumer with its relay."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import attrs
from lagom import Container

from benchmarks.databases import dsn_of
from benchmarks.rabbitmq.broker import topology_named
from benchmarks.relay.parcels import NoteStart
from outbox_kernel.infrastructure.brokers.rabbitmq import rabbitmq
from outbox_kernel.infrastructure.consumer.consumer import Consumer
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.kernel.handlers import registered_handlers

if TYPE_CHECKING:
    from benchmarks.relay.meter import Meter

LOOK_SECONDS = 0.02
LEFT = "SELECT count(*) FROM outbox_events WHERE status = 'delivered'"


async def publish(
    meter: Meter, over: asyncio.Event, *, url: str, broker: str, name: str, events: int = 0
) -> dict[str, Any]:
    """Relay to the publisher until told to stop; or, of a known backlog, tell when it is published."""
    topology = topology_named(name)
    publisher = topology.publishers[0]
    engine = create_engine(url)
    outlet = rabbitmq(broker).outlet(publisher, topology)
    relay = OutboxRelay(engine, Container(), handlers=[], publishers={publisher: outlet})
    meter.begin()
    running = asyncio.create_task(relay.run())
    await _until_done(meter, over, url, events)
    relay.stop()
    await running
    await engine.dispose()
    return {}


async def consume(
    meter: Meter,
    over: asyncio.Event,
    *,
    url: str,
    broker: str,
    name: str,
    handler: str,
    events: int = 0,
) -> dict[str, Any]:
    """Consume the queue for one handler, as `outbox consume` does."""
    topology = topology_named(name)
    queue = topology.queues[0].name
    [found] = [each for each in registered_handlers() if each.name == handler]
    engine = create_engine(url)
    relay = OutboxRelay(engine, Container(), handlers=[attrs.evolve(found, queue=queue)], queues=[queue])
    consumer = Consumer(rabbitmq(broker), topology, [queue], engine, relay=relay)
    meter.begin()
    relaying, taking = asyncio.create_task(relay.run()), asyncio.create_task(consumer.run())
    await _until_done(meter, over, url, events)
    consumer.stop()
    await taking
    relay.stop()
    await relaying
    await engine.dispose()
    return {"moments_ns": NoteStart.started_ns}


async def _until_done(meter: Meter, over: asyncio.Event, url: str, events: int) -> None:
    """Wait until so many are delivered, then until told to stop."""
    connection = await asyncpg.connect(dsn_of(url))
    while events and await connection.fetchval(LEFT) < events:  # noqa: ASYNC110 - the database tells nobody
        await asyncio.sleep(LOOK_SECONDS)
    await connection.close()
    if events:
        meter.marked(events)
    await over.wait()
