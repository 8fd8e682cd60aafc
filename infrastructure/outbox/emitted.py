"""Emitted events wait in the session itself, so that they share the fate of everything else in it (C2, C3).

A session with nothing but Core statements is clean and calls no `before_flush`. A carrier among its new
objects makes it dirty, so the commit flushes; a rollback, to a savepoint too, takes the carrier out again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Column, MetaData, Table, Uuid, inspect
from sqlalchemy.orm import Session, registry

from outbox_kernel.infrastructure.outbox.capture_state import state_of
from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.bus import EventBus
from outbox_kernel.kernel.errors import UncommittedEvents
from outbox_kernel.kernel.events import stamp_event

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from outbox_kernel.kernel.events import DomainEvent


class Emitted:
    """Carries one emitted event through the session until the flush that writes it."""

    event_id: UUID

    def __init__(self, event: DomainEvent) -> None:
        self.event_id = event.event_id
        self.event = event


# A mapper needs a table; no row is ever written through it, because capture takes every carrier out.
registry().map_imperatively(
    Emitted, Table("outbox_emitted", MetaData(), Column("event_id", Uuid, primary_key=True))
)


def carriers_among(new: Iterable[object]) -> list[Emitted]:
    """Return the carriers among a session's new objects: its next flush writes their events."""
    return [obj for obj in new if type(obj) is Emitted]


def take_out(session: Session, carriers: Iterable[Emitted]) -> None:
    """Take carriers out of the session: their events are written, or somebody else's to write."""
    for carrier in carriers:
        Session.expunge(session, carrier)  # past the captured session's own, which guards against loss


def refuse_without_rows(events: Iterable[DomainEvent]) -> None:
    """Refuse what an aggregate has recorded and its session does not store, where only a session could (C1).

    Its row would not count the event, and none that it records later could be stored under the same number.
    """
    for event in events:
        if event.aggregate_version is not None and _is_mapped(event.aggregate_type):
            raise UncommittedEvents(
                f"{type(event).__name__!r}, event {event.aggregate_version} of {event.aggregate_type} "
                f"{event.stamp.aggregate_key or event.aggregate_id}, was dispatched into a session in which its "
                "aggregate has no such event to store, so the event would be committed without its state; add the "
                "aggregate to this very session before its next flush"
            )


def _is_mapped(aggregate_type: str | None) -> bool:
    names = catalogue.definitions.aggregate_by_class
    return any(name == aggregate_type and inspect(cls, raiseerr=False) for cls, name in names.items())


class SessionBus(EventBus):
    """The event bus of one captured session: what was emitted and no flush has written, a query's own included.

    A written event shares the transaction's fate; it can neither be counted as waiting nor be taken back alone.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def collect(self) -> tuple[DomainEvent, ...]:
        """Return the events that no flush has written yet, in the order of emission, and clear the bus."""
        waiting = self._waiting()
        take_out(self._session, waiting)
        return tuple(carrier.event for carrier in waiting)

    def take(self, event: DomainEvent) -> None:
        """Take in an event that was recorded, emitted or made elsewhere."""
        if not event.stamp.sequence:
            stamp_event(event, None, None, None)
        self._keep(event)

    @property
    def event_count(self) -> int:
        """How many events wait for the next flush; not those that a query has let it write."""
        return len(self._waiting())

    def _keep(self, event: DomainEvent) -> None:
        state = state_of(self._session)
        if state.flushing:
            state.late.append(event)  # the flush has made its plan; a carrier added now would be part of it
        else:
            self._session.add(Emitted(event))

    def _waiting(self) -> list[Emitted]:
        return sorted(carriers_among(self._session.new), key=lambda carrier: carrier.event.stamp.sequence)
