"""Burying: a message that cannot be stored is sent to the dead letters, with the reason (T3, T4)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import attrs
from aio_pika.exceptions import DeliveryError
from aiormq.exceptions import ChannelAccessRefused

from outbox_kernel.infrastructure.brokers.port import BrokerForbids, BrokerRefusal
from outbox_kernel.infrastructure.brokers.rabbitmq.declaring import declare
from outbox_kernel.infrastructure.brokers.rabbitmq.letters import letter_of
from outbox_kernel.infrastructure.brokers.rabbitmq.limits import (
    ALARM_LOOK_SECONDS,
    LETTER_BYTES_PER_SECOND_MIN,
    LETTER_CONFIRM_SECONDS_MAX,
)
from outbox_kernel.infrastructure.brokers.rabbitmq.link import header_bytes
from outbox_kernel.infrastructure.brokers.rabbitmq.trouble import alarm, explained, unanswered

if TYPE_CHECKING:
    from collections.abc import Callable

    from aio_pika.abc import AbstractChannel, AbstractExchange, AbstractIncomingMessage

    from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
    from outbox_kernel.infrastructure.brokers.topology import Topology


class LetterRefused(BrokerRefusal):
    """The broker has not taken the letter, and said so."""


@attrs.define(eq=False)
class Burial:
    """The way of one queue's messages to the dead letters."""

    queue: str
    topology: Topology
    """The dead letters' exchange and queue."""
    link: Link
    _channel: AbstractChannel | None = None
    _may_be_gone: bool = False
    """Whether somebody may have deleted the exchange or the queue."""

    @property
    def exchange(self) -> str:
        """Where letters are sent."""
        return self.topology.dead_letter_exchange

    async def bury(
        self, message: AbstractIncomingMessage, reason: str, on_wait: Callable[[BrokerRefusal], None]
    ) -> bool:
        """Send a letter, or tell that its reason makes it too large to be sent."""
        letter = letter_of(message, self.queue, reason)
        try:
            exchange = await self._opened()
            if header_bytes(letter.properties) > self.link.frame_bytes_max:
                return False
            sending = asyncio.ensure_future(exchange.publish(letter, message.routing_key or self.queue))
            await self._sent(
                sending, LETTER_CONFIRM_SECONDS_MAX + len(letter.body) / LETTER_BYTES_PER_SECOND_MIN, on_wait
            )
        except BrokerRefusal:
            self._may_be_gone = True
            raise
        return True

    async def close(self) -> None:
        """Hang up."""
        self._channel = None
        await self.link.close()

    async def _opened(self) -> AbstractExchange:
        if self._may_be_gone:
            await declare(self.link, self.topology)
            self._may_be_gone = False
        if self._channel is None or self._channel.is_closed or not self.link.is_open:
            self._channel = await self.link.channel()
        return await self._channel.get_exchange(self.exchange, ensure=False)

    async def _sent(
        self, sending: asyncio.Future[Any], seconds_max: float, on_wait: Callable[[BrokerRefusal], None]
    ) -> None:
        try:
            with explained(self.link.address, LETTER_CONFIRM_SECONDS_MAX):
                await self._confirmed(sending, seconds_max, on_wait)
        except LetterRefused:
            raise
        except BaseException as error:
            # Half of it may be on its way, so that nothing can follow on this connection.
            self._channel = None
            self.link.drop()
            if isinstance(error, BrokerRefusal) and isinstance(error.__cause__, ChannelAccessRefused):
                raise BrokerForbids(
                    f"user {self.link.address.user!r} may not write to exchange {self.exchange!r}, where the dead "
                    f"letters of queue {self.queue!r} go: grant the right to write to it"
                ) from error
            raise

    async def _confirmed(
        self, sending: asyncio.Future[Any], seconds_max: float, on_wait: Callable[[BrokerRefusal], None]
    ) -> None:
        """Await the confirm, and the end of an alarm: what is half sent arrives then."""
        until = time.monotonic() + seconds_max
        try:
            while not (await asyncio.wait([sending], timeout=ALARM_LOOK_SECONDS))[0]:
                if await self.link.blocked():
                    on_wait(alarm(self.link.address))
                    until = time.monotonic() + seconds_max
                elif time.monotonic() > until:
                    raise unanswered(self.link.address, seconds_max)
            sending.result()
        except DeliveryError as error:
            raise LetterRefused(
                f"exchange {self.exchange!r} does not take a dead letter of queue {self.queue!r}: its queue is full, "
                "or somebody has unbound or deleted it"
            ) from error
        finally:
            sending.cancel()
            await asyncio.wait([sending])
