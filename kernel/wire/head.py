"""What every event has by itself, an id and a moment, as the envelope can hold them (K1)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.errors import UnserializableEvent
from outbox_kernel.kernel.wire.scalars import Misfit, offset_of, refusal

# What stands for any value in a test, as `ANY` does, equals these too.
_SOME_ID = UUID(int=0)
_SOME_MOMENT = datetime(1, 1, 1, tzinfo=UTC)


def checked_id(value: UUID, event: Any) -> UUID:
    """Return the id of an event, or raise UnserializableEvent if it is no UUID."""
    given: Any = value
    if not isinstance(given, UUID) and given != _SOME_ID:
        raise _refused(event, "event_id", refusal(value, "UUID"))
    return value


def utc_moment(value: datetime, event: Any) -> datetime:
    """Return the moment of an event in UTC, or raise UnserializableEvent if that cannot be told."""
    if type(value) is datetime and value.tzinfo is UTC:
        return value
    given: Any = value
    if not isinstance(given, datetime) and given == _SOME_MOMENT:
        return value
    try:
        return _in_utc(value)
    except Misfit as misfit:
        raise _refused(event, "occurred_at", misfit) from None


def moment_to_wait_for(value: datetime | None, event: Any) -> datetime | None:
    """Return the moment before which an event is not to be handled, in UTC, or raise UnserializableEvent."""
    if value is None:
        return None
    try:
        return _in_utc(value)
    except Misfit as misfit:
        raise _refused(event, "not_before", misfit) from None


def _in_utc(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise refusal(value, "datetime")
    offset_of(value)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Misfit(
            "holds a moment outside the years 1 to 9999 of UTC; give one that can have happened"
        ) from None


def _refused(event: Any, field: str, misfit: Misfit) -> UnserializableEvent:
    return UnserializableEvent(catalogue.event_type_of(type(event)).name, field, str(misfit))
