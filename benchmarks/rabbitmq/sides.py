"""The product as measured processes: a relay that publishes, and a consumer with its relay."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import attrs
from lagom import Container

from benchmarks.rabbitmq.broker import topology_named
from benchmarks.relay.parcels import NoteStart
from benchmarks.relay.relaying import alike, metered, relayed
from outbox_kernel.infrastructure.brokers.rabbitmq import rabbitmq
from outbox_kernel.infrastructure.inbox.consumer import Consumer
from outbox_kernel.infrastructure.relay import OutboxRelay

if TYPE_CHECKING:
    from benchmarks.relay.meter import Meter


async def publish(meter: Meter, over: asyncio.Event, *, url: str, broker: str, name: str) -> dict[str, Any]:
    """Relay to the publisher until told to stop; its start counts."""
    meter.begin()
    topology = topology_named(name)
    publisher = topology.publishers[0]
    outlet = rabbitmq(broker).outlet(publisher, topology)
    engine = metered(url, meter)
    await relayed(OutboxRelay(engine, Container(), handlers=[], publishers={publisher: outlet}), over)
    await engine.dispose()
    return {}


async def consume(
    meter: Meter, over: asyncio.Event, *, url: str, broker: str, name: str, handler: str
) -> dict[str, Any]:
    """Consume the queue for one handler, as `outbox consume` does; its start counts."""
    meter.begin()
    topology = topology_named(name)
    queue = topology.queues[0].name
    handlers = [attrs.evolve(each, queue=queue) for each in alike(handler, 1, "beginning")]
    engine = metered(url, meter)
    relay = OutboxRelay(engine, Container(), handlers=handlers, queues=[queue])
    consumer = Consumer(rabbitmq(broker), topology, [queue], engine, relay=relay)
    taking = asyncio.create_task(consumer.run())
    await relayed(relay, over)
    consumer.stop()
    await taking
    await engine.dispose()
    return {"moments_ns": NoteStart.started_ns}
