"""A message as a dead letter, and a dead letter as the message that it was (T3)."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

from aio_pika import DeliveryMode, Message

from outbox_kernel.infrastructure.brokers.port import MOMENT_HEADER, QUEUE_HEADER, REASON_HEADER, epitaph

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from aio_pika.abc import AbstractIncomingMessage

# What we, or the broker, have written on it; left there, it would tell of the death before, should it die again.
_OF_THE_DEATH = (
    *(REASON_HEADER, QUEUE_HEADER, MOMENT_HEADER),
    *("x-death", "x-first-death-queue", "x-first-death-reason", "x-first-death-exchange"),
    *("x-last-death-queue", "x-last-death-reason", "x-last-death-exchange"),
)
# By these the broker would send it to queues that have had it.
_OF_THE_ROUTE = ("CC", "BCC")
_FLOAT_MAX = struct.unpack(">f", b"\x7f\x7f\xff\xff")[0]


def letter_of(message: AbstractIncomingMessage, queue: str, reason: str) -> Message:
    """Return the message with what became of it, and without what it tells of deaths before, which may be forged."""
    return _copy(message, {**_without(message, _OF_THE_DEATH), **epitaph(queue, reason)})


def sent_again(letter: AbstractIncomingMessage) -> Message:
    """Return a letter as it was before it died."""
    return _copy(letter, _without(letter, (*_OF_THE_DEATH, *_OF_THE_ROUTE)))


def _without(message: AbstractIncomingMessage, gone: Container[str]) -> dict[str, Any]:
    return {key: value for key, value in message.headers.items() if key not in gone}


def _copy(message: AbstractIncomingMessage, headers: Mapping[str, Any]) -> Message:
    """Copy all but the sender's login, which must be the connection's, and the time limit, which would run again."""
    return Message(
        message.body,
        headers={key: _writable(value) for key, value in headers.items()},
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        delivery_mode=DeliveryMode.PERSISTENT,
        priority=message.priority,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        message_id=message.message_id,
        timestamp=message.timestamp,
        type=message.type,
        app_id=message.app_id,
    )


def _writable(value: Any) -> Any:
    """Return what a stranger wrote in a form that the client can write: it reads more than it writes."""
    if isinstance(value, bytes):  # a text that is no UTF-8
        return bytearray(value)
    if isinstance(value, float) and math.isfinite(value) and abs(value) > _FLOAT_MAX:
        return str(value)
    if isinstance(value, list):
        return [_writable(each) for each in value]
    if isinstance(value, dict):
        return {key: _writable(each) for key, each in value.items()}
    return value
