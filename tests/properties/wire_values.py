"""Values for any field type that the wire accepts, of any event class."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from functools import cache, partial, reduce
from operator import or_
from typing import Any, Literal, get_args, get_origin
from uuid import UUID
from zoneinfo import ZoneInfo

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from outbox_kernel.kernel import DomainEvent
from outbox_kernel.kernel.wire.free import is_free
from outbox_kernel.kernel.wire.models import is_model
from outbox_kernel.kernel.wire.records import argument_fields, resolve_record
from outbox_kernel.kernel.wire.types import is_union, unwrapped
from tests.properties.context_values import OF_CONTEXTS

# What PostgreSQL stores: no NUL, no lone surrogates.
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
offsets = st.integers(-86_399, 86_399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
# Those in the hours that a zone repeats or skips are met by chance too seldom to be relied on.
zones = st.sampled_from(
    [ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")]
)
turns = st.sampled_from([datetime(2025, 10, 26, 2), datetime(2025, 3, 9, 2), datetime(2025, 10, 5, 2)])  # noqa: DTZ001 - a zone is added
minutes = st.integers(-180, 180).map(lambda minutes: timedelta(minutes=minutes))
near_turns = st.builds(
    lambda moment, step, zone, fold: (moment + step).replace(tzinfo=zone, fold=fold),
    turns,
    minutes,
    zones,
    st.integers(0, 1),
)
moments = st.one_of(
    st.datetimes(timezones=st.one_of(st.just(UTC), offsets)), st.datetimes(timezones=zones), near_turns
)
# An event's own is kept in UTC, which ends where the years do.
utc_moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=st.one_of(offsets, zones))  # noqa: DTZ001 - a zone is added

_SCALARS: dict[Any, SearchStrategy[Any]] = {
    str: text,
    # An int may have as many digits as Python cares to print.
    int: st.integers(-(10**100), 10**100),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    UUID: st.uuids(),
    datetime: moments,
    date: st.dates(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    timedelta: st.timedeltas(),
    bytes: st.binary(max_size=20),
}

# From 1e16 on a float comes back as the integer that it equals.
free_json = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        _SCALARS[int],
        st.floats(-1e16, 1e16, exclude_min=True, exclude_max=True),
        text,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(text, inner, max_size=3)),
    max_leaves=8,
)


def events(cls: type[DomainEvent]) -> SearchStrategy[DomainEvent]:
    """Events of this class with all their fields filled."""
    return _instances(cls, occurred_at=utc_moments)


def values(declared: Any) -> SearchStrategy[Any]:
    """Values that a field of this type may hold."""
    declared = unwrapped(declared)
    if is_free(declared):
        return free_json
    if declared in _SCALARS:
        return _SCALARS[declared]
    if is_union(declared):
        return st.one_of([values(member) for member in get_args(declared)])
    if get_origin(declared) is Literal:
        return st.sampled_from(get_args(declared))
    if get_origin(declared) is not None:
        return _containers(get_origin(declared), get_args(declared))
    return _of_class(declared)


@cache
def _of_class(declared: Any) -> SearchStrategy[Any]:
    if declared is type(None):
        return st.none()
    if declared in OF_CONTEXTS:
        return OF_CONTEXTS[declared]
    if issubclass(declared, Flag):
        members = st.sets(st.sampled_from(list(declared)))
        return members.map(lambda chosen: reduce(or_, chosen, declared(0)))
    if issubclass(declared, Enum):
        return st.sampled_from(list(declared))
    # Deferred and one per class, since a class may hold itself.
    return st.deferred(lambda: _instances(declared))


def _instances(cls: type[Any], **given: SearchStrategy[Any]) -> SearchStrategy[Any]:
    resolve_record(cls)
    arguments = {field.keyword: values(field.type) for field in argument_fields(cls)}
    if is_model(cls):
        # By their names, whatever their aliases are.
        return st.fixed_dictionaries(arguments).map(partial(_model, cls))
    return st.builds(cls, **{**arguments, **given})


def _model(cls: type[Any], held: dict[str, Any]) -> Any:
    return cls.model_validate(held["root"] if cls.__pydantic_root_model__ else held, by_name=True)


def _containers(origin: Any, arguments: tuple[Any, ...]) -> SearchStrategy[Any]:
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    if origin is tuple and Ellipsis not in arguments:
        return st.tuples(*map(values, arguments))
    members = st.lists(values(arguments[0]), max_size=2, unique=origin in (set, frozenset))
    return members.map(origin)
