"""lagom's container, as an application meets it: sessions by every way to write them, and none bound to nothing (D3).

lagom makes what nobody has defined from its constructor. Of a maker of sessions that is a maker without a database,
and of the key `async_sessionmaker[AsyncSession]` it knows nothing, though `async_sessionmaker` is defined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_origin

from lagom import Container
from lagom.definitions import ConstructionWithContainer
from lagom.exceptions import DuplicateDefinition
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from outbox_kernel.infrastructure.database.unit_of_work import SqlAlchemyUnitOfWork
from outbox_kernel.infrastructure.errors import DefinedTwice, NotBound
from outbox_kernel.kernel import UnitOfWork

if TYPE_CHECKING:
    from lagom.interfaces import ReadableContainer, SpecialDepDefinition, TypeResolver

_MAKERS = (async_sessionmaker, sessionmaker)
_SESSIONS = (AsyncSession, Session)


class Wired(Container):
    """What the contexts are wired into; a copy for one run inherits what it knows."""

    def __init__(self, container: Container | None = None) -> None:
        super().__init__(container)
        self._wiring: str | None = None
        self._wired_by: dict[Any, str | None] = {}

    def begin(self, context: str) -> None:
        """From now on this context defines."""
        self._wiring = context

    def define(self, dep: Any, resolver: TypeResolver[Any]) -> SpecialDepDefinition[Any]:
        """Take a definition, or say who has given another."""
        try:
            definition = super().define(dep, resolver)
        except DuplicateDefinition as error:
            raise DefinedTwice(_shown(dep), self._wired_by.get(dep), self._wiring) from error
        self._wired_by[dep] = self._wiring
        return definition

    def get_definition(self, dep_type: Any) -> SpecialDepDefinition[Any] | None:
        """Return how it is made, also where its key is another spelling of one that is defined."""
        found: SpecialDepDefinition[Any] | None = super().get_definition(dep_type)
        return self._by_default(dep_type) if found is None else found

    def _by_default(self, key: Any) -> SpecialDepDefinition[Any] | None:
        if key is UnitOfWork:
            return _UNIT_OF_WORK
        plain = get_origin(key) or key
        if plain not in _MAKERS:
            return _refusal(key) if key in _SESSIONS else None
        makes = get_args(key)
        if not makes or makes[0] is Any or makes[0] in _SESSIONS or isinstance(makes[0], TypeVar):
            return super().get_definition(plain) or _refusal(key)
        return _refusal(key)


_UNIT_OF_WORK: ConstructionWithContainer[Any] = ConstructionWithContainer(
    lambda found: SqlAlchemyUnitOfWork(found[async_sessionmaker])
)


def _refusal(key: Any) -> SpecialDepDefinition[Any]:
    def refuse(_: ReadableContainer) -> Any:
        raise NotBound(_shown(key))

    return cast("SpecialDepDefinition[Any]", ConstructionWithContainer(refuse))


def _shown(key: Any) -> str:
    name = getattr(key, "__name__", str(key))
    arguments = ", ".join(map(_shown, get_args(key)))
    return f"{name}[{arguments}]" if arguments else str(name)
