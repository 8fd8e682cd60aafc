"""Where in-memory units of work commit: copies of aggregates as rows, and the outbox beside them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, cast

import attrs

from outbox_kernel.kernel.aggregate import AggregateRoot, stale
from outbox_kernel.kernel.bus import in_order
from outbox_kernel.kernel.context import current_headers
from outbox_kernel.kernel.envelope import enveloped
from outbox_kernel.kernel.identity import uuid_of
from outbox_kernel.kernel.testing.copying import copied, refill
from outbox_kernel.kernel.testing.identities import WeakIdentityMap
from outbox_kernel.kernel.testing.records import CommittedEvent
from outbox_kernel.kernel.testing.rules import (
    check_unique,
    conflict,
    identity_moved,
    key_of,
    normalized,
    place_of,
    stored_already,
    stream_of,
    type_name_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from outbox_kernel.kernel.envelope import Envelope
    from outbox_kernel.kernel.events import DomainEvent
    from outbox_kernel.kernel.testing.rules import Key, Place, Uniqueness


A = TypeVar("A", bound=AggregateRoot)


@attrs.frozen(eq=False)
class Change:
    """What one commit does to one aggregate; `row` is what it was loaded from, None for a new one."""

    aggregate: AggregateRoot
    row: AggregateRoot | None
    last_events: Sequence[DomainEvent] | None = None
    """Of one that is removed; it has no version any more."""

    @property
    def removed(self) -> bool:
        """Whether the aggregate is to go."""
        return self.last_events is not None

    @property
    def key(self) -> Key:
        """Where the row is or will be."""
        return key_of(self.stored)

    @property
    def stored(self) -> AggregateRoot:
        """What has the id by which it is or will be stored."""
        return self.aggregate if self.row is None else self.row

    @property
    def events(self) -> Sequence[DomainEvent]:
        """The events that move the row to where the aggregate stands."""
        if self.last_events is not None:
            return self.last_events
        if "version" not in vars(self.aggregate):
            raise stale(self.aggregate)
        stored = 0 if self.row is None else self.row.version
        return self.aggregate._events_between(stored, self.aggregate.version)

    @classmethod
    def removing(cls, aggregate: AggregateRoot, row: AggregateRoot) -> Change:
        """Take its version from an aggregate, so that it records nothing any more."""
        change = cls(aggregate, row, cls(aggregate, row).events)
        del aggregate.__dict__["version"]
        return change


class InMemoryStore:
    """What is committed. Several units of work on one store are writers of one database."""

    def __init__(self) -> None:
        self.outbox: list[CommittedEvent] = []
        """The committed records, in the order of their positions."""
        # A row is replaced at each write and never changed, so that its identity is its revision.
        self._rows: dict[Key, AggregateRoot] = {}
        self._event_ids: set[UUID] = set()
        self._places: set[Place] = set()
        self._origins = WeakIdentityMap[AggregateRoot, AggregateRoot]()
        self._numbers = count(1)

    @property
    def events(self) -> tuple[DomainEvent, ...]:
        """The committed events, in order, each restored from its payload."""
        return tuple(record.event for record in self.outbox)

    def put(self, *aggregates: AggregateRoot) -> None:
        """Let these be stored already, their events long delivered: what a test starts from."""
        for aggregate in aggregates:
            self.complete(aggregate, is_new=True)
            row = self._rows[key_of(aggregate)] = copied(aggregate)
            self._settle(Change(aggregate, None), row)

    def get(self, aggregate_class: type[A], identity: object) -> A | None:
        """Return a copy of the committed aggregate with this id, or None."""
        row = self.row(self.found((aggregate_class, normalized(identity))))
        return None if row is None else cast("A", copied(row))

    def all(self, aggregate_class: type[A]) -> list[A]:
        """Return copies of all committed aggregates of a class."""
        return [copied(self._rows[key]) for key in self.keys(aggregate_class)]

    # --- for the units of work --------------------------------------------------------------------------

    def keys(self, aggregate_class: type[AggregateRoot]) -> list[Key]:
        """Return the keys of all rows of a class and of those derived from it, oldest first."""
        return [key for key in self._rows if issubclass(key[0], aggregate_class)]

    def found(self, key: Key) -> Key:
        """Return the key of the row that a class or one derived from it has by this id, or the key itself."""
        if key in self._rows:
            return key
        return next((each for each in self.keys(key[0]) if each[1] == key[1]), key)

    def row(self, key: Key) -> AggregateRoot | None:
        """Return the committed row with this key; not to be changed."""
        return self._rows.get(key)

    def origin_of(self, aggregate: AggregateRoot) -> AggregateRoot | None:
        """Return the row from which an aggregate was last loaded or to which it was last written."""
        return self._origins.get(aggregate)

    def load_into(self, aggregate: AggregateRoot, row: AggregateRoot) -> None:
        """Give an aggregate the state of a row."""
        refill(aggregate, row)
        self._origins.put(aggregate, row)

    def complete(self, aggregate: AggregateRoot, *, is_new: bool) -> None:
        """Give an aggregate what its row would bring, a number of the store's own for an id among it."""
        aggregate._complete(self._next_number, is_new=is_new)

    def _next_number(self) -> int:
        taken = {key[1] for key in self._rows}
        return next(number for number in self._numbers if uuid_of(number) not in taken)

    def mark(self) -> Callable[[], None]:
        """Return what takes the store back to where it is now."""
        outbox, rows = list(self.outbox), self._rows
        event_ids, places, origins = set(self._event_ids), set(self._places), self._origins.copy()

        def take_back() -> None:
            self.outbox[:] = outbox
            self._rows, self._event_ids, self._places = rows, event_ids, places
            self._origins = origins

        return take_back

    def commit(
        self,
        changes: Sequence[Change],
        emitted: Iterable[DomainEvent],
        unique: Mapping[type[Any], Uniqueness],
    ) -> None:
        """Store all of it, or raise and store nothing."""
        events = in_order([*emitted, *(event for change in changes for event in change.events)])
        envelopes = [enveloped(event) for event in events]
        self._check_ids(envelopes)
        self._check_streams(envelopes)
        self._check_first_lives(changes)
        rows = self._rows_after(changes)
        for change in changes:
            if not change.removed:
                check_unique(change.aggregate, rows, unique.get(type(change.aggregate), {}))
        self._rows = rows
        self._event_ids.update(envelope.event_id for envelope in envelopes)
        self._places.update(filter(None, map(place_of, envelopes)))
        headers = dict(current_headers())
        for position, envelope in enumerate(envelopes, start=len(self.outbox) + 1):
            self.outbox.append(CommittedEvent(*envelope, headers, position))
        for change in changes:
            self._settle(change, None if change.removed else rows[change.key])

    def _check_ids(self, envelopes: Iterable[Envelope]) -> None:
        """Refuse an event that is stored already, or another that has its id."""
        taken: set[UUID] = set()
        for envelope in envelopes:
            if envelope.event_id in self._event_ids or envelope.event_id in taken:
                raise stored_already(envelope.event_id)
            taken.add(envelope.event_id)

    def _check_streams(self, envelopes: Iterable[Envelope]) -> None:
        """Refuse a second event with one number: another writer was first (C4)."""
        taken: set[Place] = set()
        for envelope in envelopes:
            if (place := place_of(envelope)) is None:
                continue
            if place in self._places or place in taken:
                raise conflict(place[0], (place[1], envelope.aggregate_key), place[2])
            taken.add(place)

    def _check_first_lives(self, changes: Sequence[Change]) -> None:
        """Refuse a new aggregate without events whose id has some: its first event could never be stored (C4)."""
        for aggregate in (each.aggregate for each in changes if each.row is None and not each.events):
            name, stream = type_name_of(aggregate), stream_of(aggregate)
            if (name, stream[0], 1) in self._places:
                raise conflict(name, stream, 1)

    def _rows_after(self, changes: Sequence[Change]) -> dict[Key, AggregateRoot]:
        rows = dict(self._rows)
        # What is removed makes room for a new one with its id.
        for change in sorted(changes, key=lambda change: not change.removed):
            aggregate, key = change.aggregate, change.key
            if rows.get(key) is not change.row:
                raise conflict(
                    type_name_of(aggregate), stream_of(change.stored), 1 if change.row is None else None
                )
            if change.removed:
                del rows[key]
            elif change.row is not None and key_of(aggregate) != key:
                raise identity_moved(aggregate, change.row)
            else:
                rows[key] = copied(aggregate)
        return rows

    def _settle(self, change: Change, row: AggregateRoot | None) -> None:
        aggregate = change.aggregate
        if row is not None:
            aggregate._forget_events(up_to=aggregate.version)
            self._origins.put(aggregate, row)
        else:
            aggregate._forget_events()
            self._origins.drop(aggregate)
