"""Mapped aggregates, taught to be honest about their state: stale ones say so, dropped events go (C3, C6)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Integer, Table, event, inspect, select
from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.orm import Mapper, attributes, object_mapper, object_session
from sqlalchemy.orm.exc import DetachedInstanceError
from sqlalchemy.util.concurrency import in_greenlet

from outbox_kernel.infrastructure.outbox.capture import key_of, recorded_too_late
from outbox_kernel.infrastructure.outbox.capture_state import known_state_of
from outbox_kernel.infrastructure.outbox.conflicts import aggregate_keys
from outbox_kernel.infrastructure.outbox.mapping import (
    check_fields,
    give_order,
    name_of,
    refused_without_confirmation,
    refused_without_lock,
    refused_without_version,
    table_name,
)
from outbox_kernel.infrastructure.outbox.row_keys import check_keys
from outbox_kernel.infrastructure.outbox.session import CapturedSession
from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import expire_alone
from outbox_kernel.infrastructure.outbox.table_columns import aggregate_tables
from outbox_kernel.infrastructure.outbox.transaction import note_read
from outbox_kernel.kernel.aggregate import AggregateRoot, stale
from outbox_kernel.kernel.errors import ConcurrencyError, IdentityMoved, UncommittedEvents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

    from outbox_kernel.infrastructure.outbox.capture_state import Flushed

_INSTRUMENTED = "outbox_instrumented"
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


def mapped_tables() -> list[Table]:
    """Return the tables of the aggregates mapped so far in which their events and writes are counted."""
    mappers = filter(None, (inspect(cls, raiseerr=False) for cls in _subclasses(AggregateRoot)))
    return list(dict.fromkeys(table for mapper in mappers for table in _numbered(mapper)))


def _numbered(mapper: Mapper[Any]) -> Iterator[Table]:
    return (table for table in mapper.tables if isinstance(table, Table) and "version" in table.c)


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _on_configured(mapper: Mapper[Any], cls: type[Any]) -> None:
    # Kept with the mapping, not on the class: one that is mapped anew has nothing of this.
    manager = mapper.class_manager
    if not issubclass(cls, AggregateRoot) or _INSTRUMENTED in manager.info:
        return
    _check_mapping(mapper, cls)
    give_order(mapper)
    manager.info[_INSTRUMENTED] = True
    manager.expired_attribute_loader = _speaking_loader(manager.expired_attribute_loader)
    for relationship in mapper.relationships:
        _let_speak(manager[relationship.key].impl)
    aggregate_keys.add(_key_name(mapper))
    aggregate_tables.update((table.name, name_of(table)) for table in _numbered(mapper))
    check_keys(mapper, cls)
    event.listen(cls, "before_delete", _on_delete)
    event.listen(cls, "refresh", _on_refresh)
    event.listen(cls, "expire", _on_expire)
    event.listen(cls.version, "set", _on_version_set)
    for index, column in enumerate(mapper.primary_key):
        attribute = getattr(cls, mapper.get_property_by_column(column).key)
        event.listen(attribute, "set", partial(_on_key_set, index))


def _check_mapping(mapper: Mapper[Any], cls: type[Any]) -> None:
    table = table_name(mapper)
    if "version" not in mapper.column_attrs or not isinstance(mapper.columns["version"].type, Integer):
        raise refused_without_version(cls, table)
    if mapper.version_id_col is None or mapper.version_id_col is mapper.columns["version"]:
        raise refused_without_lock(cls, table)
    if not mapper.base_mapper.confirm_deleted_rows:
        raise refused_without_confirmation(cls)
    check_fields(cls, table)


def _speaking_loader(load: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the loader of expired attributes: where it cannot load, the aggregate is stale (C3)."""

    def load_or_explain(state: Any, toload: Any, passive: Any) -> Any:
        # Not tried where it cannot end well: the autoflush before it would fail, and take the transaction along.
        if not in_greenlet() and _must_await(object_session(state.obj()), state.mapper):
            raise stale(state.obj())
        try:
            return load(state, toload, passive)
        except (MissingGreenlet, DetachedInstanceError) as error:
            raise stale(state.obj()) from error

    return load_or_explain


def _must_await(session: Session | None, mapper: Mapper[Any]) -> bool:
    """Whether a captured session's driver can load in a greenlet only."""
    return isinstance(session, CapturedSession) and session.get_bind(mapper).dialect.is_async


def _let_speak(impl: Any) -> None:
    """Wrap the loader of a relationship: once the aggregate is detached SQLAlchemy asks for no other first."""
    load = impl.callable_

    def load_or_explain(state: Any, passive: Any) -> Any:
        try:
            return load(state, passive)
        except DetachedInstanceError as error:
            if "version" in state.dict:
                raise  # its row is at hand, and only these others were never loaded
            raise stale(state.obj()) from error

    if load is not None:
        impl.callable_ = load_or_explain


