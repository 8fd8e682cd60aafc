"""Outcomes on their way into the database (R12)."""

from __future__ import annotations

from typing import Any, cast
from uuid import uuid4

from outbox_kernel.infrastructure.relay.ledger import Ledger
from outbox_kernel.infrastructure.relay.line import Line
from outbox_kernel.infrastructure.relay.store import Lease, Store

LINE = cast("Line", None)


class Releasing:
    """A store during whose last statement something more is given back."""

    def __init__(self) -> None:
        self.ledger: Ledger | None = None
        self.released: list[object] = []

    async def release_events(self, _line: Line, _lease: Lease, positions: list[int]) -> None:
        self.released += positions
        if self.ledger is not None:
            self.ledger.give_back_delivery(uuid4(), "h")
            self.ledger = None

    async def release_deliveries(self, _line: Line, _lease: Lease, keys: list[Any]) -> None:
        self.released += keys


async def test_what_is_given_back_during_the_last_statement_is_written_too() -> None:
    """R12: nothing else would remind anybody of it."""
    store = Releasing()
    ledger = store.ledger = Ledger(cast("Store", store))
    ledger.give_back_event(1)
    await ledger.write(LINE, Lease())
    assert ledger.unwritten.is_set()
    await ledger.write(LINE, Lease())
    assert not ledger.unwritten.is_set()
    assert len(store.released) == 2
