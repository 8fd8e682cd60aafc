"""A publisher's way into RabbitMQ: one channel with confirms, opened again when it breaks (T1, T4, R7)."""

from __future__ import annotations

import asyncio
import logging
import re
import struct
import time
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

import attrs
from aio_pika import DeliveryMode
from aio_pika import Message as AmqpMessage
from aio_pika.exceptions import (
    AMQPChannelError,
    AMQPError,
    ChannelClosed,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    DeliveryError,
    PublishError,
)
from aiormq.exceptions import ChannelAccessRefused, ConnectionChannelError

from outbox_kernel.infrastructure.brokers.port import (
    PUBLISHED,
    BrokerForbids,
    BrokerRefusal,
    Message,
    Outage,
    Outcome,
    Refused,
)
from outbox_kernel.infrastructure.brokers.rabbitmq.declaring import declare
from outbox_kernel.infrastructure.brokers.rabbitmq.limits import (
    CHANNELS_MAX,
    CONFIRM_SECONDS_MAX,
    LOOK_SECONDS,
    REDECLARE_SECONDS,
    SUSPECTS_AT_ONCE_MAX,
)
from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link, header_bytes
from outbox_kernel.infrastructure.brokers.rabbitmq.trouble import (
    alarm,
    explained,
    is_cancelled,
    sentence,
    told,
    unanswered,
)

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractExchange

    from outbox_kernel.infrastructure.brokers.topology import Publisher, Topology

_log = logging.getLogger("outbox.publisher")

# The client ends what waits for a connection that is closed as if it had been cancelled.
LOST = (AMQPError, ChannelInvalidStateError, OSError, asyncio.CancelledError)
TIMEOUT = TimeoutError  # which is an OSError, too
_TOO_LARGE = re.compile(r"message size (\d+)")


