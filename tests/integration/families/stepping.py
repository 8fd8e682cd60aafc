"""A unit of work of families that lets something happen before each of its steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lagom import Container
from sqlalchemy.ext.asyncio import async_sessionmaker

from contexts.families.persistence import SqlFamiliesUnitOfWork
from outbox_kernel.kernel import AggregateRoot


class SteppingRepository:
    """A repository of which each question to the database is a step."""

    def __init__(self, inner: Any, before: Callable[[], Awaitable[None]]) -> None:
        self._inner, self._before = inner, before

    def add(self, aggregate: AggregateRoot) -> None:
        self._inner.add(aggregate)

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self._inner, name)

        async def stepped(*arguments: Any) -> Any:
            await self._before()
            return await ask(*arguments)

        return stepped


class SteppingUnitOfWork(SqlFamiliesUnitOfWork):
    """What a use case asks the database, the commit included, is a step each."""

    def __init__(self, container: Container) -> None:
        super().__init__(container[async_sessionmaker])

    async def before(self) -> None:
        """What happens before a step."""
        raise NotImplementedError

    @property
    def families(self) -> Any:
        return SteppingRepository(super().families, self.before)

    @property
    def invitations(self) -> Any:
        return SteppingRepository(super().invitations, self.before)

    async def commit(self) -> None:
        await self.before()
        await super().commit()
