"""What workers have to do: an event for one handler or publisher, in the queue of its aggregate (R4)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from outbox_kernel.infrastructure.relay.reader import Batch
    from outbox_kernel.infrastructure.relay.rows import DueDelivery, LoggedEvent


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
    works: deque[Work] = attrs.Factory(deque)
    is_turn: bool = False
    """Whether these are deliveries: one that does not succeed ends the turn."""


def turns_of(rows: Iterable[DueDelivery]) -> dict[str, list[Queue]]:
    """Sort leased deliveries into turns, by handler."""
    turns: dict[tuple[str, str], Queue] = {}
    by_handler: dict[str, list[Queue]] = {}
    for row in rows:
        turn = turns.get((row.handler, row.turn))
        if turn is None:
            turn = turns[row.handler, row.turn] = Queue(None, is_turn=True)
            by_handler.setdefault(row.handler, []).append(turn)
        turn.works.append(Work(row, None, None, row.attempts))
    return by_handler
