"""What capture knows of one session: only what no row and no aggregate can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary, WeakSet

import attrs

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from kernel.aggregate import AggregateRoot
    from kernel.events import DomainEvent

_KEY = "outbox_capture"


@attrs.define
class CaptureState:
    """The bookkeeping of one session's outermost transaction."""

    # Version up to which this flush has written each aggregate's events.
    in_flush: dict[AggregateRoot, int] = attrs.Factory(dict)
    # The same for the transaction, so that a commit can let go of events that are durable. Weakly, as
    # the session itself holds what it has flushed: a long import must not pile up in memory.
    in_transaction: WeakKeyDictionary[AggregateRoot, int] = attrs.Factory(WeakKeyDictionary)
    # Aggregates whose row this transaction inserted: a rollback makes them new again, with all events.
    born: WeakSet[AggregateRoot] = attrs.Factory(WeakSet)
    # Those of them that were loaded since: their children are what rows made, and go with the rows.
    reloaded: WeakSet[AggregateRoot] = attrs.Factory(WeakSet)
    # A flush has written rows, of whatever class, so objects at hand are ahead of what a rollback leaves.
    written: bool = False
    # A flush is under way: what is emitted now waits here, for its end or for the next flush.
    flushing: bool = False
    late: list[DomainEvent] = attrs.Factory(list)
    # A flush has written its events but not ended: an event recorded now would be lost, so it is refused.
    settled: bool = False
    # Where events were written: its relays are told after the commit.
    wrote_by: Engine | None = None


def state_of(session: Session) -> CaptureState:
    """Return the capture state of a session, begun if need be."""
    state = session.info.get(_KEY)
    if state is None:
        state = session.info[_KEY] = CaptureState()
    return cast("CaptureState", state)


def known_state_of(session: Session) -> CaptureState | None:
    """Return the capture state of a session, if it has any."""
    return session.info.get(_KEY)


def forget_state_of(session: Session) -> None:
    """Begin anew: the session's outermost transaction has ended."""
    session.info.pop(_KEY, None)
