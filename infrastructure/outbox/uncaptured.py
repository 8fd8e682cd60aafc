"""Sessions without capture: an aggregate that has recorded is refused there, since its events would be lost (C8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.orm import Session, attributes
from sqlalchemy.orm.base import PASSIVE_NO_INITIALIZE

from outbox_kernel.infrastructure.outbox.session import CapturedSession
from outbox_kernel.kernel.aggregate import AggregateRoot
from outbox_kernel.kernel.errors import UncommittedEvents

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.outbox.record import OutboxRecord
    from outbox_kernel.kernel.events import DomainEvent

_RECORD = "_outbox_record"


def note_dispatched(event: DomainEvent, record: OutboxRecord) -> None:
    """Note the row by which an event goes into a session by hand."""
    event.__dict__[_RECORD] = record


def _refuse_loss(session: Session, *_: Any) -> None:
    if isinstance(session, CapturedSession):
        return
    for obj in (*session._new.values(), *session.dirty, *session.deleted):
        if isinstance(obj, AggregateRoot) and _would_lose(session, obj):
            raise UncommittedEvents(
                f"{obj!r} has events that are not committed, and this session would store it without them: call "
                "install_capture on the session's maker or class, or dispatch collect_events() of the aggregate "
                "by OutboxEventDispatcher(session) before the flush"
            )


# From the import on, and for all sessions there are: one without capture is one of which nobody has told us.
event.listen(Session, "before_flush", _refuse_loss)
# Once more for what other listeners have recorded since.
event.listen(Session, "after_flush", _refuse_loss)


def _would_lose(session: Session, aggregate: AggregateRoot) -> bool:
    row_version, version = _row_version(aggregate), aggregate.__dict__.get("version", 0)
    if row_version == version:
        return False
    told = (
        event
        for event in aggregate._recorded_log()
        if row_version < (event.aggregate_version or 0) <= version
    )
    return any(not _is_dispatched(session, event) for event in told)


def _is_dispatched(session: Session, event: DomainEvent) -> bool:
    # A rollback takes the row out of the session again.
    record = event.__dict__.get(_RECORD)
    return record is not None and record in session


def _row_version(aggregate: AggregateRoot) -> int:
    state = attributes.instance_state(aggregate)
    if state.key is None or "version" not in state.manager:
        return 0
    _, unchanged, deleted = attributes.get_history(aggregate, "version", PASSIVE_NO_INITIALIZE)
    return next(iter(deleted or unchanged or ()), 0)
