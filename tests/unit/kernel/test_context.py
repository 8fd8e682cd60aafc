"""K10: headers travel with what is flushed, and what a handler does is caused by its event."""

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.errors import InvalidContext, NothingDelivered
from outbox_kernel.kernel import Delivery, current_delivery, current_headers, event_context
from outbox_kernel.kernel.context import Header, handling
from outbox_kernel.kernel.envelope import Envelope
from outbox_kernel.kernel.limits import HEADER_CHARACTERS_MAX

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def delivery(**headers: Any) -> Delivery:
    return Delivery(uuid4(), position=7, attempt=2, headers=headers)


def test_headers_hold_inside_the_block_alone() -> None:
    assert dict(current_headers()) == {}
    with event_context(user_id="u-1"):
        assert dict(current_headers()) == {"user_id": "u-1"}
    assert dict(current_headers()) == {}


def test_inner_blocks_add_and_override() -> None:
    with event_context(user_id="u-1", request_id="r-1"):
        with event_context(user_id="u-2", attempt=3, dry_run=False, tenant=None):
            assert dict(current_headers()) == {
                "user_id": "u-2",
                "request_id": "r-1",
                "attempt": 3,
                "dry_run": False,
                "tenant": None,
            }
        assert dict(current_headers()) == {"user_id": "u-1", "request_id": "r-1"}


def test_an_error_leaves_the_block_too() -> None:
    with pytest.raises(ZeroDivisionError), event_context(user_id="u-1"):
        _ = 1 / 0
    assert dict(current_headers()) == {}


def test_a_uuid_travels_as_text() -> None:
    user_id = uuid4()
    with event_context(user_id=user_id):
        assert current_headers()["user_id"] == str(user_id)


async def test_tasks_do_not_see_each_others_headers() -> None:
    both_inside = asyncio.Barrier(2)

    async def request(user_id: str) -> Header:
        with event_context(user_id=user_id):
            await both_inside.wait()
            return current_headers()["user_id"]

    assert list(await asyncio.gather(request("a"), request("b"))) == ["a", "b"]


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({"user": object()}, "'user' holds object; give str, int, bool, UUID or None"),
        ({"user": "a\0b"}, "'user' holds a NUL"),
        ({"user": "\ud800"}, "lone surrogate"),
        ({"us\0er": "x"}, "holds a NUL"),
        ({"user": "x" * (HEADER_CHARACTERS_MAX + 1)}, "8,193 characters; 8,192 are the limit"),
        ({"traceparent": "no trace"}, "is no W3C trace context|no W3C trace context"),
        ({"traceparent": f"00-{'0' * 32}-b7ad6b7169203331-01"}, "no W3C trace context"),
        ({"traceparent": f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01"}, "no W3C trace context"),
        ({"traceparent": f"ff{TRACE[2:]}"}, "no W3C trace context"),
        ({"traceparent": f"{TRACE}-junk"}, "no W3C trace context"),
        ({"traceparent": f"01{TRACE[2:]}junk"}, "no W3C trace context"),
        ({"user": 10**5_000}, "'user' holds an integer of 16,610 bits; 63 are the limit, so give its text"),
        ({"user": -(2**63) - 1}, "an integer of 64 bits"),
        ({f"h{n}": "x" * 8_000 for n in range(9)}, "together, and 65,536 are the limit"),
    ],
)
def test_what_cannot_be_stored_is_refused_at_once(headers: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidContext, match=sentence), event_context(**headers):
        pass
    assert dict(current_headers()) == {}


@pytest.mark.parametrize(
    "name",
    [
        *Envelope._fields,
        *("position", "headers", "timestamp", "created_at", "stamp", "CC", "BCC"),
    ],
)
def test_a_header_named_like_a_part_of_the_envelope_is_refused(name: str) -> None:
    with (
        pytest.raises(InvalidContext, match=f"header '{name}' is a key of the envelope; choose another name"),
        event_context(**{name: "x"}),
    ):
        pass


@pytest.mark.parametrize("name", ["correlation_id", "causation_id", "user_id", "request_id", "tracestate"])
def test_what_travels_beside_the_envelope_is_taken(name: str) -> None:
    with event_context(**{name: "x"}):
        assert dict(current_headers()) == {name: "x"}


@pytest.mark.parametrize(
    "value", [0.5, b"x", ["x"], {"x": 1}, datetime(2026, 1, 2, tzinfo=UTC), Decimal(1)], ids=repr
)
def test_a_header_is_text_an_integer_a_truth_value_a_uuid_or_none(value: object) -> None:
    kind = type(value).__name__
    with (
        pytest.raises(InvalidContext, match=f"'tenant' holds {kind}; give str, int, bool, UUID or None"),
        event_context(tenant=value),
    ):
        pass


@pytest.mark.parametrize("trace", [TRACE, f"01{TRACE[2:]}", f"01{TRACE[2:]}-more"])
def test_a_trace_context_is_taken(trace: str) -> None:
    with event_context(traceparent=trace):
        assert current_headers()["traceparent"] == trace


def test_headers_of_all_blocks_count_towards_the_limit() -> None:
    """K10."""
    half = {f"h{n}": "x" * 8_000 for n in range(5)}
    with (
        event_context(**half),
        pytest.raises(InvalidContext, match="leave out what is no context"),
        event_context(**{f"other-{key}": value for key, value in half.items()}),
    ):
        pass


def test_headers_that_are_read_cannot_be_changed() -> None:
    """K10: what is stored has been checked."""
    for block in (event_context(user="ada"), handling(delivery())):
        with block:
            headers: Any = current_headers()
            with pytest.raises(TypeError):
                headers["user"] = 1.5


def test_the_largest_integer_is_taken() -> None:
    with event_context(number=2**63 - 1):
        assert current_headers()["number"] == 2**63 - 1


def test_what_a_handler_does_is_caused_by_its_event() -> None:
    first = delivery()
    with handling(first):
        headers = dict(current_headers())
        assert current_delivery() is first
    assert headers == {"correlation_id": str(first.event_id), "causation_id": str(first.event_id)}


def test_the_correlation_is_inherited_and_so_is_the_trace_but_nothing_else() -> None:
    second = delivery(correlation_id="origin", causation_id="x", traceparent=TRACE, user_id="u-1")
    with handling(second):
        assert dict(current_headers()) == {
            "correlation_id": "origin",
            "causation_id": str(second.event_id),
            "traceparent": TRACE,
        }


def test_outside_a_handler_there_is_no_delivery() -> None:
    with pytest.raises(NothingDelivered, match="no event is being delivered here"):
        current_delivery()
