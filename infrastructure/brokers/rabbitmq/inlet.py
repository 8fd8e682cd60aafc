"""One queue of RabbitMQ: a buffer that the broker fills, on a channel without confirms (T3, T4)."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

import attrs
from aio_pika import IncomingMessage
from aio_pika.exceptions import ChannelNotFoundEntity
from aiormq.exceptions import ChannelAccessRefused

from outbox_kernel.infrastructure.brokers.port import (
    BrokerForbids,
    BrokerRefusal,
    BrokerUnreachable,
    Incoming,
    QueueMissing,
)
from outbox_kernel.infrastructure.brokers.rabbitmq.declaring import declare
from outbox_kernel.infrastructure.brokers.rabbitmq.limits import STEP_SECONDS_MAX
from outbox_kernel.infrastructure.brokers.rabbitmq.link import wire_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aio_pika.abc import AbstractChannel
    from aiormq.abc import DeliveredMessage

    from outbox_kernel.infrastructure.brokers.rabbitmq.burying import Burial
    from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
    from outbox_kernel.infrastructure.brokers.topology import Topology


@attrs.define(eq=False)
class RabbitInlet:
    """Consumes on one connection and buries on another.

    In an alarm the broker reads nothing more from one that has published, no acknowledgements either.
    """

    queue: str
    topology: Topology
    prefetch: int
    link: Link
    burial: Burial
    system: ClassVar[str] = "rabbitmq"
    _channel: AbstractChannel | None = None
    _tag: str = ""
    _arrived: list[Incoming] = attrs.Factory(list)
    _held: dict[int, None] = attrs.Factory(dict)
    """The delivery tags of what is not settled, in their order."""
    _changed: asyncio.Event = attrs.Factory(asyncio.Event)
    _is_lost: bool = False
    _is_finished: bool = False

    async def open(self) -> None:
        """Begin to take messages."""
        await declare(self.link, self.topology)
        self._is_lost = self._is_finished = False
        channel = self._channel = await self.link.channel(confirms=False)
        try:
            async with self.link.step(STEP_SECONDS_MAX):
                await self._begin(channel)
        except BrokerRefusal as refusal:
            raise self._mended(refusal) from refusal

    async def receive(self, most: int) -> Sequence[Incoming]:
        """Await messages, and return what the broker has pushed."""
        while not self._arrived:
            if self._is_finished:
                return []
            if self._is_lost:
                raise BrokerUnreachable(
                    f"queue {self.queue!r} gives no more: it was deleted, or its channel closed"
                )
            self._changed.clear()
            await self._changed.wait()
        found, self._arrived = self._arrived[:most], self._arrived[most:]
        return found

    async def acknowledge(self, messages: Sequence[Incoming]) -> None:
        """Acknowledge them, at once where all before them is settled."""
        tags = [each.handle.delivery_tag for each in messages]
        is_all = tags == [*islice(self._held, len(tags))]
        for each in messages[-1:] if is_all else messages:
            message = each.handle
            await self._settle(partial(message.channel.basic_ack, message.delivery_tag, multiple=is_all))
        for tag in tags:
            self._held.pop(tag, None)

    async def bury(self, message: Incoming, reason: str, on_wait: Callable[[BrokerRefusal], None]) -> None:
        """Send it to the dead letters, then acknowledge it."""
        delivered: DeliveredMessage = message.handle
        if await self.burial.bury(IncomingMessage(delivered), reason, on_wait):
            await self.acknowledge([message])
        else:
            tag = delivered.delivery_tag or 0
            # By the queue's own way it goes without a reason.
            await self._settle(partial(delivered.channel.basic_reject, tag, requeue=False))
            self._held.pop(tag, None)

    async def is_empty(self) -> bool:
        """Ask the broker what is ready."""
        if self._held or self._channel is None:
            return False
        async with self.link.step(STEP_SECONDS_MAX):
            found = await self._channel.declare_queue(self.queue, passive=True)
        return not found.declaration_result.message_count and not self._held

    async def finish(self) -> None:
        """Consume no more."""
        if self._channel is not None and not self._channel.is_closed:
            async with self.link.step(STEP_SECONDS_MAX):
                await (await wire_of(self._channel)).basic_cancel(self._tag)
        self._is_finished = True
        self._changed.set()

    async def put_back(self) -> None:
        """End the connection: what is given back one by one would come again out of its order."""
        self.link.drop()
        self._arrived, self._held, self._channel = [], {}, None

    async def close(self) -> None:
        """Hang up."""
        await self.put_back()
        await self.link.close()
        await self.burial.close()

    async def _begin(self, channel: AbstractChannel) -> None:
        await channel.set_qos(prefetch_count=self.prefetch)
        wire = await wire_of(channel)
        # The broker ends a consumer whose queue is deleted, and a channel's end ends its consumers.
        on_lost = partial(self._on_lost, channel)
        wire.on_consumer_cancel_callbacks.add(on_lost)
        channel.close_callbacks.add(on_lost)
        # By the lower half: the upper one makes a task and an object more of each message.
        found = await wire.basic_consume(self.queue, partial(self._take, channel))
        assert found.consumer_tag is not None  # noqa: S101 - the broker names each
        self._tag = found.consumer_tag

    async def _take(self, channel: AbstractChannel, message: DeliveredMessage) -> None:
        tag = message.delivery_tag
        # A channel that was let go may end only when the next is open.
        if channel is self._channel and tag is not None:
            self._held[tag] = None
            told = message.header.properties
            self._arrived.append(Incoming(told.message_id, told.headers or {}, message.body, message))
            self._changed.set()

    def _on_lost(self, channel: AbstractChannel, *_: object) -> None:
        if channel is self._channel:
            self._is_lost = True
            self._changed.set()

    async def _settle(self, answer: Callable[[], Awaitable[None]]) -> None:
        """Tell the broker; what it does not hear comes again, and is known by its id."""
        if not self._is_lost:
            async with self.link.step(STEP_SECONDS_MAX):
                await answer()

    def _mended(self, refusal: BrokerRefusal) -> BrokerRefusal:
        """Say what to do about it, where that is known."""
        address = self.link.address
        if isinstance(refusal.__cause__, ChannelNotFoundEntity):
            return QueueMissing(
                f"there is no queue {self.queue!r} in vhost {address.vhost!r} at {address}, and no context declares "
                "it: correct the name, name its context in OUTBOX_CONTEXTS, or have its owner make it"
            )
        if isinstance(refusal.__cause__, ChannelAccessRefused):
            return BrokerForbids(
                f"user {address.user!r} may not read queue {self.queue!r} at {address}: grant it with "
                f"`rabbitmqctl set_permissions -p {address.vhost} {address.user} '.*' '.*' '.*'`"
            )
        return refusal
