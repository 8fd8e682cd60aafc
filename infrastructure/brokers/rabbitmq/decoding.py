"""What strangers write and the client cannot read: it is read all the same, so that it ends no connection (T3)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from pamqp import common, decode

from outbox_kernel.infrastructure.brokers.rabbitmq.limits import NESTING_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

_short_str, _timestamp = decode.short_str, decode.timestamp
_table, _array = decode.field_table, decode.field_array
_MOMENT_BYTES = 8
_SIZE_BYTES = 4


class _Nesting(threading.local):
    """How many tables and arrays there are around what is read."""

    depth = 0


_nesting = _Nesting()


def read_whatever_comes() -> None:
    """Let the client decode what it would end the connection over: a queue with one such message gave no more."""
    decode.METHODS["shortstr"] = _any_short_str
    decode.METHODS["timestamp"] = decode.TABLE_MAPPING[b"T"] = _any_timestamp
    decode.METHODS["table"] = decode.TABLE_MAPPING[b"F"] = _any_table
    decode.METHODS["array"] = decode.TABLE_MAPPING[b"A"] = _any_array


def _any_short_str(value: bytes) -> tuple[int, str]:
    try:
        return _short_str(value)
    except UnicodeDecodeError:
        return _text_at(value)


def _any_timestamp(value: bytes) -> tuple[int, Any]:
    """Read what is in a year that no date has, such as a number of microseconds, as no moment."""
    try:
        return _timestamp(value)
    except (ValueError, OverflowError, OSError):
        return _MOMENT_BYTES, None


def _any_table(value: bytes) -> tuple[int, Any]:
    return _nested(_whole_table, value)


def _any_array(value: bytes) -> tuple[int, Any]:
    return _nested(_array, value)


def _nested(read: Callable[[bytes], tuple[int, Any]], value: bytes) -> tuple[int, Any]:
    """Read a table or an array; what is nested too deeply is read as nothing, and the header around it stays."""
    if _nesting.depth == NESTING_MAX:
        return _end_of(value), None
    _nesting.depth += 1
    try:
        return read(value)
    finally:
        _nesting.depth -= 1


def _whole_table(value: bytes) -> tuple[int, dict[str, Any]]:
    try:
        return _table(value)
    except UnicodeDecodeError:
        found: dict[str, Any] = {}
        end = _end_of(value)
        offset = _SIZE_BYTES
        while offset < end:
            consumed, key = _text_at(value[offset:])
            offset += consumed
            consumed, found[key] = decode.embedded_value(value[offset:])
            offset += consumed
        return end, found


def _end_of(value: bytes) -> int:
    size: int = common.Struct.integer.unpack(value[:_SIZE_BYTES])[0]
    return _SIZE_BYTES + size


def _text_at(value: bytes) -> tuple[int, str]:
    """Read a short text with a ? for what is none, which takes no more bytes when it is written again."""
    end = 1 + value[0]
    return end, value[1:end].decode(errors="replace").replace("\ufffd", "?")
