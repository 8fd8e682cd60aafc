"""A connection to RabbitMQ: opened when needed, dropped when broken, each step with a deadline (T4, R12)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from aio_pika import connect
from pamqp.header import ContentHeader

from outbox_kernel.infrastructure.brokers.rabbitmq.decoding import read_whatever_comes
from outbox_kernel.infrastructure.brokers.rabbitmq.limits import (
    ANSWER_SECONDS_MAX,
    CLOSE_SECONDS_MAX,
    FRAME_BYTES_MAX,
    FRAMES_MAX,
)
from outbox_kernel.infrastructure.brokers.rabbitmq.trouble import TROUBLE, explained

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aio_pika.abc import AbstractChannel, AbstractConnection
    from aiormq import Channel as WireChannel
    from pamqp.commands import Basic

    from outbox_kernel.infrastructure.brokers.rabbitmq.address import Address


class Link:
    """One connection and what is opened on it. Not aio-pika's robust one: the relay decides when to try again."""

    def __init__(
        self, address: Address, name: str, *, answer_seconds_max: float = ANSWER_SECONDS_MAX
    ) -> None:
        self.address = address
        self.name = name
        self._answer_seconds_max = answer_seconds_max
        self._connection: AbstractConnection | None = None
        self.frame_bytes_max = FRAME_BYTES_MAX
        """What the broker last took at once: all headers of a message are in one frame, its body is cut."""
        self.told: frozenset[str] = frozenset()
        """What the log has been told of the topology, so that it is not told again at each connection."""
        self._turn = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that nobody has closed."""
        return self._connection is not None and self._connection.connected.is_set()

    async def channel(self, *, confirms: bool = True) -> AbstractChannel:
        """Open a channel, on a new connection if there is none."""
        async with self.step(self._answer_seconds_max):
            connection = await self._connected()
            channel = connection.channel(publisher_confirms=confirms, on_return_raises=confirms)
            await channel.initialize()
        return channel

    async def blocked(self) -> bool:
        """Whether the broker has asked us to send nothing: an alarm of its memory or its disk."""
        if self._connection is None or self._connection.transport is None:
            return False
        try:
            async with asyncio.timeout(0):
                await self._connection.transport.ready()
        except TimeoutError:
            return True
        return False

    async def unblocked(self) -> None:
        """Return when the broker takes messages again; in time, or with TimeoutError."""
        if self._connection is not None and self._connection.transport is not None:
            async with asyncio.timeout(self._answer_seconds_max):
                await self._connection.transport.ready()

    def drop(self) -> None:
        """Let go of the connection; it is closed meanwhile."""
        connection, self._connection = self._connection, None
        if connection is not None:
            task = asyncio.get_running_loop().create_task(_close(connection), name="outbox-broker-close")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Hang up."""
        self.drop()
        if self._closing:
            await asyncio.wait(self._closing)

    @asynccontextmanager
    async def step(self, seconds_max: float) -> AsyncIterator[None]:
        """Give what is done inside so much time, and raise what goes wrong there as a sentence."""
        with explained(self.address, seconds_max):
            async with asyncio.timeout(seconds_max):
                yield

    async def __aenter__(self) -> Self:
        """Use it once."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Hang up."""
        await self.close()

    async def _connected(self) -> AbstractConnection:
        async with self._turn:
            if not self.is_open:
                self.drop()
                read_whatever_comes()
                # The deadline is the caller's.
                with explained(self.address, self._answer_seconds_max, greeting=True):
                    self._connection = await connect(
                        self.address.url, client_properties={"connection_name": self.name}
                    )
                self._tune(self._connection)
            assert self._connection is not None  # noqa: S101 - just made
            return self._connection

    def _tune(self, connection: AbstractConnection) -> None:
        assert connection.transport is not None  # noqa: S101 - it is connected
        underlay: Any = connection.transport.connection
        underlay.channel = partial(underlay.channel, frame_buffer_size=FRAMES_MAX)
        self.frame_bytes_max = underlay.connection_tune.frame_max or self.frame_bytes_max


async def wire_of(channel: AbstractChannel) -> WireChannel:
    """Return the lower half of a channel, which does what costs most per message by itself."""
    return cast("WireChannel", await channel.get_underlay_channel())


def header_bytes(properties: Basic.Properties) -> int:
    """Return how much a message's properties and headers take in their frame."""
    return len(ContentHeader(properties=properties).marshal())


async def _close(connection: AbstractConnection) -> None:
    """Say goodbye; a broker that is blocked or gone does not answer."""
    with suppress(*TROUBLE, asyncio.CancelledError):
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await connection.close()
