"""Copies of aggregates by their fields, so that a store never shares an object with a unit of work."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.kernel.aggregate import new_instance
from outbox_kernel.kernel.wire.records import is_record, record_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from outbox_kernel.kernel.aggregate import AggregateRoot

Memo = dict[int, Any]

_ABSENT = object()


def copied(value: Any, memo: Memo | None = None) -> Any:
    """Copy a value: attrs objects by their fields, containers as plain ones, all the way down."""
    memo = {} if memo is None else memo
    if id(value) in memo:
        return memo[id(value)]
    if attrs.has(type(value)):
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
    for name, value in state_of(source).items():
        object.__setattr__(target, name, copied(value, memo))


def state_of(instance: Any) -> dict[str, Any]:
    """Return the values of the fields that an attrs object has at hand."""
    names = [field.name for field in record_fields(type(instance))]
    if hasattr(instance, "__dict__"):
        held = vars(instance)
        return {name: held[name] for name in names if name in held}
    return {name: value for name in names if (value := getattr(instance, name, _ABSENT)) is not _ABSENT}


def take_state(aggregate: AggregateRoot) -> None:
    """Take an aggregate's state and events away; until it is filled again it is stale (C3)."""
    for name in state_of(aggregate):
        del aggregate.__dict__[name]
    aggregate._forget_events()


def same_state(one: Any, other: Any, compared: frozenset[tuple[int, int]] = frozenset()) -> bool:
    """Tell whether two values would be stored alike, whatever their own idea of equality."""
    if one is other or (id(one), id(other)) in compared:
        return True
    compared |= {(id(one), id(other))}
    if is_record(type(one)):
        return type(one) is type(other) and same_state(state_of(one), state_of(other), compared)
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same_state(value, other[key], compared) for key, value in one.items())
        )
    if isinstance(one, list | tuple):
        return (
            isinstance(other, list | tuple)
            and len(one) == len(other)
            and all(same_state(*pair, compared) for pair in zip(one, other, strict=True))
        )
    if isinstance(one, set | frozenset):
        return (
            isinstance(other, set | frozenset)
            and len(one) == len(other)
            and all(any(same_state(member, candidate, compared) for candidate in other) for member in one)
        )
    return type(one) is type(other) and bool(one == other)


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
