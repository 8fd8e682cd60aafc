"""One queue's intake: a buffer that the broker fills, and batches of it on their way into the outbox (T3)."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

import attrs
from aio_pika.exceptions import ChannelNotFoundEntity
from aiormq.exceptions import ChannelAccessRefused

from outbox_kernel.infrastructure.brokers.rabbitmq.trouble import (
    BrokerForbids,
    BrokerRefusal,
    BrokerUnreachable,
    explained,
)
from outbox_kernel.infrastructure.consumer.burying import Burying
from outbox_kernel.infrastructure.consumer.reading import Received, Unstorable, read
from outbox_kernel.infrastructure.consumer.storing import Stored
from outbox_kernel.infrastructure.consumer.troubles import pause
from outbox_kernel.infrastructure.postgres.connections import TROUBLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

    from outbox_kernel.infrastructure.brokers.rabbitmq.address import Address
    from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
    from outbox_kernel.infrastructure.brokers.topology import Topology
    from outbox_kernel.infrastructure.consumer.burying import Dead
    from outbox_kernel.infrastructure.consumer.storing import Storage
    from outbox_kernel.infrastructure.consumer.troubles import Trouble
    from outbox_kernel.infrastructure.relay.due_turns import TurnKey
    from outbox_kernel.infrastructure.relay.line import Line

BATCH_MAX = 500
# Of bodies; few batches come near it, but the largest messages together would be more than a call's deadline allows.
BATCH_BYTES_MAX = 16 * 1024 * 1024
GATHER_SECONDS = 0.005
STEP_SECONDS_MAX = 10.0


class QueueMissing(BrokerRefusal):
    """Nobody has declared the queue."""


@attrs.define(eq=False)
class Intake:
    """What a queue has given us and we have not acknowledged."""

    storage: Storage
    line: Line
    prefetch: int
    on_stored: Callable[[Sequence[TurnKey]], None]
    on_settled: Callable[[], None]
    """Called when messages are out of the queue."""
    trouble: Trouble
    """With the database."""
    dead_letters: Topology
    letters: Link
    """Where dead letters are sent; not the connection that consumes."""
    letters_trouble: Trouble
    _link: Link | None = None
    _channel: AbstractChannel | None = None
    _tag: str = ""
    _arrived: list[AbstractIncomingMessage] = attrs.Factory(list)
    _changed: asyncio.Event = attrs.Factory(asyncio.Event)
    _lost: bool = False
    _ending: asyncio.Event = attrs.Factory(asyncio.Event)
    burying: Burying = attrs.field(init=False)
    _store_at: float = 0.0

    @burying.default
    def _burying_of_its_own(self) -> Burying:
        return Burying(
            self.queue,
            self.dead_letters,
            self.letters,
            self.letters_trouble,
            self._ending,
            acknowledge=lambda message: self.acknowledge(message, multiple=False),
            reject=self._reject,
            on_settled=self.on_settled,
        )

    @property
    def queue(self) -> str:
        """Its name."""
        return self.storage.queue

    async def open(self, link: Link) -> None:
        """Begin to take messages."""
        self._arrived, self._lost, self._link = [], False, link
        self._ending.clear()
        channel = self._channel = await link.channel(confirms=False)
        try:
            with explained(link.address, STEP_SECONDS_MAX):
                async with asyncio.timeout(STEP_SECONDS_MAX):
                    await self._begin(channel)
        except BrokerRefusal as refusal:
            raise self._mended(refusal, link.address) from refusal

    async def _begin(self, channel: AbstractChannel) -> None:
        await channel.set_qos(prefetch_count=self.prefetch)
        queue = await channel.get_queue(self.queue)
        # The broker ends a consumer whose queue is deleted, and a channel's end ends its consumers.
        on_lost = partial(self._on_lost, channel)
        (await channel.get_underlay_channel()).on_consumer_cancel_callbacks.add(on_lost)
        channel.close_callbacks.add(on_lost)
        self._tag = await queue.consume(self._take)

    def _mended(self, refusal: BrokerRefusal, address: Address) -> BrokerRefusal:
        """Say what to do about it, where that is known."""
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

    async def serve(self) -> None:
        """Store what arrives, until the queue is lost."""
        while True:
            if not self._arrived:
                if self._lost:
                    raise BrokerUnreachable(
                        f"queue {self.queue!r} gives no more: it was deleted, or its channel closed"
                    )
                self._changed.clear()
                await self._changed.wait()
                continue
            rest = self._store_at - time.monotonic()
            if rest > 0 and len(self._arrived) < BATCH_MAX:
                # The first message is stored at once, those that trickle in after it together.
                await asyncio.sleep(rest)
            await self._store_batch()
            self._store_at = time.monotonic() + GATHER_SECONDS

    async def is_empty(self) -> bool:
        """Whether there is nothing in the queue, and nothing of it here."""
        if self._holds_any or self._channel is None or self._link is None:
            return False
        with explained(self._link.address, STEP_SECONDS_MAX):
            found = await self._channel.declare_queue(self.queue, passive=True, timeout=STEP_SECONDS_MAX)
        return not found.declaration_result.message_count and not self._holds_any

    @property
    def _holds_any(self) -> bool:
        return bool(self._arrived) or self.burying.keeps_any

    async def drain(self) -> None:
        """Take no more, and store what has been taken."""
        self._ending.set()
        if self._channel is not None and not self._channel.is_closed and self._link is not None:
            with explained(self._link.address, STEP_SECONDS_MAX):
                async with asyncio.timeout(STEP_SECONDS_MAX):
                    await (await self._channel.get_underlay_channel()).basic_cancel(self._tag)
        while self._arrived:
            self._changed.clear()
            await self._changed.wait()
        await self.burying.drain()

    def let_go(self) -> None:
        """Forget what is here: it is not acknowledged, so it comes again, and with it what was wrong with it."""
        self._arrived, self._channel = [], None
        self.burying.let_go()
        self.trouble.end(may_come_back=True)

    async def close(self) -> None:
        """Hang up."""
        await self.burying.close()
        await self.line.close()

    async def _take(self, message: AbstractIncomingMessage) -> None:
        self._arrived.append(message)
        self._changed.set()

    def _on_lost(self, channel: AbstractChannel, *_: object) -> None:
        # One that was let go may end only when the next is open.
        if channel is self._channel:
            self._lost = True
            self._changed.set()

    # --- a batch ------------------------------------------------------------------------------------

    def _batch(self) -> list[AbstractIncomingMessage]:
        """Return what is stored next: the first message, and those behind it as far as they fit."""
        batch, left = self._arrived[:BATCH_MAX], BATCH_BYTES_MAX
        for number, message in enumerate(batch):
            left -= len(message.body)
            if left < 0:
                return batch[: max(1, number)]
        return batch

    async def _store_batch(self) -> None:
        batch = self._batch()
        events: list[Received] = []
        dead: list[Dead] = []
        by_event: dict[object, AbstractIncomingMessage] = {}
        for message in batch:
            try:
                event = read(message.message_id, message.headers, message.body)
            except Unstorable as error:
                dead.append((message, str(error)))
            else:
                events.append(event)
                by_event[event.event_id] = message
        stored = await self._store(events) if events else Stored()
        dead += [(by_event[event_id], reason) for event_id, reason in stored.refused.items()]
        if stored.turns:
            self.on_stored(stored.turns)
        await self._settle(batch, dead)
        del self._arrived[: len(batch)]
        self._changed.set()

    async def _settle(self, batch: Sequence[AbstractIncomingMessage], dead: Sequence[Dead]) -> None:
        """Acknowledge what is stored, and leave the rest to be buried."""
        if dead or self.burying.keeps_any:
            unstored = {message.delivery_tag for message, _ in dead}
            for message in batch:
                if message.delivery_tag not in unstored:
                    await self.acknowledge(message, multiple=False)
        else:
            await self.acknowledge(batch[-1])
        if dead:
            self.burying.take(dead)
        if len(dead) < len(batch):
            self.on_settled()

    async def _store(self, events: Sequence[Received]) -> Stored:
        """Store them as soon as the database does. They are kept: a queue may count how often it gives a message."""
        failures = 0
        while True:
            try:
                stored = await self.storage.store(self.line, events)
            except TROUBLE as error:
                if self._ending.is_set():
                    raise
                failures += 1
                self.trouble.begin(error)
                await pause(failures, self._ending)
            else:
                if failures:
                    self.trouble.end()
                return stored

    async def acknowledge(self, last: AbstractIncomingMessage, *, multiple: bool = True) -> None:
        """Say that this one and all before it are ours; what is not heard comes again, and is known by its id."""
        if self._lost or self._link is None:
            return
        with explained(self._link.address, STEP_SECONDS_MAX):
            async with asyncio.timeout(STEP_SECONDS_MAX):
                await last.ack(multiple=multiple)

    async def _reject(self, message: AbstractIncomingMessage) -> None:
        """Let the broker take it for dead."""
        if self._lost or self._link is None:
            return
        with explained(self._link.address, STEP_SECONDS_MAX):
            async with asyncio.timeout(STEP_SECONDS_MAX):
                await message.reject(requeue=False)
