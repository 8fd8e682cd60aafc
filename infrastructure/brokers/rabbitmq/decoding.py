"""What strangers write and the client cannot read: it is read all the same, so that it ends no connection (T3)."""

from __future__ import annotations

from typing import Any

from pamqp import common, decode

_short_str, _timestamp, _table = decode.short_str, decode.timestamp, decode.field_table
_MOMENT_BYTES = 8
_SIZE_BYTES = 4


def read_whatever_comes() -> None:
    """Let the client decode what it would end the connection over: a queue with one such message gave no more."""
    decode.METHODS["shortstr"] = _any_short_str
    decode.METHODS["timestamp"] = decode.TABLE_MAPPING[b"T"] = _any_timestamp
    decode.METHODS["table"] = decode.TABLE_MAPPING[b"F"] = _any_table


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


def _any_table(value: bytes) -> tuple[int, dict[str, Any]]:
    try:
        return _table(value)
    except UnicodeDecodeError:
        found: dict[str, Any] = {}
        end = _SIZE_BYTES + common.Struct.integer.unpack(value[:_SIZE_BYTES])[0]
        offset = _SIZE_BYTES
        while offset < end:
            consumed, key = _text_at(value[offset:])
            offset += consumed
            consumed, found[key] = decode.embedded_value(value[offset:])
            offset += consumed
        return end, found


def _text_at(value: bytes) -> tuple[int, str]:
    """Read a short text with a ? for what is none, which takes no more bytes when it is written again."""
    end = 1 + value[0]
    return end, value[1:end].decode(errors="replace").replace("\ufffd", "?")
