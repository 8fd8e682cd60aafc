"""A publisher's way into RabbitMQ: one channel with confirms, opened again when it breaks (T1, T4, R7)."""

from __future__ import annotations

import asyncio
import logging
import re
import struct
import time
from typing import TYPE_CHECKING, ClassVar, Self
from uuid import uuid4

import attrs
from aio_pika import DeliveryMode
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
from pamqp.commands import Basic

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
from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link, header_bytes, wire_of
from outbox_kernel.infrastructure.brokers.rabbitmq.trouble import (
    alarm,
    explained,
    is_cancelled,
    sentence,
    told,
    unanswered,
)

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel
    from aiormq import Channel as WireChannel

    from outbox_kernel.infrastructure.brokers.topology import Publisher, Topology

_log = logging.getLogger("outbox.publisher")

# The client ends what waits for a connection that is closed as if it had been cancelled.
LOST = (AMQPError, ChannelInvalidStateError, OSError, asyncio.CancelledError)
TIMEOUT = TimeoutError  # which is an OSError, too
_TOO_LARGE = re.compile(r"message size (\d+)")


@attrs.frozen(eq=False)
class AmqpMessage:
    """A message as AMQP has it."""

    body: bytes
    properties: Basic.Properties
    routing_key: str

    @classmethod
    def of(cls, message: Message) -> Self:
        """Write what the broker is to know of a message."""
        properties = Basic.Properties(
            headers=dict(message.headers),
            content_type="application/json",
            delivery_mode=DeliveryMode.PERSISTENT,
            message_id=message.message_id,
            message_type=message.routing_key,
        )
        return cls(message.body, properties, message.routing_key)


