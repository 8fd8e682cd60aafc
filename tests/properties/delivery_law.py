"""The law of delivery, on what has happened to one outbox so far (R2-R7b)."""

from __future__ import annotations

from itertools import islice
from typing import Any
from uuid import UUID

import attrs

from tests.properties.led_relays import LOGICAL, ORDERED, Key, Report

DELIVERIES = """
SELECT event.position, handler, status, attempts, alone, lease_relay, lease_epoch
FROM outbox_deliveries JOIN outbox_events AS event USING (event_id)
"""
RECEIPTS = """
SELECT event.position, handler, outcome FROM outbox_receipts JOIN outbox_events AS event USING (event_id)
"""
JOURNAL = "SELECT line FROM bank_journal"


def key_of(row: Any) -> Key:
    """Whose row it is."""
    return row["position"], LOGICAL[row["handler"]]


@attrs.define
class Put:
    """A committed event, as the model knows it."""

    aggregate: UUID | None
    """Within which it keeps its order."""
    kind: str
    due: set[str]
    """The handlers that are owed it."""


@attrs.define
class Law:
    """What was put, what was done about it, and what must hold of both."""

    report: Report = attrs.Factory(Report)
    put: dict[int, Put] = attrs.Factory(dict)
    done: set[Key] = attrs.Factory(set)
    let_go: set[Key] = attrs.Factory(set)
    """What was passed without an effect: skipped, or dead where that lets others pass."""
    deliveries: list[Any] = attrs.Factory(list)
    _alone: set[tuple[Key, UUID, int]] = attrs.Factory(set)
    _checked: int = 0

    async def check(self, witness: Any) -> None:
        """Look at the tables, and hold what has happened against them."""
        self.deliveries = await witness.fetch(DELIVERIES)
        receipts = await witness.fetch(RECEIPTS)
        lines = [row["line"] for row in await witness.fetch(JOURNAL)]
        self.let_go |= {key_of(row) for row in receipts if row["outcome"] == "skipped"}
        effects = {key_of(row) for row in receipts if row["outcome"] == "done"}
        self._check_effects(lines, effects)
        self._check_charges()
        self._check_order()
        self.done |= effects  # also of a run that was ended before it could say so

    def _check_effects(self, lines: list[str], done: set[Key]) -> None:
        assert len(lines) == len(set(lines)), f"an effect happened twice: {sorted(lines)}"
        effects = {(int(line.split(":")[0]), line.split(":")[1]) for line in lines}
        assert effects == done, "an effect without its receipt, or a receipt without its effect"

    def _check_charges(self) -> None:
        """Nobody is charged but for a failure of its own, or for a crash while it ran alone."""
        for row in self.deliveries:
            key = key_of(row)
            if row["alone"] and row["status"] == "leased":
                self._alone.add((key, row["lease_relay"], row["lease_epoch"]))
            crashes = sum(found[0] == key for found in self._alone)
            assert row["attempts"] <= self.report.failures[key] + crashes, f"{key} was charged for others"

    def _check_order(self) -> None:
        """What begins, or has an effect, was due, and all that was before it is done or was let go."""
        for what, key in islice(self.report.order, self._checked, None):
            position, handler = key
            assert position in self.put, f"{key} was delivered before it was committed"
            assert handler in self.put[position].due, f"{key} was not due"
            if what in ("begun", "effect"):
                missing = [each for each in self._before(key) if each not in self.done | self.let_go]
                assert not missing, f"{what} of {key} came before {missing}"
            if what in ("effect", "succeeded"):
                self.done.add(key)
        self._checked = len(self.report.order)

    def _before(self, key: Key) -> list[Key]:
        position, handler = key
        aggregate = self.put[position].aggregate
        if aggregate is None or handler not in ORDERED:
            return []
        return [
            (other, handler)
            for other, put in self.put.items()
            if other < position and put.aggregate == aggregate and handler in put.due
        ]

    def check_end(self) -> None:
        """Hold that nothing is lost."""
        due = {(position, name) for position, put in self.put.items() for name in put.due}
        assert due <= self.done | self.let_go, f"lost: {sorted(due - self.done - self.let_go)}"
