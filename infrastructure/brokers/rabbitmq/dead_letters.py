"""The broker's dead letters: looked at where they are, and sent back to the queue they came from (O1, T3)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError

from outbox_kernel.infrastructure.brokers.limits import NAME_BYTES_MAX
from outbox_kernel.infrastructure.brokers.operated import Choice, Letter
from outbox_kernel.infrastructure.brokers.port import (
    MOMENT_HEADER,
    QUEUE_HEADER,
    REASON_HEADER,
    BrokerRefusal,
)
from outbox_kernel.infrastructure.brokers.rabbitmq.declaring import counts_looks
from outbox_kernel.infrastructure.brokers.rabbitmq.letters import sent_again
from outbox_kernel.infrastructure.brokers.rabbitmq.limits import LETTER_STEP_SECONDS_MAX
from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
from outbox_kernel.infrastructure.brokers.rabbitmq.trouble import explained
from outbox_kernel.infrastructure.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Container, Mapping

    from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

    from outbox_kernel.infrastructure.brokers.rabbitmq.address import Address


class NoDeadLetters(InfrastructureError):
    """There is no such queue."""


class LookRefused(InfrastructureError):
    """To look into this queue may delete what is in it."""


class ReplayRefused(InfrastructureError):
    """The queue that a letter came from does not take it back."""


async def listed(address: Address, queue: str, *, most: int, choice: Choice) -> tuple[list[Letter], int]:
    """Read dead letters, the oldest first, and leave them where they are; say how many were not looked at."""
    found: list[Letter] = []
    async with _opened(address, queue, leaves_some=True) as (_, source):
        left = _number(source)
        async for letter, _message in _walk(address, source):
            left -= 1
            if choice.means(letter):
                found.append(letter)
            if len(found) == most:
                break
    # What was not acknowledged has gone back to its place with the end of the connection.
    return found, left


async def replayed(
    address: Address,
    queue: str,
    *,
    choice: Choice,
    declared: Container[str],
    to: str | None = None,
    begin: Callable[[int], Callable[[int], None]] = lambda _: lambda _: None,
) -> int:
    """Send letters back to where they came from, if that is declared, or to a queue that is named; return how many.

    One that does not go back holds up no other; the first of these is named at the end.
    """
    number, refused = 0, list[str]()
    async with _opened(address, queue, leaves_some=choice != Choice()) as (channel, source):
        advance = begin(_number(source))
        async for letter, message in _walk(address, source):
            advance(1)
            if not choice.means(letter):
                continue
            try:
                await _send_back(address, channel, letter, message, to or _home(letter, declared))
                number += 1
            except ReplayRefused as refusal:
                refused.append(str(refusal))
    if refused:
        raise ReplayRefused(f"{number} sent back, {len(refused)} left where they are: {refused[0]}")
    return number


@asynccontextmanager
async def _opened(
    address: Address, queue: str, *, leaves_some: bool
) -> AsyncIterator[tuple[AbstractChannel, AbstractQueue]]:
    async with Link(address, "outbox dead-letters") as link:
        if leaves_some and await counts_looks(link, queue):
            raise LookRefused(
                f"queue {queue!r} is no classic one, so each look counts as a delivery, and after some the broker "
                "deletes a letter: send them back with `outbox dead-letters replay --all`, delete the queue once it is "
                "empty, and `outbox topology --apply` makes it anew"
            )
        channel = await link.channel()
        try:
            with explained(address, LETTER_STEP_SECONDS_MAX):
                source = await channel.declare_queue(queue, passive=True, timeout=LETTER_STEP_SECONDS_MAX)
        except BrokerRefusal as refusal:
            if isinstance(refusal.__cause__, ChannelNotFoundEntity):
                raise NoDeadLetters(
                    f"there is no queue {queue!r} at {address}: `outbox topology --apply` makes it"
                ) from refusal
            raise
        yield channel, source


def _number(source: AbstractQueue) -> int:
    return source.declaration_result.message_count or 0


async def _walk(
    address: Address, source: AbstractQueue
) -> AsyncIterator[tuple[Letter, AbstractIncomingMessage]]:
    """Take as many as there were, not as come meanwhile."""
    for _ in range(_number(source)):
        with explained(address, LETTER_STEP_SECONDS_MAX):
            message = await source.get(fail=False, timeout=LETTER_STEP_SECONDS_MAX)
        if message is None:
            return
        yield _letter(message), message


def _home(letter: Letter, declared: Container[str]) -> str:
    """Return the queue that it came from; what is on a letter may be a stranger's, so none but a declared one."""
    if letter.queue is None:
        raise ReplayRefused(f"{letter} does not say which queue it came from: name one with --to")
    if letter.queue not in declared:
        raise ReplayRefused(
            f"{letter} says that it came from queue {letter.queue[:NAME_BYTES_MAX]!r}, which no context declares: name "
            "it with --to if it is right"
        )
    return letter.queue


async def _send_back(
    address: Address,
    channel: AbstractChannel,
    letter: Letter,
    message: AbstractIncomingMessage,
    queue: str,
) -> None:
    with explained(address, LETTER_STEP_SECONDS_MAX):
        async with asyncio.timeout(LETTER_STEP_SECONDS_MAX):
            try:
                # By the default exchange, to that queue alone: others have had it.
                await channel.default_exchange.publish(sent_again(message), queue, mandatory=True)
            except DeliveryError:
                raise ReplayRefused(
                    f"queue {queue!r} does not take {letter} back, for it is full or does not exist: name another "
                    "with --to"
                ) from None
            await message.ack()


def _letter(message: AbstractIncomingMessage) -> Letter:
    """Tell of a letter by what the broker wrote; where it wrote nothing, by what is written in burying."""
    headers: Mapping[str, Any] = message.headers
    death = _last_death(headers.get("x-death"))
    queue, reason, moment = (
        (death.get("queue"), f"the broker: {death.get('reason')}", death.get("time"))
        if death
        else (headers.get(QUEUE_HEADER), headers.get(REASON_HEADER), headers.get(MOMENT_HEADER))
    )
    return Letter(
        message.message_id,
        _text(headers.get("event_type")) or message.routing_key,
        *(_text(queue), _text(reason), _text(moment)),
        len(message.body),
    )


def _last_death(deaths: object) -> Mapping[str, Any]:
    """Return what the broker wrote when it last took the message for dead: what is below, it may have come with."""
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict):
        return deaths[0]
    return {}


def _text(value: object) -> str | None:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return None if value is None else str(value)