@attrs.define(eq=False)
class RabbitOutlet:
    """Publishes to one exchange, by the client's lower half: its upper one waits for each message to be written."""

    link: Link
    publisher: Publisher
    topology: Topology
    confirm_seconds_max: float = CONFIRM_SECONDS_MAX
    system: ClassVar[str] = "rabbitmq"
    _channel: AbstractChannel | None = None
    _wire: WireChannel | None = None
    """Its lower half."""
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
        # Not with `explained` around it, nor with a timeout of its own: this is once per event.
        channel, tries_left, sent = None, CHANNELS_MAX, AmqpMessage.of(message)
        try:
            while True:
                tries_left -= 1
                channel = await self._opened()
                outcome = await self._publish(channel, sent, is_last=not tries_left)
                if outcome is not None:
                    return outcome
        except TIMEOUT as error:
            return await self._outage(unanswered(self.link.address, self.confirm_seconds_max), error, channel)
        except LOST as error:
            if is_cancelled():
                raise
            return await self._outage(sentence(error, self.link.address), error, channel)
        except BrokerRefusal as refusal:
            return await self._outage(refusal, refusal.__cause__, channel)

    async def prove(self) -> Outage | None:
        """See that messages are taken: the default exchange drops one that is for no queue, and confirms it."""
        channel = None
        try:
            channel = await self._opened()
            with explained(self.link.address, self.confirm_seconds_max):
                await self.link.unblocked()
            async with self.link.step(self.confirm_seconds_max):
                await self._knock(channel)
        except BrokerRefusal as refusal:
            return await self._outage(refusal, refusal.__cause__, channel)
        return None

    async def close(self) -> None:
        """Hang up."""
        self._channel = self._wire = None
        await self._suspects_link.close()
        await self.link.close()

    # --- sending ------------------------------------------------------------------------------------

    async def _publish(self, channel: WireChannel, message: AmqpMessage, *, is_last: bool) -> Outcome | None:
        """Send it over a channel; None: that has ended, and the next is to be tried."""
        if await self._is_blocked():
            return Outage(str(alarm(self.link.address)))
        if message.routing_key in self._guilty:
            return await self._publish_alone(message)
        try:
            return await self._send(channel, message)
        except TIMEOUT:
            raise
        except LOST as error:
            if is_cancelled():
                raise
            refused, is_over_one = self._too_large(error, message), _is_over_a_message(error)
            if not (refused or is_over_one) and (is_last or isinstance(error, ChannelAccessRefused)):
                raise
            self._forget(channel, whole=not isinstance(error, AMQPChannelError))
            return await self._publish_alone(message) if is_over_one and not refused else refused

    async def _publish_alone(self, message: AmqpMessage) -> Outcome:
        """Send one of those that a channel may have been ended over on its own: if that ends too, it is to blame."""
        self._suspects += 1
        try:
            with explained(self.link.address, self.confirm_seconds_max):
                return await self._try_alone(message)
        except BrokerRefusal as refusal:
            error = refusal.__cause__
            if isinstance(error, ChannelClosed):
                raise error from None  # over the exchange or its rights, which are all messages' affair
            # It has a connection of its own: whatever has become of that, those of others stay on their way.
            too_large = self._too_large(error, message) if error else None
            return too_large or await self._outage(refusal, error, None)
        finally:
            self._suspects -= 1
            if not self._suspects:
                self._suspects_link.drop()

    async def _try_alone(self, message: AmqpMessage) -> Outcome:
        try:
            async with asyncio.timeout(self.confirm_seconds_max), self._suspects_turn:
                channel = await self._suspects_link.channel()
                outcome = await self._send(await wire_of(channel), message)
                self._guilty.discard(message.routing_key)
                await channel.close()
                return outcome
        except ChannelClosed as error:
            if not _is_over_a_message(error):
                raise
            self._guilty.add(message.routing_key)
            return Refused(f"the broker ends the channel over it: {told(error)}")

    def _too_large(self, error: BaseException, message: AmqpMessage) -> Refused | None:
        """Tell whether it was this message that was too large; others in flight are not to blame."""
        if (size := header_bytes(message.properties)) > self.link.frame_bytes_max:
            return Refused(
                f"its headers have {size:,} bytes, and the broker takes {self.link.frame_bytes_max:,}"
            )
        found = _TOO_LARGE.search(str(error))
        if found is None or int(found[1]) != len(message.body):
            return None
        return Refused(f"it has {len(message.body):,} bytes, and the broker takes fewer ({error})")

    async def _send(self, channel: WireChannel, message: AmqpMessage) -> Outcome:
        try:
            await channel.basic_publish(
                message.body,
                exchange=str(self.publisher.exchange),
                routing_key=message.routing_key,
                properties=message.properties,
                mandatory=self.publisher.mandatory,
                timeout=self.confirm_seconds_max,
                # Its confirm is waited for. To wait until it is written as well would send one after the other.
                wait=False,
            )
        except PublishError:
            await self._redeclare()
            return Refused(f"exchange {self.publisher.exchange!r} has no queue for {message.routing_key!r}")
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

    async def _knock(self, channel: WireChannel) -> None:
        try:
            await channel.basic_publish(b"", routing_key=f"outbox-nobody-{uuid4().hex}")
        except ChannelAccessRefused:
            # It may not use that exchange, and has been told so: the broker answers.
            self._forget(channel)

    # --- opening and letting go ---------------------------------------------------------------------

    async def _opened(self) -> WireChannel:
        if not self._stands():
            known = self._refusal
            async with self._turn:
                if not self._stands():
                    if self._refusal is not None and self._refusal is not known:
                        # Whoever was before us has just tried: each for himself would wait as long again.
                        raise self._refusal
                    await self._open()
        assert self._wire is not None  # noqa: S101 - it stands
        return self._wire

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
        except BaseException as error:
            # What could not be declared is declared again, and that is done on a new connection. So it is if whoever
            # declares is cancelled in the middle: on this one nobody would look for the rest.
            self.link.drop()
            if isinstance(error, BrokerRefusal):
                self._refusal = error
            raise

    async def _open_channel(self) -> None:
        channel = await self.link.channel()
        self._wire = await wire_of(channel)
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

    async def _outage(
        self, refusal: BrokerRefusal, cause: BaseException | None, wire: WireChannel | None
    ) -> Outage:
        """Let go of the channel that was used, if one was."""
        if await self.link.blocked():
            # The connection is kept: it is told when the alarm is over.
            return Outage(str(alarm(self.link.address)))
        if wire is not None:
            self._forget(wire, whole=True)
        self._look_at = 0.0
        if isinstance(cause, ChannelAccessRefused):
            refusal = BrokerForbids(
                f"user {self.link.address.user!r} may not publish to exchange {self.publisher.exchange!r}: "
                "grant the right to write to it"
            )
        return Outage(str(refusal))

    def _forget(self, wire: WireChannel, *, whole: bool = False) -> None:
        """Let go of the channel, or of the whole connection; unless others have opened the next already."""
        if wire is self._wire:
            self._channel = self._wire = None
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
