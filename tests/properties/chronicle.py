"""What has happened to an outbox, held after each step against what must hold (R2, R4-R7b, R9)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import datetime
from itertools import pairwise
from typing import Any, TypeVar
from uuid import UUID

import attrs

from tests.properties.fleet import LOGICAL, ORDERED, Log, Sea

T = TypeVar("T")

# What takes this long will never end.
DEADLINE_SECONDS = 20.0
EVENTS = "SELECT position, status, retry_count, lease_relay, lease_epoch FROM outbox_events"
DELIVERIES = """
SELECT position, event_id, handler, order_key, status, attempts, takeovers, alone, settled, lease_relay, lease_epoch
FROM outbox_deliveries ORDER BY position, handler
"""
RECEIPTS = """
SELECT event.position, receipt.handler, receipt.outcome
FROM outbox_receipts AS receipt JOIN outbox_events AS event USING (event_id)
"""
JOURNAL = "SELECT line FROM bank_journal"
RELAYS = "SELECT id, epoch FROM outbox_relays"


@attrs.frozen
class Place:
    """Where the histories happen: one loop, one sea, and a connection that is nobody's."""

    runner: asyncio.Runner
    sea: Sea
    witness: Any
    writer: Any

    def run(self, work: Awaitable[T]) -> T:
        async def done() -> T:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await work

        return self.runner.run(done())


@attrs.define
class Put:
    """An event as the model knows it."""

    aggregate: UUID | None
    event_type: str
    due: set[str]
    """The logical handlers that are owed it for certain."""
    not_before: datetime | None = None


@attrs.define
class Seen:
    """The tables as they stand after a step."""

    events: dict[int, Any] = attrs.Factory(dict)
    deliveries: list[Any] = attrs.Factory(list)
    passed: set[tuple[int, str]] = attrs.Factory(set)
    """What was let go without an effect."""
    live: set[tuple[UUID, int]] = attrs.Factory(set)


class Chronicle:
    """What the model knows, what the tables say, and what the handlers have reported."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.log = Log()
        self.put: dict[int, Put] = {}
        self.seen = Seen()
        self.checked = 0
        self.retried: set[tuple[int, str]] = set()

    def run(self, work: Awaitable[T]) -> T:
        return self.place.run(work)

    def check(self) -> None:
        """Look at the tables, and hold what has happened against them."""
        before = self.seen
        self.seen = self.run(self._look(before.passed))
        self._check_events()
        self._check_deliveries()
        self._check_effects()
        for number in range(self.checked, len(self.log.started)):
            self._check_start(number, before)
        self.checked = len(self.log.started)

    async def _look(self, passed: set[tuple[int, str]]) -> Seen:
        fetch = self.place.witness.fetch
        events = {row["position"]: row for row in await fetch(EVENTS)}
        deliveries = await fetch(DELIVERIES)
        receipts = await fetch(RECEIPTS)
        lines = [row["line"] for row in await fetch(JOURNAL)]
        assert len(lines) == len(set(lines)), f"an effect happened twice: {sorted(lines)}"
        done = {(row[0], LOGICAL[row[1]]) for row in receipts if row["outcome"] == "done"}
        assert {(int(line.split(":")[0]), line.split(":")[1]) for line in lines} == done
        let_go = {(row[0], LOGICAL[row[1]]) for row in receipts if row["outcome"] == "skipped"}
        let_go |= {
            (row["position"], LOGICAL[row["handler"]]) for row in deliveries if row["status"] == "skipped"
        }
        live = {(row["id"], row["epoch"]) for row in await fetch(RELAYS)}
        return Seen(events, deliveries, passed | let_go, live)

    def _check_events(self) -> None:
        assert set(self.put) == set(self.seen.events)
        by_event: dict[int, set[str]] = {}
        for row in self.seen.deliveries:
            by_event.setdefault(row["position"], set()).add(row["status"])
        for position, row in self.seen.events.items():
            made = by_event.get(position, set())
            if row["status"] in ("pending", "leased"):
                assert not made, f"{position} has deliveries in its first pass"
            else:
                expected = (
                    "open" if made & {"waiting", "leased"} else "dead" if "dead" in made else "delivered"
                )
                assert row["status"] == expected, f"{position} is {row['status']} with {made}"
            assert (row["status"] == "leased") == (row["lease_relay"] is not None)

    def _check_deliveries(self) -> None:
        unsettled: dict[tuple[str, str], list[Any]] = {}
        for row in self.seen.deliveries:
            handler = LOGICAL[row["handler"]]
            key = row["position"], handler
            assert (row["status"] == "leased") == (row["lease_relay"] is not None)
            assert row["status"] == "leased" or not row["alone"]
            if "kills the process" not in str(row) and row["takeovers"] <= 2 and key not in self.retried:
                assert row["attempts"] <= self.log.failures.get(key, 0), (
                    f"{key} was charged without a failure"
                )
            if not row["settled"]:
                unsettled.setdefault((row["order_key"], handler), []).append(row)
        for rows in unsettled.values():
            self._check_turn(rows)

    def _check_turn(self, rows: list[Any]) -> None:
        """What is held is the head, or follows it in the same hands; or the head was let go, and is retried late."""
        for earlier, row in pairwise(rows):
            let_go = (earlier["position"], LOGICAL[earlier["handler"]]) in self.seen.passed
            if row["status"] == "leased" and not let_go:
                lease = row["lease_relay"], row["lease_epoch"]
                assert (earlier["lease_relay"], earlier["lease_epoch"]) == lease, (
                    f"{row} runs before {earlier}"
                )

    def _check_effects(self) -> None:
        last: dict[tuple[UUID, str], int] = {}
        for position, handler in self.log.effects:
            aggregate = self.put[position].aggregate
            if handler in ORDERED and aggregate is not None:
                before = last.get((aggregate, handler), 0)
                # What had succeeded without one before is delivered at least once.
                excused = self.seen.passed | self.log.without_effect
                assert position > before or (position, handler) in excused, (
                    f"{handler}: the effect of {position} came after that of {before}"
                )
                last[aggregate, handler] = max(before, position)

    def _check_start(self, number: int, before: Seen) -> None:
        """No run begins after one of a later event, unless it had succeeded before, or was let go."""
        run = self.log.started[number]
        assert run.position in self.put, f"{run.position} was delivered before it was committed"
        moment = self.put[run.position].not_before
        assert moment is None or run.at >= moment, f"{run.position} is handled before its moment"
        aggregate, lease = self.put[run.position].aggregate, (run.ship.lease.relay, run.ship.lease.epoch)
        if run.handler not in ORDERED or aggregate is None or lease not in before.live:
            return  # no order, or a relay that does not know yet that it is nobody
        if run.again or (run.position, run.handler) in before.passed:
            return
        for other in self.log.started[:number]:
            overtaken = other.handler == run.handler and self.put[other.position].aggregate == aggregate
            assert not overtaken or other.position <= run.position, (
                f"{run.handler} begins {run.position} after {other.position}"
            )