def _key_name(mapper: Mapper[Any]) -> tuple[str, str]:
    """Name the primary key as PostgreSQL's errors do: by table and constraint."""
    table: Any = mapper.local_table
    return table.name, str(table.primary_key.name or f"{table.name}_pkey")


def _on_delete(mapper: Mapper[Any], connection: Connection, aggregate: AggregateRoot) -> None:
    """Refuse to delete what another writer has changed, where neither SQLAlchemy nor capture does."""
    session = object_session(aggregate)
    if session is None or isinstance(session, CapturedSession):
        return  # which counts them, together
    deleted = session.deleted
    if sum(object_mapper(obj).base_mapper is mapper.base_mapper for obj in deleted) < _UNCOUNTED_DELETIONS:
        return
    lock: Any = mapper.version_id_col
    held = getattr(aggregate, mapper.get_property_by_column(lock).key)
    if connection.scalar(select(lock).where(*key_of(aggregate)).with_for_update()) != held:
        raise ConcurrencyError(
            f"another transaction changed or deleted {aggregate!r} first; nothing was stored, load it again and retry"
        )


def _on_refresh(aggregate: AggregateRoot, context: Any, names: list[str] | None) -> None:
    """Drop what was recorded above the version that the row turned out to have.

    Until then an expired aggregate has no version, so that none of its events counts and none can be added.
    """
    state, session = attributes.instance_state(aggregate), object_session(aggregate)
    # A composite that is made anew tells of it as well, with no query's context.
    if session is not None and getattr(context, "runid", state.runid) != state.runid:
        note_read(session, state)  # a query came upon it and has filled in what was expired
    if names is None and session is not None and "version" in state.committed_state and _is_partial(context):
        _refuse_partial(session, aggregate)
    birth = _birth_of(aggregate)
    if names is None or "version" in names:
        aggregate._forget_events(above=-1 if birth is None else aggregate.version)
    if birth and names is None:
        birth.reloaded = True


def _is_partial(context: Any) -> bool:
    """Whether a query leaves columns out, for `load_only` or `defer`."""
    options = getattr(context, "propagated_loader_options", ())
    elements = (element for option in options for element in getattr(option, "context", ()))
    return any(("deferred", True) in (getattr(element, "strategy", None) or ()) for element in elements)


def _refuse_partial(session: Session, aggregate: AggregateRoot) -> None:
    """Refuse to load a part of an aggregate over its events: of the rest nobody knows any more what is stored."""
    error = UncommittedEvents(
        f"a query with populate_existing has loaded a part of {aggregate!r} over events that no flush had written, "
        "so it lost them and is to be loaded again; flush before such a query, or let it load all columns"
    )
    state = attributes.instance_state(aggregate)
    expire_alone(state, session)
    state.load_options = ()  # or whoever loads it again would get that part
    raise error


def _on_expire(aggregate: AggregateRoot | None, names: list[str] | None) -> None:
    """Note that what was born in this transaction is about to lose the children that it was stored with."""
    if aggregate is None:
        return  # collected before its session came to expire it
    birth = _birth_of(aggregate)
    if birth and (names is None or set(names) & set(object_mapper(aggregate).relationships.keys())):
        birth.reloaded = True


def _birth_of(aggregate: AggregateRoot) -> Flushed | None:
    """Return what capture knows of an aggregate whose row the open transaction has inserted."""
    session = object_session(aggregate)
    capture = known_state_of(session) if session is not None else None
    return None if capture is None else capture.birth_of(aggregate)


def _on_key_set(index: int, aggregate: AggregateRoot, value: object, *_: object) -> None:
    """Refuse another id for what is stored: its events would be those of an aggregate that does not exist."""
    state = attributes.instance_state(aggregate)
    if state.key is not None and state.key[1][index] != value:
        for name in state.mapper.composites.keys():  # noqa: SIM118 - no mapping, though it has keys
            state.dict.pop(name, None)  # which has taken the other id, and is made anew of what there is
        raise IdentityMoved(
            f"{aggregate!r} is stored, and its id cannot become {value!r}, since its events are told of the one that "
            "it has; make a new aggregate of that id, and delete this one"
        )


def _on_version_set(aggregate: AggregateRoot, version: int, *_: object) -> None:
    """Refuse to disown an event, and to record where no flush would ever see it."""
    aggregate._check_version(version)
    session = object_session(aggregate)
    if session is None:
        return
    if attributes.instance_state(aggregate).deleted:
        raise stale(aggregate)
    capture = known_state_of(session)
    if capture is not None and capture.settled:
        raise recorded_too_late(aggregate)
