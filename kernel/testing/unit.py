"""What one open unit of work in memory holds between its commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.kernel.aggregate import AggregateRoot, new_instance
from outbox_kernel.kernel.bus import EventBus
from outbox_kernel.kernel.errors import KernelError
from outbox_kernel.kernel.testing.copying import same_state, state_of, take_state
from outbox_kernel.kernel.testing.identities import is_among
from outbox_kernel.kernel.testing.rules import has_key, key_of
from outbox_kernel.kernel.testing.store import Change
from outbox_kernel.kernel.testing.trial import current_trial

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outbox_kernel.kernel.events import DomainEvent
    from outbox_kernel.kernel.testing.rules import Key, Uniqueness
    from outbox_kernel.kernel.testing.store import InMemoryStore


@attrs.define(eq=False)
class Unit:
    """The objects at hand: new ones, and those that have a row, one object per row."""

    store: InMemoryStore
    bus: EventBus = attrs.Factory(EventBus)
    _new: list[AggregateRoot] = attrs.field(factory=list, init=False)
    _held: dict[Key, AggregateRoot] = attrs.field(factory=dict, init=False)
    _removed: dict[int, Change] = attrs.field(factory=dict, init=False)
    # A transaction begins with the first access; a rollback before that has nothing to undo.
    _begun: bool = attrs.field(default=False, init=False)

    def add(self, aggregate: AggregateRoot) -> None:
        """Take in a new aggregate, or one that an earlier unit of work loaded."""
        if self._is_gone(aggregate):
            raise KernelError(
                f"{aggregate!r} was removed, so it cannot be added; roll back, or make a new one"
            )
        self._begun = True
        row = self.store.origin_of(aggregate)
        if row is not None:
            self._hold(key_of(row), aggregate)
        elif not is_among(aggregate, self._new):
            self._new.append(aggregate)

    def get(self, key: Key) -> AggregateRoot | None:
        """Return the one object with this key; it is loaded if it is not at hand or stale."""
        for aggregate in self._new:
            if isinstance(aggregate, key[0]) and has_key(aggregate) and key_of(aggregate)[1] == key[1]:
                return aggregate
        key = self.store.found(key)
        held = self._held.get(key)
        if id(held) in self._removed:
            return None
        return self._load(key, held) if held is None or _is_stale(held) else held

    def all(self, aggregate_class: type[AggregateRoot]) -> list[AggregateRoot]:
        """Return all of a class, stored and new ones, without those removed here."""
        stored = [self.get(key) for key in self.store.keys(aggregate_class)]
        new = [aggregate for aggregate in self._new if isinstance(aggregate, aggregate_class)]
        return [*(aggregate for aggregate in stored if aggregate is not None), *new]

    def remove(self, aggregate: AggregateRoot) -> None:
        """Delete at the commit; from now on it is not found and records nothing."""
        if self._is_gone(aggregate):
            return
        row = self.store.origin_of(aggregate)
        if row is None:
            raise KernelError(f"{aggregate!r} is not stored, so it cannot be removed; commit it first")
        self.add(aggregate)
        if _is_stale(aggregate):
            self._load(key_of(row), aggregate)
        self._removed[id(aggregate)] = Change.removing(aggregate, self.store.origin_of(aggregate) or row)

    def commit(self, unique: Mapping[type[Any], Uniqueness]) -> None:
        """Store what changed, or raise and undo all of it."""
        made = [aggregate for aggregate in self._new if not has_key(aggregate)]
        try:
            changes = self._changes()
            for change in changes:
                self._complete(change)
            self._store(changes, self.bus.collect(), unique)
        except BaseException:
            self._begun = True
            for aggregate in made:
                aggregate.id = None
                aggregate._unkey_events()
            self.roll_back()
            raise
        self._held = {key: each for key, each in self._held.items() if id(each) not in self._removed}
        self._held.update((key_of(aggregate), aggregate) for aggregate in self._new)
        self._end()

    def _complete(self, change: Change) -> None:
        if not change.removed:
            self.store.complete(change.aggregate, is_new=change.row is None)
            change.aggregate._key_events()

    def _store(
        self,
        changes: Sequence[Change],
        emitted: Sequence[DomainEvent],
        unique: Mapping[type[Any], Uniqueness],
    ) -> None:
        trial = current_trial() if changes or emitted else None
        if trial is not None:
            trial.check(self.store)
        self.store.commit(changes, emitted, unique)
        if trial is not None:
            trial.has_effect = True

    def roll_back(self) -> None:
        """Take away the state of what has a row; what is new goes back to whoever made it, events and all."""
        if self._begun or self.bus.has_events or self._changes():
            for aggregate in self._held.values():
                take_state(aggregate)
        self._end()

    def uncommitted_events(self) -> list[str]:
        """Name the events that leaving now would lose."""
        events = list(self.bus._emitted)
        for change in self._changes():
            events += change.last_events or change.aggregate._uncommitted_events()
        return [type(event).__name__ for event in events]

    def without_place(self, aggregates: Sequence[AggregateRoot]) -> list[AggregateRoot]:
        """Return those that were neither added here nor loaded nor removed."""
        here = {*map(id, self._new), *map(id, self._held.values()), *self._removed}
        return [each for each in aggregates if id(each) not in here]

    def leave(self) -> None:
        """Take back what no commit has stored, if there is any."""
        if self.bus.has_events or self._changes():
            self.roll_back()

    def _end(self) -> None:
        self.bus.collect()
        self._new.clear()
        self._removed.clear()
        self._begun = False

    def _is_gone(self, aggregate: AggregateRoot) -> bool:
        """Whether it was removed, here or by an earlier commit."""
        return id(aggregate) in self._removed or (
            _is_stale(aggregate) and self.store.origin_of(aggregate) is None
        )

    def _hold(self, key: Key, aggregate: AggregateRoot) -> None:
        if self._held.setdefault(key, aggregate) is not aggregate:
            raise KernelError(f"{aggregate!r} is at hand already as another object; change that one")

    def _load(self, key: Key, held: AggregateRoot | None) -> AggregateRoot | None:
        self._begun = True
        row = self.store.row(key)
        if row is None:
            self._held.pop(key, None)
            return None
        aggregate = held if held is not None else new_instance(key[0])
        self.store.load_into(aggregate, row)
        self._held[key] = aggregate
        return aggregate

    def _changes(self) -> list[Change]:
        changes = [Change(aggregate, None) for aggregate in self._new]
        for aggregate in self._held.values():
            row, removal = self.store.origin_of(aggregate), self._removed.get(id(aggregate))
            if removal is not None:
                changes.append(removal)
            elif state_of(aggregate) and not same_state(row, aggregate):
                changes.append(Change(aggregate, row))
        return changes


def _is_stale(aggregate: AggregateRoot) -> bool:
    return "version" not in vars(aggregate)
