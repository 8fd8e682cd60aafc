"""K10: headers travel with what is flushed, and what a handler does is caused by its event."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from kernel import Delivery, InvalidContext, current_delivery, current_headers, event_context
from kernel.context import HEADER_CHARACTERS_MAX, Header, handling

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
        ({"event_type": "x"}, "'event_type' is a key of the envelope"),
        ({"user": object()}, "'user' holds object; give str, int, bool, UUID or None"),
        ({"share": 0.5}, "'share' holds float"),
        ({"user": "a\0b"}, "'user' holds a NUL"),
        ({"user": "\ud800"}, "lone surrogate"),
        ({"us\0er": "x"}, "holds a NUL"),
        ({"user": "x" * (HEADER_CHARACTERS_MAX + 1)}, "8,193 characters; 8,192 are the limit"),
        ({"traceparent": "no trace"}, "is no W3C trace context|no W3C trace context"),
    ],
)
def test_what_cannot_be_stored_is_refused_at_once(headers: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidContext, match=sentence), event_context(**headers):
        pass
    assert dict(current_headers()) == {}


def test_a_trace_context_is_taken() -> None:
    with event_context(traceparent=TRACE):
        assert current_headers()["traceparent"] == TRACE


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
    with pytest.raises(InvalidContext, match="no event is being delivered here"):
        current_delivery()
