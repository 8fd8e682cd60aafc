"""Keys that a row makes: an aggregate has none before its row is written, and none when that never was (K2, C3b)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.orm import attributes, object_mapper

from outbox_kernel.kernel.aggregate import AggregateRoot

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_MADE = "_outbox_row_makes"


def await_key(aggregate: AggregateRoot) -> bool:
    """Note which parts of its key the row of a new aggregate is to make; tell whether its events wait for that."""
    if not aggregate._key_rule.may_come_later:
        return False
    mapper, state = object_mapper(aggregate), aggregate.__dict__
    names = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
    state[_MADE] = [name for name in names if state.get(name) is None]
    return not aggregate._key_events()


def take_key_back(_session: Session, instance: object) -> None:
    """Take from an aggregate whose row never was the key that it made: it is new again, and gets another."""
    if not isinstance(instance, AggregateRoot) or not (names := instance.__dict__.pop(_MADE, None)):
        return
    state = attributes.instance_state(instance)
    # What is composed of these columns is made anew when they are there.
    for name in (*names, "id"):
        state.dict.pop(name, None)
        state.committed_state.pop(name, None)
    instance._unkey_events()
