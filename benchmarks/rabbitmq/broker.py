"""The ground on the broker's side: an exchange and a queue of one measurement's own, and what lies in it."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import attrs
from aio_pika import connect

from outbox_kernel.infrastructure.brokers import Message, Publisher, Queue, Topology
from outbox_kernel.infrastructure.brokers.messages import message_of
from outbox_kernel.infrastructure.brokers.rabbitmq import Address
from outbox_kernel.infrastructure.brokers.rabbitmq.declaring import declare, things
from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
from outbox_kernel.infrastructure.outbox.sql.fragments import EVENT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg
    from aio_pika.abc import AbstractChannel

LOCAL = "amqp://guest:guest@127.0.0.1:5672/"
STORED = f"SELECT {EVENT} FROM outbox_events AS event ORDER BY position"  # noqa: S608 - ours


def broker_url() -> str:
    """Say where the broker is that is measured."""
    return os.environ.get("RABBITMQ_URL", "").strip() or LOCAL


def topology_named(name: str) -> Topology:
    """Return what one measurement declares; every process of it makes the same of the name."""
    return Topology.of(
        [Publisher(name, ("bench.*",))],
        [Queue(f"{name}.parcels", ("bench.#",))],
        exchange=f"{name}.bench",
        dead_letter_exchange=f"{name}.dlx",
        dead_letter_queue=f"{name}.dlq",
    )


@attrs.frozen
class Ground:
    """An exchange and a queue."""

    url: str
    name: str
    channel: AbstractChannel

    @property
    def topology(self) -> Topology:
        """What is declared."""
        return topology_named(self.name)

    @property
    def queue(self) -> str:
        """The queue."""
        return self.topology.queues[0].name

    async def empty(self) -> None:
        """Leave nothing in the queue."""
        queue = await self.channel.get_queue(self.queue)
        await queue.purge()

    async def waiting(self) -> int:
        """Count what lies in the queue."""
        queue = await self.channel.declare_queue(self.queue, passive=True)
        return queue.declaration_result.message_count or 0


@asynccontextmanager
async def prepared() -> AsyncIterator[Ground]:
    """Declare a topology, and take it away again."""
    url, name = broker_url(), f"outbox-bench-{uuid4().hex[:8]}"
    link = Link(Address.parse(url), "outbox bench")
    try:
        await declare(link, topology_named(name))
        channel = await link.channel()
        yield Ground(url, name, channel)
        for thing in things(topology_named(name)):
            await (channel.queue_delete if thing.kind == "queue" else channel.exchange_delete)(thing.name)
    finally:
        await link.close()


async def stored_messages(connection: asyncpg.Connection) -> list[Message]:
    """Return the bodies and headers of all stored events, as they are published."""
    return [message_of(row) for row in await connection.fetch(STORED, record_class=LoggedEvent)]


async def connected(url: str) -> AbstractChannel:
    """Open a channel with confirms, as bare as can be."""
    channel = (await connect(url)).channel(on_return_raises=True)
    await channel.initialize()
    return channel
