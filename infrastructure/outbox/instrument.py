"""Mapped aggregates, taught to be honest about their state: stale ones say so, dropped events go (C3, C6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Integer, event, inspect, select
from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.orm import Mapper, attributes, object_mapper, object_session
from sqlalchemy.orm.exc import DetachedInstanceError

from infrastructure.outbox.capture import key_of, recorded_too_late
from infrastructure.outbox.capture_state import known_state_of
from infrastructure.outbox.conflicts import aggregate_keys
from infrastructure.outbox.mapping import refused_without_lock, refused_without_version
from kernel.aggregate import AggregateRoot, stale
from kernel.errors import ConcurrencyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

_INSTRUMENTED = "_outbox_instrumented"
# From so many deletions in one flush SQLAlchemy compares no more how many rows they have found.
_UNCOUNTED_DELETIONS = 2


def instrument_aggregates() -> None:
    """Instrument every mapped aggregate, those that are mapped later included."""
    if not event.contains(Mapper, "mapper_configured", _on_configured):
        event.listen(Mapper, "mapper_configured", _on_configured)
    for cls in _subclasses(AggregateRoot):
        mapper = inspect(cls, raiseerr=False)
        if mapper is not None and mapper.configured:
            _on_configured(mapper, cls)


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _on_configured(mapper: Mapper[Any], cls: type[Any]) -> None:
    if not issubclass(cls, AggregateRoot) or _INSTRUMENTED in vars(cls):
        return
    _check_mapping(mapper, cls)
    setattr(cls, _INSTRUMENTED, True)
    manager = mapper.class_manager
    manager.expired_attribute_loader = _speaking_loader(manager.expired_attribute_loader)
    aggregate_keys.add(_key_name(mapper))
    event.listen(cls, "before_delete", _on_delete)
    event.listen(cls, "expire", _on_expire)
    event.listen(cls, "refresh", _on_refresh)
    event.listen(cls.version, "set", _on_version_set)


def _check_mapping(mapper: Mapper[Any], cls: type[Any]) -> None:
    table = getattr(mapper.local_table, "fullname", str(mapper.local_table))
    if "version" not in mapper.column_attrs or not isinstance(mapper.columns["version"].type, Integer):
        raise refused_without_version(cls, table)
    if mapper.version_id_col is None or mapper.version_id_col is mapper.columns["version"]:
        raise refused_without_lock(cls, table)


def _speaking_loader(load: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the loader of expired attributes: where it cannot load, the aggregate is stale (C3)."""

    def load_or_explain(state: Any, toload: Any, passive: Any) -> Any:
        try:
            return load(state, toload, passive)
        except (MissingGreenlet, DetachedInstanceError) as error:
            raise stale(state.obj()) from error

    return load_or_explain


def _key_name(mapper: Mapper[Any]) -> tuple[str, str]:
    """Name the primary key as PostgreSQL's errors do: by table and constraint."""
    table: Any = mapper.local_table
    return table.name, str(table.primary_key.name or f"{table.name}_pkey")


def _on_delete(mapper: Mapper[Any], connection: Connection, aggregate: AggregateRoot) -> None:
    """Refuse to delete what another writer has changed, where SQLAlchemy does not."""
    session = object_session(aggregate)
    deleted = () if session is None else session.deleted
    if sum(object_mapper(obj).base_mapper is mapper.base_mapper for obj in deleted) < _UNCOUNTED_DELETIONS:
        return
    lock: Any = mapper.version_id_col
    held = getattr(aggregate, mapper.get_property_by_column(lock).key)
    if connection.scalar(select(lock).where(*key_of(aggregate)).with_for_update()) != held:
        raise ConcurrencyError(
            f"another transaction changed or deleted {aggregate!r} first; nothing was stored, load it again and retry"
        )


def _on_expire(aggregate: AggregateRoot | None, names: list[str] | None) -> None:
    """Drop what was recorded, with the state it told of; what a new row could yet be made of stays."""
    if aggregate is None:
        return  # collected in the middle of what is rolled back
    if (names is None or "version" in names) and not _is_born(aggregate):
        aggregate._forget_events()


def _on_refresh(aggregate: AggregateRoot, _context: object, names: list[str] | None) -> None:
    """Drop what was recorded above the version that the row turned out to have."""
    if names is None or "version" in names:
        aggregate._forget_events(above=aggregate.version if _is_born(aggregate) else -1)


def _is_born(aggregate: AggregateRoot) -> bool:
    session = object_session(aggregate)
    state = known_state_of(session) if session is not None else None
    return state is not None and aggregate in state.born


def _on_version_set(aggregate: AggregateRoot, *_: object) -> None:
    """Refuse to record where no flush would ever see it."""
    session = object_session(aggregate)
    if session is None:
        return
    if attributes.instance_state(aggregate).deleted:
        raise stale(aggregate)
    capture = known_state_of(session)
    if capture is not None and capture.settled:
        raise recorded_too_late(aggregate)