@attrs.define(eq=False)
class RabbitOutlet:
    """Publishes to one exchange."""

    link: Link
    publisher: Publisher
    topology: Topology
    confirm_seconds_max: float = CONFIRM_SECONDS_MAX
    system: ClassVar[str] = "rabbitmq"
    _channel: AbstractChannel | None = None
    _exchange: AbstractExchange | None = None
    _turn: asyncio.Lock = attrs.Factory(asyncio.Lock)
    _refusal: BrokerRefusal | None = None
    """Why the last attempt to open it had failed."""
    _redeclare_at: float = 0.0
    _look_at: float = 0.0
    _guilty: set[str] = attrs.Factory(set)
    """Routing keys of what a channel was last ended over: it is not sent with others again."""
    _suspects: int = 0
    _suspects_link: Link = attrs.field()
    """Not the connection of all others: a busy one ends with the channel that was ended in the middle."""
    _suspects_turn: asyncio.Semaphore = attrs.Factory(lambda: asyncio.Semaphore(SUSPECTS_AT_ONCE_MAX))

    @_suspects_link.default
    def _link_of_suspects(self) -> Link:
        return Link(self.link.address, f"outbox publisher {self.publisher.name}, one by one")

    async def publish(self, message: Message) -> Outcome:
        """Send it and await the confirm, through at most a few channels and one deadline."""
        wanted = AmqpMessage(
            message.body,
            headers=dict(message.headers),
            content_type="application/json",
            delivery_mode=DeliveryMode.PERSISTENT,
            message_id=message.message_id,
            type=message.routing_key,
        )
        # Not with `explained` around it, nor with a timeout of its own: this is once per event.
        try:
            return await self._publish(wanted, message.routing_key)
        except TIMEOUT as error:
            return await self._outage(unanswered(self.link.address, self.confirm_seconds_max), error)
        except LOST as error:
            if is_cancelled():
                raise
            return await self._outage(sentence(error, self.link.address), error)
        except BrokerRefusal as refusal:
            return await self._outage(refusal, refusal.__cause__)

    async def prove(self) -> Outage | None:
        """See that messages are taken: the default exchange drops one that is for no queue, and confirms it."""
        try:
            await self._opened()
            assert self._channel is not None  # noqa: S101 - opened just now
            with explained(self.link.address, self.confirm_seconds_max):
                await self.link.unblocked()
            async with self.link.step(self.confirm_seconds_max):
                await self._knock(self._channel)
        except BrokerRefusal as refusal:
            return await self._outage(refusal, refusal.__cause__)
        return None

    async def close(self) -> None:
        """Hang up."""
        self._forget()
        await self._suspects_link.close()
        await self.link.close()

    # --- sending ------------------------------------------------------------------------------------

    async def _publish(self, message: AmqpMessage, routing_key: str) -> Outcome:
        tries_left = CHANNELS_MAX
        while True:
            tries_left -= 1
            exchange = await self._opened()
            if await self._is_blocked():
                return Outage(str(alarm(self.link.address)))
            if routing_key in self._guilty:
                return await self._publish_alone(message, routing_key)
            try:
                return await self._send(exchange, message, routing_key)
            except TIMEOUT:
                raise
            except LOST as error:
                if is_cancelled():
                    raise
                self._forget(exchange, whole=not isinstance(error, AMQPChannelError))
                if (refused := self._too_large(error, message)) is not None:
                    return refused
                if _is_over_a_message(error):
                    return await self._publish_alone(message, routing_key)
                if not tries_left or isinstance(error, ChannelAccessRefused):
                    raise

    async def _publish_alone(self, message: AmqpMessage, routing_key: str) -> Outcome:
        """Send one of those that a channel may have been ended over on its own: if that ends too, it is to blame."""
        self._suspects += 1
        try:
            async with asyncio.timeout(self.confirm_seconds_max), self._suspects_turn:
                channel = await self._suspects_link.channel()
                exchange = await channel.get_exchange(str(self.publisher.exchange), ensure=False)
                outcome = await self._send(exchange, message, routing_key)
                self._guilty.discard(routing_key)
                await channel.close()
                return outcome
        except ChannelClosed as error:
            if not _is_over_a_message(error):
                raise
            self._guilty.add(routing_key)
            return Refused(f"the broker ends the channel over it: {told(error)}")
        finally:
            self._suspects -= 1
            if not self._suspects:
                self._suspects_link.drop()

    def _too_large(self, error: BaseException, message: AmqpMessage) -> Refused | None:
        """Tell whether it was this message that was too large; others in flight are not to blame."""
        if (size := header_bytes(message)) > self.link.frame_bytes_max:
            return Refused(
                f"its headers have {size:,} bytes, and the broker takes {self.link.frame_bytes_max:,}"
            )
        found = _TOO_LARGE.search(str(error))
        if found is None or int(found[1]) != len(message.body):
            return None
        return Refused(f"it has {len(message.body):,} bytes, and the broker takes fewer ({error})")

    async def _send(self, exchange: AbstractExchange, message: AmqpMessage, routing_key: str) -> Outcome:
        mandatory, seconds = self.publisher.mandatory, self.confirm_seconds_max
        try:
            await exchange.publish(message, routing_key, mandatory=mandatory, timeout=seconds)
        except PublishError:
            await self._redeclare()
            return Refused(f"exchange {self.publisher.exchange!r} has no queue for {routing_key!r}")
        except DeliveryError:
            return Refused("the broker refused it: a queue that it goes to is full, or has failed")
        except (TypeError, ValueError, struct.error) as error:
            return Refused(f"it cannot be written as AMQP: {error}")
        return PUBLISHED

    async def _is_blocked(self) -> bool:
        """Ask now and then; what is sent in between waits for its confirm until the alarm is over."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_SECONDS
        return await self.link.blocked()

    async def _knock(self, channel: AbstractChannel) -> None:
        knock = AmqpMessage(b"", message_id=uuid4().hex)
        try:
            await channel.default_exchange.publish(knock, f"outbox-nobody-{uuid4().hex}", mandatory=False)
        except ChannelAccessRefused:
            # It may not use that exchange, and has been told so: the broker answers.
            self._forget()

    # --- opening and letting go ---------------------------------------------------------------------

    async def _opened(self) -> AbstractExchange:
        if not self._stands():
            known = self._refusal
            async with self._turn:
                if not self._stands():
                    if self._refusal is not None and self._refusal is not known:
                        # Whoever was before us has just tried: each for himself would wait as long again.
                        raise self._refusal
                    await self._open()
        assert self._exchange is not None  # noqa: S101 - it stands
        return self._exchange

    def _stands(self) -> bool:
        return self._channel is not None and not self._channel.is_closed and self.link.is_open

    async def _open(self) -> None:
        if self.link.is_open:
            try:
                await self._open_channel()
                return
            except BrokerRefusal:
                # What closed the channel has closed the connection as well, by now.
                self.link.drop()
        try:
            await self._declare()
            await self._open_channel()
        except BrokerRefusal as refusal:
            self._refusal = refusal
            raise

    async def _open_channel(self) -> None:
        channel = await self.link.channel()
        self._exchange = await channel.get_exchange(str(self.publisher.exchange), ensure=False)
        self._channel = channel

    async def _redeclare(self) -> None:
        """Make queues again that somebody has deleted; the message finds them at its next attempt."""
        if time.monotonic() >= self._redeclare_at:
            self._redeclare_at = time.monotonic() + REDECLARE_SECONDS
            try:
                await self._declare()
            except BrokerRefusal as refusal:
                _log.warning(
                    "%s",
                    refusal,
                    extra={"action": "publisher.topology.refused", "publisher": self.publisher.name},
                )

    async def _declare(self) -> None:
        """Make what is missing; what is wrong with queues is told, and no reason to send nothing to the exchange."""
        await declare(self.link, self.topology, needed=self.publisher.exchange)

    async def _outage(self, refusal: BrokerRefusal, cause: BaseException | None) -> Outage:
        if await self.link.blocked():
            # The connection is kept: it is told when the alarm is over.
            return Outage(str(alarm(self.link.address)))
        self._forget(whole=True)
        self._look_at = 0.0
        if isinstance(cause, ChannelAccessRefused):
            refusal = BrokerForbids(
                f"user {self.link.address.user!r} may not publish to exchange {self.publisher.exchange!r}: "
                "grant the right to write to it"
            )
        return Outage(str(refusal))

    def _forget(self, exchange: AbstractExchange | None = None, *, whole: bool = False) -> None:
        """Let go of the channel, or of the whole connection; unless others have opened the next already."""
        if exchange is None or exchange is self._exchange:
            self._channel = self._exchange = None
            if whole:
                self.link.drop()


def _is_over_a_message(error: BaseException) -> bool:
    """Tell whether one of the messages in flight may be to blame for this, and not the exchange or its rights."""
    if isinstance(error, ChannelAccessRefused):
        return "access to topic" in str(error)
    # The latter is what the broker says of messages that were sent before it was known that their channel had ended.
    return isinstance(error, ChannelClosed | ConnectionChannelError) and not isinstance(
        error, ChannelNotFoundEntity
    )
