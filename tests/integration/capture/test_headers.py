"""K10: what `event_context` says is in the headers of every event flushed inside it."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from outbox_kernel.errors import InvalidContext
from outbox_kernel.kernel import event_context
from outbox_kernel.kernel.context import Delivery, handling
from tests.bank import Bank
from tests.domain import Wallet


async def headers(bank: Bank) -> list[dict[str, object]]:
    return [headers for _, _, headers in await bank.payloads()]


@pytest.mark.servers
async def test_headers_are_those_of_the_context_around_the_flush(bank: Bank) -> None:
    """K10: of aggregates' events and the bus's alike, whatever was said when they were recorded."""
    request = uuid4()
    async with bank.session() as session:
        with event_context(user_id="recorded"):
            session.add(Wallet.open())
            bank.emit(session, "announced")
        with event_context(user_id="ada", request_id=request, attempt=2, admin=True, team=None):
            await session.flush()
        bank.emit(session, "later")
        await session.commit()
    said = {"user_id": "ada", "request_id": str(request), "attempt": 2, "admin": True, "team": None}
    assert await headers(bank) == [said, said, {}]


async def test_inner_contexts_add_and_override(bank: Bank) -> None:
    """K10: and what they said ends with them."""
    async with bank.session() as session:
        with event_context(user_id="ada", tenant="bank"):
            with event_context(user_id="bob", locale="de"):
                bank.emit(session, "inner")
                await session.flush()
            bank.emit(session, "outer")
            await session.commit()
    assert await headers(bank) == [
        {"user_id": "bob", "tenant": "bank", "locale": "de"},
        {"user_id": "ada", "tenant": "bank"},
    ]


async def test_events_recorded_while_handling_another_name_their_cause(bank: Bank) -> None:
    """K10: correlation is inherited, causation is the handled event, the trace goes on."""
    cause = UUID("0199a000-0000-7000-8000-000000000001")
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for inherited in ({}, {"correlation_id": "origin", "traceparent": trace, "user_id": "not inherited"}):
        with handling(Delivery(cause, position=1, attempt=1, headers=inherited)):
            async with bank.session() as session:
                session.add(Wallet.open())
                await session.commit()
    assert await headers(bank) == [
        {"correlation_id": str(cause), "causation_id": str(cause)},
        {"correlation_id": "origin", "causation_id": str(cause), "traceparent": trace},
    ]


async def test_text_of_any_script_comes_back_from_the_headers(bank: Bank) -> None:
    """K10: headers are JSON like the payload."""
    async with bank.session() as session:
        with event_context(user_id='Zoë "Ω" \\u0041 \U0001f4b6 $9 \';--'):
            bank.emit(session, "announced")
            await session.commit()
    assert await headers(bank) == [{"user_id": 'Zoë "Ω" \\u0041 \U0001f4b6 $9 \';--'}]


@pytest.mark.parametrize("value", ["a\0b", "\ud800", "x" * 9_000, 1.5, object(), ["list"]])
async def test_a_header_that_cannot_be_stored_is_refused_before_anything_is_recorded(
    bank: Bank, value: object
) -> None:
    """K10: by name, at the start of the block."""
    with pytest.raises(InvalidContext, match="header 'user_id'"), event_context(user_id=value):
        raise AssertionError("the block has begun")
