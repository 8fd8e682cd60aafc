"""One queue's intake: a buffer that the broker fills, and batches of it on their way into the outbox (T3)."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError
from aiormq.exceptions import ChannelAccessRefused

from infrastructure.brokers.rabbitmq.link import header_bytes
from infrastructure.brokers.rabbitmq.trouble import BrokerForbids, BrokerRefusal, BrokerUnreachable, explained
from infrastructure.connections import TROUBLE
from infrastructure.consumer.letters import letter_of
from infrastructure.consumer.reading import Received, Unstorable, read
from infrastructure.consumer.storing import Stored
from kernel.retry import EXPONENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aio_pika import Message
    from aio_pika.abc import AbstractChannel, AbstractExchange, AbstractIncomingMessage

    from infrastructure.brokers.rabbitmq.address import Address
    from infrastructure.brokers.rabbitmq.link import Link
    from infrastructure.consumer.storing import Storage
    from infrastructure.relay.due_turns import TurnKey
    from infrastructure.relay.line import Line

_log = logging.getLogger("outbox.consumer")

BATCH_MAX = 500
# Of bodies; few batches come near it, but the largest messages together would be more than a call's deadline allows.
BATCH_BYTES_MAX = 16 * 1024 * 1024
GATHER_SECONDS = 0.005
STEP_SECONDS_MAX = 10.0
# The third delay of EXPONENTIAL: who is back is found within seconds.
FAILURES_COUNTED_MAX = 3


async def pause(failures: int, end: asyncio.Event) -> None:
    """Wait before the next try, unless there is to be none."""
    seconds = EXPONENTIAL.delay_after(min(failures, FAILURES_COUNTED_MAX)) or 0
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await end.wait()


class QueueMissing(BrokerRefusal):
    """Nobody has declared the queue."""


@attrs.define(eq=False)
class Intake:
    """What a queue has given us and we have not acknowledged."""

    storage: Storage
    line: Line
    prefetch: int
    dead_letter_exchange: str
    on_stored: Callable[[Sequence[TurnKey]], None]
    on_settled: Callable[[], None]
    """Called when a batch is out of the queue."""
    on_trouble: Callable[[BaseException, int], None]
    """Called each time when the database takes nothing, with how often that was."""
    _link: Link | None = None
    _channel: AbstractChannel | None = None
    _tag: str = ""
    _letters: AbstractChannel | None = None
    _arrived: list[AbstractIncomingMessage] = attrs.Factory(list)
    _changed: asyncio.Event = attrs.Factory(asyncio.Event)
    _lost: bool = False
    _ending: asyncio.Event = attrs.Factory(asyncio.Event)
    _store_at: float = 0.0

    @property
    def queue(self) -> str:
        """Its name."""
        return self.storage.queue

    async def open(self, link: Link) -> None:
        """Begin to take messages."""
        self._arrived, self._lost, self._letters, self._link = [], False, None, link
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
        (await channel.get_underlay_channel()).on_consumer_cancel_callbacks.add(self._on_lost)
        channel.close_callbacks.add(self._on_lost)
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
        if self._arrived or self._channel is None or self._link is None:
            return False
        with explained(self._link.address, STEP_SECONDS_MAX):
            found = await self._channel.declare_queue(self.queue, passive=True, timeout=STEP_SECONDS_MAX)
        return not found.declaration_result.message_count and not self._arrived

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

    async def close(self) -> None:
        """Hang up."""
        await self.line.close()

    async def _take(self, message: AbstractIncomingMessage) -> None:
        self._arrived.append(message)
        self._changed.set()

    def _on_lost(self, *_: object) -> None:
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
        dead: list[tuple[AbstractIncomingMessage, str]] = []
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
        rejected = await self._bury(dead)
        if rejected:
            for message in batch:
                if message not in rejected:
                    await self.acknowledge(message, multiple=False)
        else:
            await self.acknowledge(batch[-1])
        del self._arrived[: len(batch)]
        self._changed.set()
        self.on_settled()

    async def _store(self, events: Sequence[Received]) -> Stored:
        """Store them as soon as the database does. They are kept: a queue may count how often it gives a message."""
        failures = 0
        while True:
            try:
                return await self.storage.store(self.line, events)
            except TROUBLE as error:
                if self._ending.is_set():
                    raise
                failures += 1
                self.on_trouble(error, failures)
            await pause(failures, self._ending)

    async def acknowledge(self, last: AbstractIncomingMessage, *, multiple: bool = True) -> None:
        """Say that this one and all before it are ours; what is not heard comes again, and is known by its id."""
        if self._lost or self._link is None:
            return
        with explained(self._link.address, STEP_SECONDS_MAX):
            async with asyncio.timeout(STEP_SECONDS_MAX):
                await last.ack(multiple=multiple)

    async def _bury(
        self, dead: Sequence[tuple[AbstractIncomingMessage, str]]
    ) -> list[AbstractIncomingMessage]:
        """Send what cannot be stored to the dead letters, each with its reason; return what was rejected instead."""
        rejected: list[AbstractIncomingMessage] = []
        if not dead or self._link is None:
            return rejected
        if self._letters is None or self._letters.is_closed:
            self._letters = await self._link.channel()
        exchange = await self._letters.get_exchange(self.dead_letter_exchange, ensure=False)
        for message, reason in dead:
            _log.error(
                "message goes to the dead letters: %s",
                reason,
                extra={"queue": self.queue, "id": message.message_id},
            )
            letter = letter_of(message, self.queue, reason)
            with explained(self._link.address, STEP_SECONDS_MAX):
                async with asyncio.timeout(STEP_SECONDS_MAX):
                    if header_bytes(letter) > self._link.frame_bytes_max:
                        # Its reason makes it too large to be sent: by the queue's own way it goes without one.
                        await message.reject(requeue=False)
                        rejected.append(message)
                    else:
                        await self._send(exchange, letter, message.routing_key or self.queue)
        return rejected

    async def _send(self, exchange: AbstractExchange, letter: Message, routing_key: str) -> None:
        try:
            await exchange.publish(letter, routing_key)
        except DeliveryError as error:
            raise BrokerRefusal(
                f"exchange {self.dead_letter_exchange!r} does not take a dead letter of queue {self.queue!r}: its "
                "queue is full, or somebody has unbound or deleted it"
            ) from error
