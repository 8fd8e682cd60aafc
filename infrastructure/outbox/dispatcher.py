"""Writing events by hand: for sessions without capture, and for code that speaks to a port (K6, C6)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import inspect

from outbox_kernel.infrastructure.outbox.capture_state import state_of
from outbox_kernel.infrastructure.outbox.record import OutboxRecord, map_outbox_table
from outbox_kernel.infrastructure.outbox.records_written import count_records
from outbox_kernel.infrastructure.outbox.sealing.records import use_master_keys
from outbox_kernel.infrastructure.outbox.session import CapturedSession, sync_session_of
from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import new_objects
from outbox_kernel.infrastructure.outbox.uncaptured import note_dispatched
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.infrastructure.telemetry.tracing import tracing
from outbox_kernel.kernel.aggregate import AggregateRoot
from outbox_kernel.kernel.context import current_headers, event_context
from outbox_kernel.kernel.envelope import enveloped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session

    from outbox_kernel.infrastructure.master_keys import MasterKeys
    from outbox_kernel.infrastructure.outbox.session import AnySession
    from outbox_kernel.kernel.bus import EventBus
    from outbox_kernel.kernel.events import DomainEvent


class OutboxEventDispatcher:
    """Adds an outbox row per event to a session; never flushes, never commits.

    On a captured session the aggregates' own events are written by capture, so each is written once. `master_keys` are
    for events with sealed fields in a session without it (default: OUTBOX_MASTER_KEYS).
    """

    def __init__(self, session: AnySession, *, master_keys: MasterKeys | None = None) -> None:
        self._session = sync_session_of(session)
        use_master_keys(self._session, master_keys)

    async def dispatch(self, events: Iterable[DomainEvent]) -> None:
        """Add the events, in their order, to what the session's next flush writes; all of them or none."""
        session = self._session
        if not isinstance(session, CapturedSession):
            count_records(session)
            session.add_all([_record(event) for event in events])
            return
        events = list(events)
        by_hand = _not_captured(session, events)
        for event in events:
            if id(event) in by_hand:
                session.outbox.take(event)


class OutboxMiddleware:
    """The explicit way for sessions without the interceptor: collect, write, return how many."""

    @staticmethod
    async def flush(
        session: AsyncSession | async_scoped_session[Any], bus: EventBus, **context: object
    ) -> int:
        """Write the bus's events into the session's transaction, with the context as headers; return their number."""
        with event_context(**context):
            events = bus.collect()
            await OutboxEventDispatcher(session).dispatch(events)
            await session.flush()
        return len(events)


def _record(event: DomainEvent) -> OutboxRecord:
    if inspect(OutboxRecord, raiseerr=False) is None:
        map_outbox_table(Settings.from_environment().outbox_schema)
    envelope, headers = enveloped(event), current_headers()
    if (spans := tracing.spans()) is not None:
        headers, creating = spans.create(headers, [envelope])
        creating.end(is_durable=True)  # nobody hears of the end of a session that is not captured
    columns = envelope._asdict()
    told = {name: columns[name] and json.loads(columns[name]) for name in ("payload", "sensitive")}
    record = OutboxRecord(**{**columns, **told}, headers=dict(headers))
    note_dispatched(event, record)
    return record


def _not_captured(session: Session, events: Iterable[DomainEvent]) -> set[int]:
    """Return the ids of the events that capture neither has written in this transaction nor is about to write."""
    state = state_of(session)
    left = {id(event) for event in events if not state.has_told(event)}
    for aggregate in _aggregates_of(session):
        if not left:
            break
        left.difference_update(map(id, aggregate._recorded_log()))
    return left


def _aggregates_of(session: Session) -> Iterator[AggregateRoot]:
    """Yield the session's aggregates, the newest first: whoever dispatches for each of many has just recorded on it."""
    yield from _aggregates_among(new_objects(session))
    yield from _aggregates_among(session.identity_map.values())


def _aggregates_among(objects: Iterable[object]) -> Iterator[AggregateRoot]:
    return (obj for obj in reversed(list(objects)) if isinstance(obj, AggregateRoot))
