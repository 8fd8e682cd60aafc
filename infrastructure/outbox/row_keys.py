"""Keys that a row makes: an aggregate has none before its row is written, and none when that never was (K2, C3b)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import CHAR, TypeDecorator, event
from sqlalchemy.orm import attributes, object_mapper

from outbox_kernel.kernel.aggregate import AggregateRoot
from outbox_kernel.kernel.errors import IdentityMoved

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect
    from sqlalchemy.orm import Mapper, Session
    from sqlalchemy.types import TypeEngine

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
    state = attributes.instance_state(instance)
    if state.key is not None or not isinstance(instance, AggregateRoot):
        return  # one whose deletion is committed comes here with its key
    if not (names := instance.__dict__.pop(_MADE, None)):
        return
    # What is composed of these columns is made anew when they are there.
    for name in (*names, "id"):
        state.dict.pop(name, None)
        state.committed_state.pop(name, None)
    instance._unkey_events()


def check_keys(mapper: Mapper[Any], cls: type[Any]) -> None:
    """Compare each new aggregate's key with what its row will have, where the column's type may change it."""
    if any(isinstance(column.type, CHAR | TypeDecorator) for column in mapper.primary_key):
        event.listen(cls, "before_insert", _check_key)


def _check_key(mapper: Mapper[Any], connection: Connection, aggregate: object) -> None:
    """Refuse a key that its row would store otherwise: it would be that of another aggregate from the next load on."""
    # A column of another type among those of one key changes nothing.
    columns = [each for each in mapper.primary_key if isinstance(each.type, CHAR | TypeDecorator)]
    for column in columns:
        key = attributes.instance_state(aggregate).dict.get(mapper.get_property_by_column(column).key)
        stored = _as_stored(column.type, key, connection.dialect) if isinstance(key, str) else key
        if isinstance(stored, str) and stored != key:
            raise IdentityMoved(
                f"the key {key!r} of a new {type(aggregate).__name__} is stored as {stored!r} by its column "
                f"{column.name}, so its events would be told of two aggregates; create it with {stored!r}"
            )


def _as_stored(kind: TypeEngine[Any], key: str, dialect: Dialect) -> Any:
    if isinstance(kind, CHAR):
        return key.ljust(kind.length or 1)
    decorator = cast("TypeDecorator[Any]", kind)
    overridden = vars(TypeDecorator)
    if type(decorator).process_bind_param is not overridden["process_bind_param"]:
        key = decorator.process_bind_param(key, dialect)
    if type(decorator).process_result_value is not overridden["process_result_value"]:
        return decorator.process_result_value(key, dialect)
    return key
