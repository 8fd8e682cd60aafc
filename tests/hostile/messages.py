"""Messages as no publisher of ours sends them: each part with what a broker carries, one at a time."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import attrs

from tests.post import MOMENT

TAKEN = "01890000-0000-7000-8000-0000000000ee"
DEEP = b"[" * 900 + b"]" * 900
EVIL = "\x1b[2J\x1b]0;x\x07\r\n\u202e<script>alert(1)</script>'\"\\%s{0}"


@attrs.frozen
class Odd:
    """A message; without an id of its own, its body's counts."""

    body: bytes
    headers: dict[str, Any] = attrs.Factory(dict)
    message_id: str | None = None


def body(**changes: Any) -> dict[str, Any]:
    """What is in order, but for these; None leaves a key out."""
    found = {
        "event_id": str(uuid4()),
        "occurred_at": MOMENT,
        "timestamp": MOMENT,
        "what": "odd",
        "event_type": "bank.noted",
        **changes,
    }
    return {key: value for key, value in found.items() if value is not None}


def odd(**changes: Any) -> Odd:
    return Odd(json.dumps(body(**changes)).encode())


def under(message_id: str, **changes: Any) -> Odd:
    return attrs.evolve(odd(event_id=None, **changes), message_id=message_id)


def raw(text: bytes) -> Odd:
    """A body that is an event but for a value in it."""
    return Odd(json.dumps(body(what="HERE")).encode().replace(b'"HERE"', text))


def with_headers(**headers: Any) -> Odd:
    return attrs.evolve(odd(), headers={"event_type": "bank.noted", **headers})


def every() -> dict[str, Odd]:
    """One of each kind, with ids that are new, but for one."""
    moments = (
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59.999999-14:00",
        "10000-01-01T00:00:00Z",
        "infinity",
        "2026-01-02T03:04:05",
        "",
    )
    return {
        "nothing": Odd(b""),
        "no JSON": Odd(b"{"),
        "no UTF-8": Odd(b"\xff\xfe\x00"),
        "UTF-16": Odd(json.dumps(body(what="sixteen")).encode("utf-16")),
        "a byte order mark": Odd(b"\xef\xbb\xbf" + json.dumps(body()).encode()),
        "NULs": Odd(b"\0" * 100),
        "a list": Odd(b"[]"),
        "a number": Odd(b"1e400"),
        "deep": Odd(DEEP),
        "deeper": Odd(b"[" * 100_000),
        "deep in an object": raw(DEEP),
        "NUL": raw(b'"\\u0000"'),
        "NUL in a key": raw(b'{"\\u0000": 1}'),
        "half a pair": raw(b'"\\ud800"'),
        "NaN": raw(b"NaN"),
        "infinite": raw(b"-Infinity"),
        "1e400": raw(b"1e400"),
        "many digits": raw(b"9" * 4_000),
        "more digits than Python reads": raw(b"9" * 5_000),
        "ten megabytes": odd(what="x" * 10_000_000),
        "many keys": Odd(json.dumps(body() | {f"k{number}": 0 for number in range(50_000)}).encode()),
        "another type of field": odd(what={"a": [1]}),
        "no field": odd(what=None),
        "no id": odd(event_id=None, what="no id"),
        "no id, but the broker's": under(str(uuid4()), what="by the broker's id"),
        "no id, and the broker's is none": under("m-1", what="the broker's is none"),
        "an empty id": under("", what="an empty id"),
        "an id that is a list": odd(event_id=[TAKEN]),
        "an id that is a number": odd(event_id=7),
        "an id in braces": odd(event_id="{" + str(uuid4()) + "}"),
        "a nil id": odd(event_id="00000000-0000-0000-0000-000000000000"),
        "an id that is taken": odd(event_id=TAKEN, what="forged"),
        "no type": odd(event_type=None),
        "an empty type": odd(event_type=""),
        "a type that is a number": odd(event_type=7),
        "a type that commands": odd(event_type=EVIL),
        "a long type": odd(event_type="t" * 201),
        "a type that nobody knows": odd(event_type="bank.unheard_of"),
        "a pattern for a type": odd(event_type="*"),
        "a version that nobody knows": with_headers(event_version=7),
        "the last version": with_headers(event_version=2**31 - 1),
        "a version beyond": with_headers(event_version=2**31),
        "no version": with_headers(event_version=0),
        "a negative version": with_headers(event_version=-1),
        "a version that is a word": with_headers(event_version="1"),
        "a version that is true": with_headers(event_version=True),
        "an aggregate without a type": odd(aggregate_id=str(uuid4())),
        "an aggregate that is none": odd(aggregate_type="bank.wallet", aggregate_id="7"),
        "a type that is none": odd(aggregate_type=[], aggregate_id=str(uuid4())),
        "an evil aggregate": with_headers(aggregate_type=EVIL, aggregate_id=str(uuid4())),
        "a number without an aggregate": with_headers(aggregate_version=1),
        "number 0": with_headers(
            aggregate_type="bank.wallet", aggregate_id=str(uuid4()), aggregate_version=0
        ),
        "the last number": with_headers(
            aggregate_type="bank.wallet", aggregate_id=str(uuid4()), aggregate_version=2**63 - 1
        ),
        "an odd key": with_headers(aggregate_type="bank.wallet", aggregate_key=EVIL),
        "an empty key": with_headers(aggregate_type="bank.wallet", aggregate_key=""),
        "a long key": with_headers(aggregate_type="bank.wallet", aggregate_key="k" * 501),
        "a key that is a number": with_headers(aggregate_type="bank.wallet", aggregate_key=7),
        "contexts of other types": with_headers(
            traceparent={"a": 1}, tracestate=[1], correlation_id=[], causation_id={}, user_id=2**62
        ),
        "contexts that are none": with_headers(traceparent=EVIL, correlation_id="", causation_id="no id"),
        "large contexts": with_headers(user_id="u" * 60_000),
        "forged deaths": with_headers(
            **{"x-death": [{"queue": "q"}], "x-outbox-queue": "q", "x-outbox-reason": "r"}
        ),
        "a seal of its own": Odd(
            json.dumps(body() | {"$sealed": {"what": {"key": TAKEN, "text": "AAAA"}}}).encode()
        ),
        "no moment": odd(occurred_at=None, timestamp=None),
        "a moment that is a number": odd(occurred_at=7, timestamp=7),
        **{f"the moment {each!r}": odd(occurred_at=each, timestamp=each) for each in moments},
    }
