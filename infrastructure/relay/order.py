"""Order: an event waits behind the earlier ones of its aggregate, where one of them is unsettled (R4).

What is in hand stands in the queue of its aggregate. Of what is unsettled the database tells each read; what it does
not know yet is held here. Among deliveries it is the database that computes whose turn it is.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from outbox_kernel.infrastructure.outbox.delivery import Outcome
    from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
    from outbox_kernel.infrastructure.relay.subscription import CarriedAny


class Order:
    """Says what of one subscription must wait."""

    def __init__(self, carried: CarriedAny) -> None:
        self._carried = carried
        self._unwritten: dict[Hashable, int] = {}
        self.keys: dict[Hashable, float] = {}
        """The aggregates that are held, each until a read."""

    def must_leave(self, row: LoggedEvent) -> bool:
        """Whether its read says that it is left for later: it is not its time, or an earlier one is unsettled."""
        if row["not_before"] is not None or row["occurred_at"] is None:
            return True
        unsettled = row["unsettled"]
        if unsettled is None:
            return False
        return self._carried.name in unsettled or self._carried.renamed_from in unsettled

    def must_wait(self, row: LoggedEvent, read: int) -> bool:
        """Whether an earlier one is unsettled, of which the read that brought it was not told."""
        key = row.ordered_in if self._carried.ordered else None
        return key is not None and read <= self.keys.get(key, -1)

    def hold(self, outcome: Outcome) -> None:
        """Hold what follows: a delivery is about to be written."""
        if self._holds_back(outcome):
            key = outcome.row.ordered_in
            self._unwritten[key] = self._unwritten.get(key, 0) + 1
            self.keys[key] = inf

    def release(self, outcome: Outcome, read: int) -> None:
        """Take note that the delivery is written, or needs not be; reads after this one see it."""
        if not self._holds_back(outcome):
            return
        key = outcome.row.ordered_in
        left = self._unwritten[key] - 1
        if left:
            self._unwritten[key] = left
        else:
            del self._unwritten[key]
            self.keys[key] = read

    def let_go(self, read: int) -> None:
        """Forget what was about to be written, and is read again; what this read or an earlier one brings still waits.

        A read under way was told of nothing that was written since it began.
        """
        self.keys.update(dict.fromkeys(self._unwritten, read))
        self._unwritten.clear()

    def forget(self, read: int) -> None:
        """Forget what every later read is told by the database; no event of this read or an earlier one is in hand."""
        for key in [key for key, until in self.keys.items() if until <= read]:
            del self.keys[key]

    def _holds_back(self, outcome: Outcome) -> bool:
        # Dead with on_dead="continue" too: only once that is written, with its receipt, can no later run of it
        # commit after those of later events.
        return not outcome.has_passed and self._carried.ordered and outcome.row.ordered_in is not None
