"""Puts this context into the container."""

from __future__ import annotations

from lagom import Container
from sqlalchemy.ext.asyncio import async_sessionmaker

from contexts.families.persistence import SqlFamiliesUnitOfWork
from contexts.families.use_cases import FamiliesUnitOfWork


def register(container: Container) -> None:
    """Bind the port of the use cases; they themselves are made from what their annotations ask for."""
    container[SqlFamiliesUnitOfWork] = lambda found: SqlFamiliesUnitOfWork(found[async_sessionmaker])
    container[FamiliesUnitOfWork] = SqlFamiliesUnitOfWork  # type: ignore[type-abstract]  # a port is what it is asked by
