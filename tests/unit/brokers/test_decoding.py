"""What strangers write is read whatever it is, and what can be read is read as ever (T3)."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from pamqp import decode, encode

from outbox_kernel.infrastructure.brokers.rabbitmq.decoding import read_whatever_comes
from outbox_kernel.infrastructure.brokers.rabbitmq.limits import NESTING_MAX

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


def nested(depth: int, *, kind: bytes) -> bytes:
    """So many arrays in one another, or tables."""
    inner = b"t\x01"
    for _ in range(depth):
        inside = inner if kind == b"A" else b"\x01a" + inner
        inner = kind + struct.pack(">I", len(inside)) + inside
    return inner


def depth_of(value: Any) -> int:
    depth = 0
    while isinstance(value, list | dict):
        [value] = value.values() if isinstance(value, dict) else value
        depth += 1
    return depth


@pytest.mark.parametrize("kind", [b"A", b"F"])
@pytest.mark.parametrize("depth", [1, NESTING_MAX - 1, NESTING_MAX, 480, 3_000])
def test_what_is_nested_too_deeply_is_read_as_nothing(depth: int, kind: bytes) -> None:
    """And what follows it as ever; each time again."""
    value = table((b"deep", nested(depth, kind=kind)), (b"two", b"t\x00"))
    for _ in range(2):
        consumed, found = decoded("table", value)
        assert consumed == len(value)
        assert found["two"] is False
        # The table of all headers is the first.
        assert depth_of(found["deep"]) == min(depth, NESTING_MAX - 1)


@pytest.mark.parametrize("kind", [b"A", b"F"])
def test_what_is_read_can_be_written_again(kind: bytes) -> None:
    """A dead letter has the headers of its message."""
    _, found = decoded("table", table((b"deep", nested(3_000, kind=kind))))
    assert decoded("table", encode.field_table(found))[1] == found
