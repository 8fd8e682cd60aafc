"""Copies of aggregates by their fields, so that a store never shares an object with a unit of work."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.kernel.aggregate import new_instance
from outbox_kernel.kernel.mapped import manager_of, mapper_state_of, stored_names
from outbox_kernel.kernel.wire.records import field_names, is_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from outbox_kernel.kernel.aggregate import AggregateRoot

Memo = dict[int, Any]

_ABSENT = object()
_EQUAL_BY_IDENTITY: Any = object.__eq__
# A mapper's own containers, and those that a row is copied into, are of one kind to a column.
_ALIKE: tuple[tuple[type, ...], ...] = ((dict,), (list, tuple), (set, frozenset))


def copied(value: Any, memo: Memo | None = None) -> Any:
    """Copy a value: attrs objects by their fields, containers as plain ones, all the way down."""
    memo = {} if memo is None else memo
    if id(value) in memo:
        return memo[id(value)]
    if attrs.has(type(value)) or is_mapped(type(value)):
        twin = memo[id(value)] = new_instance(type(value))
        refill(twin, value, memo)
        return twin
    for container, copy_members in _CONTAINERS.items():
        if isinstance(value, container):
            return copy_members(value, memo)
    return copy.deepcopy(value, memo)


def refill(target: Any, source: Any, memo: Memo | None = None) -> None:
    """Give `target` copies of all field values of `source`, past any guard against assignment."""
    memo = {id(source): target} if memo is None else memo
    _expire(target, [])
    for name, value in state_of(source).items():
        object.__setattr__(target, name, copied(value, memo))


def is_mapped(cls: type[Any]) -> bool:
    """Tell whether a mapper makes the attributes of a class, and nobody else names them."""
    return manager_of(cls) is not None and "__attrs_attrs__" not in vars(cls)


def state_of(instance: Any) -> dict[str, Any]:
    """Return the values of the fields that an object has at hand, of a record or of a class that maps itself."""
    cls = type(instance)
    if is_mapped(cls):
        held = vars(instance)
        # A column that is not set is null.
        return {name: held[name] for name in stored_names(cls) if held.get(name) is not None}
    names = field_names(cls)
    if hasattr(instance, "__dict__"):
        held = vars(instance)
        return {name: held[name] for name in names if name in held}
    return {name: value for name in names if (value := getattr(instance, name, _ABSENT)) is not _ABSENT}


def take_state(aggregate: AggregateRoot) -> None:
    """Take an aggregate's state and events away; until it is filled again it is stale (C3)."""
    names = list(state_of(aggregate))
    for name in names:
        del aggregate.__dict__[name]
    aggregate.__dict__.pop("id", None)
    _expire(aggregate, names)
    aggregate._forget_events()


def _expire(instance: Any, names: list[str]) -> None:
    """Let the mapper of an object, if it has one, know which attributes are to be loaded before they are read."""
    state = mapper_state_of(instance)
    if state is not None:
        state.expired_attributes.clear()
        state.expired_attributes.update(names)


def same_state(one: Any, other: Any, compared: frozenset[tuple[int, int]] = frozenset()) -> bool:
    """Tell whether two values would be stored alike, whatever their own idea of equality."""
    if one is other or (id(one), id(other)) in compared:
        return True
    compared |= {(id(one), id(other))}
    if isinstance(one, dict | list | tuple | set | frozenset):
        return _same_members(one, other, compared)
    kind: Any = type(one)
    if kind is not type(other):
        return False
    if is_record(kind) or is_mapped(kind):
        return same_state(state_of(one), state_of(other), compared)
    says_nothing: bool = kind.__eq__ is _EQUAL_BY_IDENTITY
    return _same_parts(one, other, compared) if says_nothing else bool(one == other)


def _same_members(one: Any, other: Any, compared: frozenset[tuple[int, int]]) -> bool:
    kinds: Any = next(kinds for kinds in _ALIKE if isinstance(one, kinds))
    if not isinstance(other, kinds) or len(one) != len(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            same_state(value, other[key], compared) for key, value in one.items()
        )
    if isinstance(one, list | tuple):
        return all(same_state(*pair, compared) for pair in zip(one, other, strict=True))
    return all(any(same_state(member, candidate, compared) for candidate in other) for member in one)


def _same_parts(one: Any, other: Any, compared: frozenset[tuple[int, int]]) -> bool:
    """Compare two objects that say nothing of equality by what a copy of them is made of."""
    try:
        return same_state(_parts(one), _parts(other), compared)
    except TypeError:
        return True  # nobody can look into it, so nobody can have changed what is stored of it


def _parts(value: Any) -> list[Any]:
    made_of = value.__reduce_ex__(4)
    return [made_of] if isinstance(made_of, str) else [*made_of[1:3], *map(list, filter(None, made_of[3:5]))]


def _list(value: list[Any], memo: Memo) -> list[Any]:
    twin: list[Any] = []
    memo[id(value)] = twin
    twin += (copied(member, memo) for member in value)
    return twin


def _dict(value: dict[Any, Any], memo: Memo) -> dict[Any, Any]:
    twin: dict[Any, Any] = {}
    memo[id(value)] = twin
    twin.update((copied(key, memo), copied(member, memo)) for key, member in value.items())
    return twin


def _tuple(value: tuple[Any, ...], memo: Memo) -> tuple[Any, ...]:
    members = [copied(member, memo) for member in value]
    return type(value)(*members) if hasattr(value, "_fields") else tuple(members)


# Plain ones, because a mapper's own containers report their changes to the object they were taken from.
_CONTAINERS: dict[type, Callable[[Any, Memo], Any]] = {
    list: _list,
    dict: _dict,
    tuple: _tuple,
    set: lambda value, memo: {copied(member, memo) for member in value},
    frozenset: lambda value, memo: frozenset(copied(member, memo) for member in value),
}
