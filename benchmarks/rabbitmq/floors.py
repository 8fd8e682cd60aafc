"""What stands below: aio-pika alone with pipelined confirms, and aio-pika with asyncpg and nothing else."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import asyncpg
from aio_pika import DeliveryMode, Message

from benchmarks.rabbitmq.broker import connected, stored_messages, topology_named

if TYPE_CHECKING:
    from aio_pika.abc import AbstractIncomingMessage

    from benchmarks.relay.meter import Meter

# Of 100, 200, 500 and 1,000, what the floor is fastest with, or as fast as with any.
WINDOW = 500
PREFETCH = 1_000
BATCH_MAX = 500
CREATE = """
CREATE TABLE IF NOT EXISTS bench_messages (
  message_id uuid PRIMARY KEY, routing_key text NOT NULL, headers jsonb NOT NULL, body jsonb NOT NULL)
"""
INSERT = """
INSERT INTO bench_messages SELECT * FROM unnest($1::uuid[], $2::text[], $3::jsonb[], $4::jsonb[]) ON CONFLICT DO NOTHING
"""


async def publish(meter: Meter, over: asyncio.Event, *, url: str, broker: str, name: str) -> dict[str, Any]:
    """Publish all stored events' messages, many at once."""
    connection = await asyncpg.connect(url)
    waiting = iter(await stored_messages(connection))
    await connection.close()
    channel = await connected(broker)
    exchange = await channel.get_exchange(str(topology_named(name).exchanges[0]), ensure=False)
    sent = 0

    async def work() -> None:
        nonlocal sent
        for found in waiting:
            message = Message(
                found.body,
                headers=dict(found.headers),
                content_type="application/json",
                delivery_mode=DeliveryMode.PERSISTENT,
                message_id=found.message_id,
                type=found.routing_key,
            )
            await exchange.publish(message, found.routing_key, mandatory=True)
            sent += 1

    meter.begin()
    await asyncio.gather(*(work() for _ in range(WINDOW)))
    meter.marked(sent)
    await over.wait()
    return {}


async def consume(
    meter: Meter, over: asyncio.Event, *, url: str, broker: str, name: str, events: int
) -> dict[str, Any]:
    """Take messages, insert what has arrived in one statement, acknowledge."""
    connection = await asyncpg.connect(url)
    await connection.execute(CREATE)
    await connection.execute("TRUNCATE bench_messages")
    channel = await connected(broker)
    await channel.set_qos(prefetch_count=PREFETCH)
    queue = await channel.get_queue(topology_named(name).queues[0].name)
    arrived: list[AbstractIncomingMessage] = []
    changed = asyncio.Event()

    async def take(message: AbstractIncomingMessage) -> None:
        arrived.append(message)
        changed.set()

    meter.begin()
    await queue.consume(take)
    stored = 0
    while stored < events:
        if not arrived:
            changed.clear()
            await changed.wait()
        batch = arrived[:BATCH_MAX]
        await connection.execute(
            INSERT,
            [each.message_id for each in batch],
            [each.routing_key for each in batch],
            [json.dumps(each.headers, default=str) for each in batch],
            [each.body.decode() for each in batch],
        )
        await batch[-1].ack(multiple=True)
        del arrived[: len(batch)]
        stored += len(batch)
        meter.marked(len(batch))
    await over.wait()
    await connection.close()
    return {}
