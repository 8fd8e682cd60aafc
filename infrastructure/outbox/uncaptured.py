"""Sessions without capture: they refuse an aggregate whose version moves without its events (C8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.orm import Session, attributes
from sqlalchemy.orm.base import PASSIVE_NO_INITIALIZE

from outbox_kernel.infrastructure.outbox.record import OutboxRecord
from outbox_kernel.infrastructure.outbox.session import CapturedSession
from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import new_objects
from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.aggregate import AggregateRoot, id_of
from outbox_kernel.kernel.errors import UncommittedEvents, VersionMoved
from outbox_kernel.kernel.identity import stream_key

if TYPE_CHECKING:
    from outbox_kernel.kernel.events import DomainEvent

_RECORD = "_outbox_record"


def note_dispatched(event: DomainEvent, record: OutboxRecord) -> None:
    """Note the row by which an event goes into a session by hand."""
    event.__dict__[_RECORD] = record


def _refuse_loss(session: Session, *_: Any) -> None:
    if isinstance(session, CapturedSession):
        return
    for obj in (*new_objects(session), *session.dirty, *session.deleted):
        if isinstance(obj, AggregateRoot):
            _check(session, obj)


# From the import on, and for all sessions there are: one without capture is one of which nobody has told us.
event.listen(Session, "before_flush", _refuse_loss)
# Once more for what other listeners have recorded since.
event.listen(Session, "after_flush", _refuse_loss)


def _check(session: Session, aggregate: AggregateRoot) -> None:
    """Refuse to move the row's version, unless each event between has a row in this session too."""
    row_version, version = _row_version(aggregate), aggregate.__dict__.get("version") or 0
    if row_version == version:
        return
    told = [event for event in aggregate._recorded_log() if row_version < _number(event) <= version]
    if not all(_is_dispatched(session, event) for event in told):
        raise UncommittedEvents(
            f"{aggregate!r} has events that are not committed, and this session would store it without them: call "
            "install_capture on the session's maker or class, or dispatch collect_events() of the aggregate "
            "by OutboxEventDispatcher(session) before the flush"
        )
    # A merge leaves the events on the object that it copies, and a replay on nothing at all.
    missing = {*range(row_version + 1, version + 1)}.difference(map(_number, told))
    if version < row_version or not missing <= _numbers_in(session, aggregate):
        raise VersionMoved(
            f"{aggregate!r} is at version {version} and its row at {row_version}, and the events between are not in "
            "this session: load it and change it, instead of a copy or a version of one's own, or dispatch those "
            "events by OutboxEventDispatcher(session) before the flush"
        )


def _number(event: DomainEvent) -> int:
    return event.aggregate_version or 0


def _numbers_in(session: Session, aggregate: AggregateRoot) -> set[int]:
    """Return the numbers of the aggregate's events whose rows the session holds."""
    name = catalogue.definitions.aggregate_by_class.get(type(aggregate))
    found = stream_key(id_of(aggregate), aggregate._key_rule.kinds)
    if name is None or found is None:
        return set()
    # As they are at hand: one that has expired would ask the database, in the middle of a flush.
    rows = (vars(obj) for obj in session if isinstance(obj, OutboxRecord))
    stream = (name, found[0])
    return {
        row.get("aggregate_version") or 0
        for row in rows
        if (row.get("aggregate_type"), row.get("aggregate_id")) == stream
    }


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
