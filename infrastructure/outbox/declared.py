"""Aggregates that are mapped declaratively: a mixin with two columns, and the class's own mapping as it was (C10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID, uuid4

from sqlalchemy import BigInteger, Column, event, text
from sqlalchemy.orm import (
    DeclarativeBase,
    DeclarativeBaseNoMeta,
    Mapped,
    Mapper,
    mapped_column,
    object_mapper,
)
from sqlalchemy.sql.schema import CallableColumnDefault, ScalarElementColumnDefault

from outbox_kernel.infrastructure.errors import MappingRefused
from outbox_kernel.infrastructure.outbox.mapping import lock_of
from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.aggregate import AggregateRoot, id_of
from outbox_kernel.kernel.identity import KEY_KINDS, KeyRule

if TYPE_CHECKING:
    from collections.abc import Callable

_DECLARATIVE_BASES = (DeclarativeBase, DeclarativeBaseNoMeta)
_DECLARATIVE_NAMES = ("__tablename__", "__mapper_args__", "__allow_unmapped__")
# Behind the application's own, as an ALTER TABLE adds them.
_LAST = 1_000


class MappedAggregate(AggregateRoot):
    """Base of an aggregate that maps itself: `class Order(MappedAggregate, Base)`.

    It brings two columns: `version` counts the events, `revision` counts the writes of the row and is its optimistic
    lock. `__aggregate__` is the stable wire name, by default the name of the class; where one class says it, each that
    is derived from it says its own.
    """

    __aggregate__: ClassVar[str]

    _is_attrs: ClassVar[bool] = False
    # What the row brings by itself is not there before the row is, and its id may be a part of that.
    _key_rule: ClassVar[KeyRule] = KeyRule(may_come_later=True)

    if TYPE_CHECKING:
        version: Mapped[int]
        revision: Mapped[int]
    else:
        # Annotated, they would have to be fields where the class is mapped as a dataclass.
        version = mapped_column(BigInteger, nullable=False, server_default=text("0"), sort_order=_LAST)
        revision = mapped_column(BigInteger, nullable=False, server_default=text("1"), sort_order=_LAST)

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a Table of one's own that lacks the columns, before SQLAlchemy wonders about them."""
        if (table := vars(cls).get("__table__")) is not None:
            lock_of(cls, table)
        super().__init_subclass__(**options)

    def __init__(self, **values: Any) -> None:
        """Take the attributes by name, as the base of the application's models has it."""
        constructor: Any = super(AggregateRoot, self).__init__
        if getattr(constructor, "__objclass__", None) is object:
            constructor = object_mapper(self).registry.constructor.__get__(self)
        constructor(**values)

    def _shown_id(self) -> object:
        state, mapper = self.__dict__, object_mapper(self)
        if "id" in state:
            return state["id"]
        return state.get(mapper.get_property_by_column(mapper.primary_key[0]).key)

    def _complete(self, next_number: Callable[[], int], *, is_new: bool) -> None:
        """Get, in memory, what the columns' defaults bring, and what the server would make of a key."""
        self.revision = 1 if is_new else (self.revision or 0) + 1
        if not is_new:
            return
        mapper = object_mapper(self)
        for attribute in mapper.column_attrs:
            column = attribute.columns[0]
            if self.__dict__.get(attribute.key) is None and isinstance(column, Column):
                _fill(self, attribute.key, column)
        if id_of(self) is None and len(mapper.primary_key) == 1:
            key = mapper.get_property_by_column(mapper.primary_key[0]).key
            if int in self._key_rule.kinds:
                setattr(self, key, next_number())
            elif UUID in self._key_rule.kinds:
                setattr(self, key, uuid4())


def _fill(aggregate: MappedAggregate, name: str, column: Column[Any]) -> None:
    """Let a column's default of this side fill what is not set, as an INSERT would."""
    default: Any = column.default
    if isinstance(default, ScalarElementColumnDefault):
        setattr(aggregate, name, default.arg)
    elif isinstance(default, CallableColumnDefault):
        no_statement: Any = None
        setattr(aggregate, name, default.arg(no_statement))


def _on_instrument_class(mapper: Mapper[Any], cls: type[Any]) -> None:
    """Give a declared aggregate its lock and its name, before its mapping is complete."""
    if not issubclass(cls, AggregateRoot):
        return
    if not issubclass(cls, MappedAggregate):
        _refuse_declarative(cls)
        return
    if mapper.version_id_col is None:
        mapper.version_id_col = lock_of(cls, mapper.local_table)
    catalogue.add_aggregate(_wire_name(cls), cls)


def _wire_name(cls: type[Any]) -> str:
    """Return the name that the class says, or its own where no class above it says one either."""
    if "__aggregate__" in vars(cls):
        return cls.__aggregate__  # type: ignore[no-any-return]  # as it is declared
    named = next((base for base in cls.__mro__ if "__aggregate__" in vars(base)), None)
    if named is not None:
        raise MappingRefused(
            f"{cls.__name__} says no `__aggregate__`, though {named.__name__} above it does, so that its events would "
            f"be named after a class that may be renamed: say `__aggregate__ = …` in {cls.__name__} too, a wire name "
            "of its own"
        )
    return cls.__name__


def _on_constructed(mapper: Mapper[Any], cls: type[Any]) -> None:
    """Note of what kind a declared aggregate's ids are, as far as its column tells."""
    if not issubclass(cls, MappedAggregate):
        return
    if not hasattr(cls, "id"):
        raise MappingRefused(
            f"{cls.__name__} is an aggregate without the attribute `id`, which says whose its events are; name its "
            "primary key so, or add `id = synonym(…)` with the name that it has"
        )
    try:
        kind = mapper.columns["id"].type.python_type
    except (KeyError, NotImplementedError):
        return
    if kind in KEY_KINDS:
        cls._key_rule = KeyRule(frozenset({kind}), may_come_later=True)


def _refuse_declarative(cls: type[Any]) -> None:
    """Refuse to map an attrs class declaratively: attrs and the mapper would both make its attributes."""
    if issubclass(cls, _DECLARATIVE_BASES) or any(hasattr(cls, name) for name in _DECLARATIVE_NAMES):
        raise MappingRefused(
            f"{cls.__name__} is mapped declaratively; derive it from MappedAggregate instead of AggregateRoot, and "
            "leave @aggregate out"
        )


def _on_init(aggregate: MappedAggregate, _arguments: Any, _options: Any) -> None:
    """Begin to count: what is made here, and not loaded, has no events yet."""
    aggregate.__dict__["version"] = 0


# From the import on: a class statement maps declaratively long before the application calls anything of ours.
event.listen(Mapper, "instrument_class", _on_instrument_class)
event.listen(Mapper, "after_mapper_constructed", _on_constructed)
event.listen(MappedAggregate, "init", _on_init, propagate=True)
