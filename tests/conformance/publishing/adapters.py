"""A stage per adapter of both ports: how to see what arrived, and how to make its broker fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol
from urllib.parse import urlsplit
from uuid import uuid4

import attrs
from aio_pika import connect
from aio_pika.abc import AbstractConnection

from outbox_kernel.infrastructure.brokers import Inlet, Message, Outlet, Publisher, Queue, Topology
from outbox_kernel.infrastructure.brokers.memory import MemoryBroker, MemoryOutlet
from outbox_kernel.infrastructure.brokers.rabbitmq import Address, rabbitmq
from outbox_kernel.infrastructure.brokers.rabbitmq.declaring import things
from outbox_kernel.infrastructure.brokers.rabbitmq.outlet import RabbitOutlet
from tests.brokers import MESSAGE_BYTES_MAX, Broker
from tests.proxy import Proxy, proxy_before

BYTES_MAX = MESSAGE_BYTES_MAX
SOON_SECONDS = 0.3


def topology() -> Topology:
    """A publisher with three queues, one of which holds a single message."""
    name = uuid4().hex[:8]
    publishers = [Publisher("shop", ("order.*", "stock.*"))]
    queues = [
        Queue(f"{name}.orders", ("order.*",)),
        Queue(f"{name}.narrow", ("stock.*",), arguments={"x-max-length": 1, "x-overflow": "reject-publish"}),
        Queue(f"{name}.audit", ("#",), optional=True),
    ]
    return Topology.of(
        publishers,
        queues,
        exchange=f"{name}.shop",
        dead_letter_exchange=f"{name}.dlx",
        dead_letter_queue=f"{name}.dlq",
    )


class Stage(Protocol):
    """What a test of the port needs."""

    topology: Topology

    def outlet(self, topology: Topology | None = None) -> Outlet:
        """An outlet of the first publisher."""

    def inlet(self, queue: str, *, prefetch: int) -> Inlet:
        """An inlet of a queue; it is closed at the end."""

    async def arrived(self, queue: str) -> list[Message]:
        """Take what is in a queue; it must exist."""

    async def exists(self, queue: str) -> bool:
        """Whether there is such a queue."""

    async def delete(self, queue: str) -> None:
        """Delete a queue."""

    async def go_down(self) -> None:
        """Let nothing answer."""

    async def come_back(self) -> None:
        """Let it answer again."""

    def fall_silent(self) -> None:
        """Confirm nothing any more; outlets do not wait for long."""


@attrs.define(eq=False)
class InMemory:
    """The broker in memory."""

    broker: MemoryBroker = attrs.Factory(lambda: MemoryBroker(message_bytes_max=BYTES_MAX))
    topology: Topology = attrs.Factory(topology)

    def outlet(self, topology: Topology | None = None) -> MemoryOutlet:
        found = topology or self.topology
        return self.broker.outlet(found.publishers[0], found)

    def inlet(self, queue: str, *, prefetch: int) -> Inlet:
        return self.broker.inlet(queue, self.topology, prefetch=prefetch)

    async def arrived(self, queue: str) -> list[Message]:
        messages, self.broker.queues[queue] = self.broker.queues[queue], []
        return messages

    async def exists(self, queue: str) -> bool:
        return queue in self.broker.queues

    async def delete(self, queue: str) -> None:
        self.broker.delete(queue)

    async def go_down(self) -> None:
        self.broker.down = "it is down"

    async def come_back(self) -> None:
        self.broker.down = None

    def fall_silent(self) -> None:
        self.broker.silent = True


@attrs.define(eq=False)
class OnRabbit:
    """RabbitMQ behind a proxy, with a witness that goes past it."""

    proxy: Proxy
    address: Address
    witness: AbstractConnection
    topology: Topology = attrs.Factory(topology)
    outlets: list[RabbitOutlet] = attrs.Factory(list)
    inlets: list[Inlet] = attrs.Factory(list)

    def outlet(self, topology: Topology | None = None) -> RabbitOutlet:
        found = topology or self.topology
        outlet = rabbitmq(self.address).outlet(found.publishers[0], found)
        assert isinstance(outlet, RabbitOutlet)
        self.outlets.append(outlet)
        return outlet

    def inlet(self, queue: str, *, prefetch: int) -> Inlet:
        self.inlets.append(rabbitmq(self.address).inlet(queue, self.topology, prefetch=prefetch))
        return self.inlets[-1]

    async def arrived(self, queue: str) -> list[Message]:
        found: list[Message] = []
        async with self.witness.channel() as channel:
            source = await channel.get_queue(queue)
            while (message := await source.get(no_ack=True, fail=False)) is not None:
                headers: Any = message.headers
                found.append(
                    Message(str(message.message_id), str(message.routing_key), message.body, headers)
                )
        return found

    async def exists(self, queue: str) -> bool:
        with suppress(Exception):
            async with self.witness.channel() as channel:
                await channel.get_queue(queue)
                return True
        return False

    async def delete(self, queue: str) -> None:
        async with self.witness.channel() as channel:
            await channel.queue_delete(queue)

    async def go_down(self) -> None:
        await self.proxy.close()

    async def come_back(self) -> None:
        await self.proxy.open()

    def fall_silent(self) -> None:
        self.proxy.answers.clear()
        for outlet in self.outlets:
            outlet.confirm_seconds_max = SOON_SECONDS

    async def sweep(self) -> None:
        async with self.witness.channel() as channel:
            for thing in things(self.topology.with_optional(each.name for each in self.topology.queues)):
                await (channel.queue_delete if thing.kind == "queue" else channel.exchange_delete)(thing.name)


@asynccontextmanager
async def on_rabbit(broker: Broker) -> AsyncIterator[OnRabbit]:
    """A stage in a broker, swept at the end."""
    parts = urlsplit(broker.url)
    async with proxy_before(parts.hostname or "", parts.port or 5672) as proxy:
        through = parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{proxy.here}")
        witness = await connect(broker.url)
        stage = OnRabbit(proxy, Address.parse(through.geturl()), witness)
        try:
            yield stage
        finally:
            for outlet in stage.outlets:
                await outlet.close()
            for inlet in stage.inlets:
                await inlet.close()
            await stage.sweep()
            await witness.close()


__all__ = ["InMemory", "OnRabbit", "Stage", "on_rabbit", "topology"]
