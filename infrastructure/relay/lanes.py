"""Lanes: the events of one aggregate that are in hand, and the handlers that must leave them out (R4)."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from outbox_kernel.infrastructure.relay.work import ClaimedEvent, DeliveryWork, EventWork, Outcome

_PASSES = ("done", "skipped")


@attrs.define(eq=False)
class Lane:
    """Events of one aggregate in order.

    A handler that has an unsettled delivery here must leave later events out. The database says so to every
    claim that begins after that delivery was written; `bounds` says it for the claims before.
    """

    items: deque[EventWork] = attrs.Factory(deque)
    behind: deque[EventWork] = attrs.Factory(deque)
    """Those that have been walked over and wait to be published; they end in order all the same."""
    walked: bool = False
    unmarked: int = 0
    _unwritten: dict[str, int] = attrs.Factory(dict)
    bounds: dict[str, float] = attrs.Factory(dict)

    def blocks(self, handler: str, claim: int) -> bool:
        """Whether a handler must leave out an event of that claim."""
        return claim <= self.bounds.get(handler, -1)

    def add(self, work: EventWork, outcome: Outcome) -> None:
        """Note an outcome of a work of this lane."""
        work.outcomes.append(outcome)
        if _holds_back(work, outcome):
            self._unwritten[outcome.handler] = self._unwritten.get(outcome.handler, 0) + 1
            self.bounds[outcome.handler] = inf

    def remove(self, work: EventWork, handler: str, claim: int) -> None:
        """Take an outcome back that is not written yet."""
        for outcome in [each for each in work.outcomes if each.handler == handler]:
            work.outcomes.remove(outcome)
            if _holds_back(work, outcome):
                self._written(handler, claim)

    def marked(self, work: EventWork, claim: int) -> None:
        """Note that a work's outcomes are in the database: claims after this one see them there."""
        self.unmarked -= 1
        for outcome in work.outcomes:
            if _holds_back(work, outcome):
                self._written(outcome.handler, claim)

    def _written(self, handler: str, claim: int) -> None:
        self._unwritten[handler] -= 1
        if not self._unwritten[handler]:
            del self._unwritten[handler]
            self.bounds[handler] = claim


def _holds_back(work: EventWork, outcome: Outcome) -> bool:
    # Dead with on_dead="continue" too: only once that is written, with its receipt, can no later run of it
    # commit after those of later events.
    return outcome.status not in _PASSES and outcome.order_key == work.row.order_key


@attrs.define(eq=False)
class Turn:
    """Deliveries of one handler within one order key."""

    items: deque[DeliveryWork]

    @property
    def is_publishers(self) -> bool:
        """Whether they go to a broker."""
        return self.items[0].carried.kind == "publisher"


class Lanes:
    """All lanes by aggregate."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, UUID], Lane] = {}
        self._lingering: list[tuple[tuple[str, UUID], Lane]] = []

    def of(self, row: ClaimedEvent) -> Lane:
        """Return the lane of an event; one that is ordered in no aggregate has a lane of its own."""
        key = row.ordered_in
        if key is None:
            return Lane()
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane()
        return lane

    def marked(self, works: Iterable[EventWork], claim: int) -> None:
        """Take note of written outcomes, and forget lanes that nothing depends on any more."""
        for work in works:
            key = work.row.ordered_in
            work.lane.marked(work, claim)
            if work.lane.unmarked or key is None:
                continue
            if work.lane.bounds:
                self._lingering.append((key, work.lane))
            else:
                self._lanes.pop(key, None)

    def claimed(self, claim: int) -> None:
        """Forget lanes whose bounds are behind: every later claim asks the database after this one."""
        still = []
        for key, lane in self._lingering:
            if lane.unmarked:
                continue  # it comes here again when these are marked
            if max(lane.bounds.values()) > claim:
                still.append((key, lane))
            elif self._lanes.get(key) is lane:
                del self._lanes[key]
        self._lingering = still

    def clear(self) -> None:
        """Forget everything: the lease is lost."""
        self._lanes.clear()
        self._lingering.clear()
