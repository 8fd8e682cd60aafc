"""What the store in memory refuses as a database would: a taken id, a stale writer, a second of a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.aggregate import AggregateRoot, id_of
from outbox_kernel.kernel.errors import (
    AggregateHasNoId,
    AggregateIdTaken,
    ConcurrencyError,
    IdentityMoved,
)
from outbox_kernel.kernel.identity import bare_value, stream_key, uuid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from outbox_kernel.kernel.envelope import Envelope

    Uniqueness = Mapping[str | tuple[str, ...], Callable[[], Exception]]

Key = tuple[type[AggregateRoot], object]
Place = tuple["str | None", "UUID | None", int]
Stream = tuple["UUID | None", "str | None"]


def key_of(aggregate: AggregateRoot) -> Key:
    """Return the key under which an aggregate is stored."""
    identity = normalized(id_of(aggregate))
    if identity is None:
        raise AggregateHasNoId(
            f"{aggregate!r} has no id, so it cannot be stored; give it one before adding it"
        )
    return type(aggregate), identity


def has_key(aggregate: AggregateRoot) -> bool:
    """Tell whether an aggregate has its id yet, or a row is to make it."""
    return not aggregate._key_rule.may_come_later or id_of(aggregate) is not None


def normalized(identity: object) -> object:
    """Return the UUID in an id, so that a value object and its value find the same row."""
    return uuid_of(identity) or identity


def stream_of(aggregate: AggregateRoot) -> Stream:
    """Return the UUID and the key of an aggregate's stream."""
    return stream_key(id_of(aggregate)) or (None, None)


def place_of(envelope: Envelope) -> Place | None:
    """Return what no two events may share; an emitted one has no number, and so no place."""
    if envelope.aggregate_version is None:
        return None
    return envelope.aggregate_type, envelope.aggregate_id, envelope.aggregate_version


def type_name_of(aggregate: AggregateRoot) -> str:
    """Return the wire name of an aggregate, or its class name if it is not registered."""
    return catalogue.definitions.aggregate_by_class.get(type(aggregate), type(aggregate).__name__)


def conflict(aggregate_type: str | None, stream: Stream, version: int | None) -> ConcurrencyError:
    """Return the error for a second writer of one aggregate."""
    aggregate_id, key = stream
    named = {"aggregate_type": aggregate_type, "aggregate_id": aggregate_id, "aggregate_key": key}
    if version == 1:
        return AggregateIdTaken(
            f"{aggregate_type} {key or aggregate_id} has events or a row already: another writer created it first, "
            "or it lived before and was deleted; a new aggregate needs an id of its own",
            **named,  # type: ignore[arg-type]  # each by its own name
        )
    return ConcurrencyError(
        f"another unit of work wrote {aggregate_type} {key or aggregate_id} first; load it again and retry",
        **named,  # type: ignore[arg-type]  # each by its own name
    )


def identity_moved(aggregate: AggregateRoot, row: AggregateRoot) -> IdentityMoved:
    """Return the error for another id of what is stored."""
    return IdentityMoved(
        f"{aggregate!r} is stored as {bare_value(id_of(row))}, and its id cannot become another, since its events are "
        "told of that one; make a new aggregate of the new id, and remove this one"
    )


def stored_already(event_id: UUID) -> ConcurrencyError:
    """Return the error for an event whose id has a record."""
    return ConcurrencyError(
        f"event {event_id} is in the outbox already: a copy of its aggregate, or an attempt whose answer was lost, "
        "committed it before, or an event made with attrs.evolve has its event_id; "
        "load it again and look before you retry"
    )


def check_unique(aggregate: AggregateRoot, rows: Mapping[Key, AggregateRoot], unique: Uniqueness) -> None:
    """Raise the domain's error if another row has the values that this one alone may have."""
    for fields, make_error in unique.items():
        names = (fields,) if isinstance(fields, str) else fields
        values = [getattr(aggregate, name) for name in names]
        # As in SQL, an absent value equals no other.
        if (
            None not in values
            and sum(values == _values(row, names) for row in _of_class(aggregate, rows)) > 1
        ):
            raise make_error()


def _values(row: AggregateRoot, names: Sequence[str]) -> list[object]:
    return [getattr(row, name) for name in names]


def _of_class(aggregate: AggregateRoot, rows: Mapping[Key, AggregateRoot]) -> list[AggregateRoot]:
    return [row for key, row in rows.items() if key[0] is type(aggregate)]
