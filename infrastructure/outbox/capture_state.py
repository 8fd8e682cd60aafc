"""What capture knows of one session: only what no row and no aggregate can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import attrs
from sqlalchemy.orm.attributes import instance_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine
    from sqlalchemy.orm import InstanceState, Session

    from outbox_kernel.infrastructure.outbox.outgoing import Outgoing
    from outbox_kernel.infrastructure.telemetry.spans import Creating
    from outbox_kernel.kernel.aggregate import AggregateRoot
    from outbox_kernel.kernel.events import DomainEvent

_KEY = "outbox_capture"
_MARK = "_outbox_mark"


@attrs.define
class Flushed:
    """What a transaction has done to the row of one aggregate."""

    # So that a commit can let go of events that are durable.
    version: int
    # Inserted it: a rollback makes the aggregate new again, with all events.
    born: bool
    # And loaded it since: its children are what rows made, and go with the rows.
    reloaded: bool = False


@attrs.define
class CaptureState:
    """The bookkeeping of one session's outermost transaction."""

    # An aggregate is known by its mapper's state: it may be compared or hashed by values, which a load would have to
    # bring, and which change.

    # Version up to which this flush has written each aggregate's events.
    in_flush: dict[InstanceState[Any], int] = attrs.Factory(dict)
    # What this transaction has flushed. Weakly, as the session itself holds what it has flushed: a long import must
    # not pile up in memory.
    flushed: WeakKeyDictionary[InstanceState[Any], Flushed] = attrs.Factory(WeakKeyDictionary)
    # What it leaves on the aggregates' events that it writes, since whoever has collected one may hold it for longer
    # than the session holds its aggregate.
    mark: object = attrs.Factory(object)
    # The events of a flush in which some row is yet to make the key that its aggregate's events carry.
    unkeyed: list[DomainEvent] = attrs.Factory(list)
    # An event that waits for the row to take along.
    outgoing: Outgoing | None = None
    # A flush is under way: what is emitted now waits here, for its end or for the next flush.
    flushing: bool = False
    late: list[DomainEvent] = attrs.Factory(list)
    # A flush has written its events but not ended: an event recorded now would be lost, so it is refused.
    settled: bool = False
    # Where events were written: its relays are told after the commit.
    wrote_by: Engine | None = None
    # Of the events that were written, where traces are made.
    spans: list[Creating] = attrs.Factory(list)

    def end_spans(self, *, are_durable: bool) -> None:
        """End the spans of what is durable now, or is not there."""
        spans, self.spans = self.spans, []
        for span in spans:
            span.end(is_durable=are_durable)

    def write_outgoing(self) -> None:
        """Write the event that waits, if there is one."""
        outgoing, self.outgoing = self.outgoing, None
        if outgoing is not None:
            outgoing.write()

    def note(self, aggregate: AggregateRoot, version: int, *, born: bool) -> None:
        """Note that the aggregate's row has this version now."""
        key = instance_state(aggregate)
        known = self.flushed.get(key)
        if known is None:
            self.flushed[key] = Flushed(version, born)
        else:
            known.version, known.born = version, known.born or born

    def told_by(self, aggregate: AggregateRoot, row_version: int, version: int) -> Sequence[DomainEvent]:
        """Return the events that move the aggregate's row from one version to the other, marked as written."""
        events = aggregate._events_between(row_version, version)
        for event in events:
            event.__dict__[_MARK] = self.mark
        return events

    def has_told(self, event: DomainEvent) -> bool:
        """Whether this transaction has written the event for its aggregate."""
        return event.__dict__.get(_MARK) is self.mark

    def birth_of(self, aggregate: AggregateRoot) -> Flushed | None:
        """Return what is known of an aggregate whose row this transaction has inserted."""
        known = self.flushed.get(instance_state(aggregate))
        return known if known is not None and known.born else None


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
    """Begin anew: the session's outermost transaction has ended; what it has not committed is gone."""
    state = session.info.pop(_KEY, None)
    if state is not None:
        state.end_spans(are_durable=False)
