"""Burying: what cannot be stored goes to the dead letters, on a connection of its own (T3, T4)."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import attrs
from aio_pika.exceptions import DeliveryError
from aiormq.exceptions import ChannelAccessRefused

from outbox_kernel.infrastructure.brokers.rabbitmq.declaring import declare
from outbox_kernel.infrastructure.brokers.rabbitmq.link import header_bytes
from outbox_kernel.infrastructure.brokers.rabbitmq.trouble import (
    BrokerForbids,
    BrokerRefusal,
    alarm,
    explained,
    unanswered,
)
from outbox_kernel.infrastructure.consumer.letters import letter_of
from outbox_kernel.infrastructure.consumer.troubles import pause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aio_pika import Message
    from aio_pika.abc import AbstractChannel, AbstractExchange, AbstractIncomingMessage

    from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
    from outbox_kernel.infrastructure.brokers.topology import Topology
    from outbox_kernel.infrastructure.consumer.troubles import Trouble

_log = logging.getLogger("outbox.consumer")

CONFIRM_SECONDS_MAX = 10.0
# Beside that, a letter has the time that it takes on a slow road: the largest that brokers take are 128 MiB and more.
BYTES_PER_SECOND_MIN = 64 * 1024
# How soon an alarm of the broker is noticed.
LOOK_SECONDS = 0.5

Dead = tuple["AbstractIncomingMessage", str]
"""A message, and why it cannot be stored."""


class LetterRefused(BrokerRefusal):
    """The broker has not taken the letter, and said so."""


@attrs.define(eq=False)
class Burying:
    """Sends dead letters, one at a time, and acknowledges each that the broker has.

    Its connection is not the one that consumes: in an alarm the broker reads nothing more from a connection that has
    published, no acknowledgements either. What cannot be sent is kept unacknowledged and tried again: given back, it
    would count as delivered once more, until a queue with a delivery limit drops it. The prefetch bounds how many
    are kept; a queue that has given us nothing but these gives no more until they are sent.
    """

    queue: str
    topology: Topology
    """The dead letters' exchange and queue."""
    link: Link
    trouble: Trouble
    ending: asyncio.Event
    acknowledge: Callable[[AbstractIncomingMessage], Awaitable[None]]
    reject: Callable[[AbstractIncomingMessage], Awaitable[None]]
    on_settled: Callable[[], None]
    """Called when a message is out of the queue."""
    _kept: list[Dead] = attrs.Factory(list)
    _changed: asyncio.Event = attrs.Factory(asyncio.Event)
    _channel: AbstractChannel | None = None
    _has_given_up: bool = False
    _may_be_gone: bool = False
    """Whether somebody may have deleted the exchange or the queue."""

    @property
    def exchange(self) -> str:
        """Where letters are sent."""
        return self.topology.dead_letter_exchange

    @property
    def keeps_any(self) -> bool:
        """Whether there are messages that must not be acknowledged yet."""
        return bool(self._kept)

    def let_go(self) -> None:
        """Keep nothing: what was not acknowledged comes again."""
        self._kept, self._has_given_up = [], False
        self.trouble.end(may_come_back=True)

    def take(self, dead: Sequence[Dead]) -> None:
        """Bury these as soon as the broker takes them."""
        self._kept += dead
        self._changed.set()

    async def serve(self) -> None:
        """Bury what there is, until cancelled; one that is not taken goes behind the others."""
        failures = 0
        while True:
            if not self._kept or self._has_given_up:
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                await self._bury(*self._kept[0])
            except BrokerRefusal as refusal:
                failures += 1
                await self._put_off(refusal, failures)
            else:
                failures = 0
                self._note_buried()

    async def drain(self) -> None:
        """Return when everything is buried, or would have to be tried again."""
        while self._kept and not self._has_given_up:
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        """Hang up."""
        self._channel = None
        await self.link.close()

    # --- one of them --------------------------------------------------------------------------------

    def _note_buried(self) -> None:
        del self._kept[0]
        if not self._kept:
            self.trouble.end()
        self._changed.set()
        self.on_settled()

    async def _put_off(self, refusal: BrokerRefusal, failures: int) -> None:
        if self.ending.is_set():
            _log.warning("%s; what was not acknowledged comes again", refusal, extra={"queue": self.queue})
            self._has_given_up = True
            self._changed.set()
            return
        self._may_be_gone = True
        self.trouble.begin(refusal)
        self._kept.append(self._kept.pop(0))
        await pause(failures, self.ending)

    async def _bury(self, message: AbstractIncomingMessage, reason: str) -> None:
        exchange = await self._opened()
        letter = letter_of(message, self.queue, reason)
        if header_bytes(letter) > self.link.frame_bytes_max:
            # Its reason makes it too large to be sent: by the queue's own way it goes without one.
            await self.reject(message)
        else:
            await self._send(exchange, letter, message.routing_key or self.queue)
            await self.acknowledge(message)
        _log.error(
            "message goes to the dead letters: %s",
            reason,
            extra={"queue": self.queue, "id": message.message_id},
        )

    async def _opened(self) -> AbstractExchange:
        if self._may_be_gone:
            await declare(self.link, self.topology)
            self._may_be_gone = False
        if self._channel is None or self._channel.is_closed or not self.link.is_open:
            self._channel = await self.link.channel()
        return await self._channel.get_exchange(self.exchange, ensure=False)

    async def _send(self, exchange: AbstractExchange, letter: Message, routing_key: str) -> None:
        try:
            with explained(self.link.address, CONFIRM_SECONDS_MAX):
                await self._confirmed(exchange, letter, routing_key)
        except LetterRefused:
            raise
        except BaseException as error:
            # Half of it may be on its way, so that nothing can follow on this connection.
            self._channel = None
            self.link.drop()
            if isinstance(error, BrokerRefusal) and isinstance(error.__cause__, ChannelAccessRefused):
                raise self._forbidden() from error
            raise

    async def _confirmed(self, exchange: AbstractExchange, letter: Message, routing_key: str) -> None:
        """Send it and await the confirm; an alarm is waited for, since what is half sent arrives at its end."""
        seconds_max = CONFIRM_SECONDS_MAX + len(letter.body) / BYTES_PER_SECOND_MIN
        until = time.monotonic() + seconds_max
        sending = asyncio.ensure_future(exchange.publish(letter, routing_key))
        try:
            while not (await asyncio.wait([sending], timeout=LOOK_SECONDS))[0]:
                if await self.link.blocked():
                    self._wait_for_alarm()
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

    def _wait_for_alarm(self) -> None:
        refusal = alarm(self.link.address)
        if self.ending.is_set():
            raise refusal
        self.trouble.begin(refusal)

    def _forbidden(self) -> BrokerForbids:
        return BrokerForbids(
            f"user {self.link.address.user!r} may not write to exchange {self.exchange!r}, where the dead letters of "
            f"queue {self.queue!r} go: grant the right to write to it"
        )
