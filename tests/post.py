"""A post office for tests: exchange and queues of one test, what is sent there, and what lies there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import attrs
from aio_pika import DeliveryMode, Message, connect
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

from outbox_kernel.infrastructure.brokers import Publisher, Queue, Topology
from outbox_kernel.infrastructure.brokers.discovery import discover_topology
from outbox_kernel.infrastructure.brokers.rabbitmq import Address
from outbox_kernel.infrastructure.brokers.rabbitmq.declaring import declare, things
from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
from outbox_kernel.infrastructure.settings import Settings
from tests.brokers import Broker
from tests.proxy import Proxy, proxy_before

MOMENT = "2026-01-02T03:04:05.678901+00:00"


def body_of(what: str, event_id: str, **more: Any) -> dict[str, Any]:
    """What a published `bank.noted` looks like."""
    return {
        "event_id": event_id,
        "occurred_at": MOMENT,
        "what": what,
        "event_type": "bank.noted",
        "aggregate_type": None,
        "aggregate_id": None,
        "timestamp": MOMENT,
        **more,
    }


@attrs.define(eq=False)
class Post:
    """A broker, through a proxy, and a witness that goes past it."""

    broker: Broker
    proxy: Proxy
    address: Address
    witness: AbstractConnection
    topology: Topology
    sent: int = 0

    @property
    def queue(self) -> str:
        """The first queue, for everything that is noted."""
        return self.topology.queues[0].name

    @property
    def dead(self) -> str:
        return self.topology.dead_letter_queue

    async def declare(self) -> None:
        link = Link(self.address, "tests")
        try:
            await declare(link, self.topology)
        finally:
            await link.close()

    async def declare_with_audit(self) -> None:
        """Declare the optional queue, too."""
        self.topology = self.topology.with_optional([self.topology.queues[1].name])
        await self.declare()

    async def note(
        self, *whats: str, of: UUID | None = None, queue: str | None = None, ids: list[str] | None = None
    ) -> list[str]:
        """Send messages as a publisher of ours does, of one aggregate's stream if one is given; return their ids."""
        given = ids or [str(uuid4()) for _ in whats]
        for number, (what, event_id) in enumerate(zip(whats, given, strict=True), start=1):
            headers: dict[str, Any] = {"event_type": "bank.noted", "event_version": 1}
            if of is not None:
                headers |= {
                    "aggregate_type": "bank.wallet",
                    "aggregate_id": str(of),
                    "aggregate_version": number,
                }
            await self.send(
                json.dumps(body_of(what, event_id)).encode(), headers, message_id=event_id, queue=queue
            )
        return given

    async def send(
        self, body: bytes, headers: dict[str, Any], *, message_id: str | None = None, queue: str | None = None
    ) -> None:
        """Put a message into a queue."""
        message = Message(body, headers=headers, message_id=message_id, delivery_mode=DeliveryMode.PERSISTENT)
        async with self.witness.channel() as channel:
            await channel.default_exchange.publish(message, queue or self.queue)

    async def take(self, queue: str | None = None) -> list[AbstractIncomingMessage]:
        """Take what lies in a queue."""
        found = []
        async with self.witness.channel() as channel:
            source = await channel.get_queue(queue or self.queue)
            while (message := await source.get(no_ack=True, fail=False)) is not None:
                found.append(message)
        return found

    async def waiting(self, queue: str | None = None) -> int:
        """How many are ready in a queue."""
        async with self.witness.channel() as channel:
            found = await channel.declare_queue(queue or self.queue, passive=True)
            return found.declaration_result.message_count or 0

    async def is_empty(self, queue: str | None = None) -> bool:
        """Whether nothing is left in a queue whose consumers have gone: what they did not acknowledge is back."""
        return await self.waiting(queue) == 0

    async def sweep(self) -> None:
        # On a connection of its own: tests end others'.
        async with await connect(self.broker.url) as connection, connection.channel() as channel:
            every = self.topology.with_optional(each.name for each in self.topology.queues)
            for thing in things(every):
                with suppress(Exception):
                    await (channel.queue_delete if thing.kind == "queue" else channel.exchange_delete)(
                        thing.name
                    )


def topology(*queues: Queue, patterns: tuple[str, ...] = ("bank.*",)) -> Topology:
    """A publisher of everything of the bank, and queues under names that nobody else has."""
    name = uuid4().hex[:8]
    return Topology.of(
        [Publisher(f"{name}-bank", patterns)],
        queues or [Queue(f"{name}.notes", ("bank.*",)), Queue(f"{name}.audit", ("#",), optional=True)],
        exchange=f"{name}.bank",
        dead_letter_exchange=f"{name}.dlx",
        dead_letter_queue=f"{name}.dlq",
    )


@asynccontextmanager
async def post_at(broker: Broker) -> AsyncIterator[Post]:
    """A post office in a broker, swept at the end."""
    parts = urlsplit(broker.url)
    async with proxy_before(parts.hostname or "", parts.port or 5672) as proxy:
        through = parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{proxy.here}")
        witness = await connect(broker.url)
        post = Post(broker, proxy, Address.parse(through.geturl()), witness, topology())
        try:
            yield post
        finally:
            await post.sweep()
            await witness.close()


async def sweep_contexts(url: str) -> None:
    """Take away what the contexts of this repository declare; in a vhost of this run it is nobody else's."""
    found = discover_topology(Settings())
    async with await connect(url) as connection, connection.channel() as channel:
        for thing in things(found.with_optional(each.name for each in found.queues)):
            await (channel.queue_delete if thing.kind == "queue" else channel.exchange_delete)(thing.name)
