"""What workers have to do: an event for one handler or publisher, in the queue of its aggregate (R4)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Hashable

    from outbox_kernel.infrastructure.relay.reader import Batch
    from outbox_kernel.infrastructure.relay.rows import LoggedEvent


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
