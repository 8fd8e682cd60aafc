"""Order: an event waits behind the earlier ones of its aggregate (R4).

What is in hand stands in the queue of its aggregate. Of what is unsettled the database tells each read; what it
does not know yet is held here.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from outbox_kernel.infrastructure.outbox.delivery import DueDelivery
    from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
    from outbox_kernel.infrastructure.relay.cursor import Batch


class Held:
    """Remembers what the database does not know yet; what it knows, each read is told by it."""

    def __init__(self) -> None:
        self._unwritten: dict[Hashable, int] = {}
        self.keys: dict[Hashable, float] = {}
        """What is held, each until a read."""

    def hold(self, key: Hashable) -> None:
        """Hold an aggregate: a delivery of it is about to be written."""
        self._unwritten[key] = self._unwritten.get(key, 0) + 1
        self.keys[key] = inf

    def release(self, key: Hashable, read: int) -> None:
        """Take note that the delivery is written, or needs not be; reads after this one see it."""
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

    def holds(self, key: Any, read: int) -> bool:
        """Whether an event that this read brought must wait."""
        return read <= self.keys.get(key, -1)

    def forget(self, read: int) -> None:
        """Forget what every later read is told by the database; no event of this read or an earlier one is in hand."""
        for key in [key for key, until in self.keys.items() if until <= read]:
            del self.keys[key]


@attrs.define(eq=False)
class Work:
    """One event for one handler or publisher: out of a batch, or as a delivery."""

    row: LoggedEvent
    key: Hashable
    """The aggregate, where its order is kept."""
    batch: Batch | None
    attempts: int = 0


@attrs.define(eq=False)
class Queue:
    """What is in hand of one aggregate, in order."""

    key: Hashable
    works: list[Work] = attrs.Factory(list)
    is_turn: bool = False
    """Whether these are deliveries: one that does not succeed ends the turn."""


def turns_of(rows: Iterable[DueDelivery]) -> list[tuple[str, Queue]]:
    """Sort leased deliveries into turns, each with its handler."""
    turns: dict[tuple[str, str], Queue] = {}
    for row in rows:
        turn = turns.setdefault((row.handler, row.turn), Queue(None, is_turn=True))
        turn.works.append(Work(row, None, None, row.attempts))
    return [(handler, turn) for (handler, _), turn in turns.items()]
