"""What strangers write is read whatever it is, and what can be read is read as ever (T3)."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from pamqp import decode, encode

from infrastructure.brokers.rabbitmq.decoding import read_whatever_comes

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)


def decoded(kind: str, value: bytes) -> tuple[int, Any]:
    read_whatever_comes()
    return decode.by_type(value, kind)


def table(*fields: tuple[bytes, bytes]) -> bytes:
    inside = b"".join(bytes([len(key)]) + key + value for key, value in fields)
    return struct.pack(">I", len(inside)) + inside


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("shortstr", b"\x03abc", (4, "abc")),
        ("shortstr", b"\x04a\xff\xfeb", (5, "a??b")),
        ("timestamp", encode.timestamp(MOMENT), (8, MOMENT)),
        ("timestamp", struct.pack(">Q", 1_760_000_000_000_000), (8, None)),
        ("timestamp", struct.pack(">Q", 2**64 - 1), (8, None)),
        ("table", table((b"one", b"t\x01")), (10, {"one": True})),
        ("table", table((b"\xe9", b"t\x01"), (b"two", b"t\x00")), (14, {"?": True, "two": False})),
        (
            "table",
            table((b"a", b"F" + table((b"\xff", b"T" + struct.pack(">Q", 2**63))))),
            (22, {"a": {"?": None}}),
        ),
    ],
)
def test_what_is_no_text_and_no_moment_is_read_all_the_same(kind: str, value: bytes, found: Any) -> None:
    assert decoded(kind, value + b"what follows") == found
