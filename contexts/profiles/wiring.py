"""Puts this context into the container."""

from __future__ import annotations

from lagom import Container
from sqlalchemy.ext.asyncio import async_sessionmaker

from contexts.profiles.persistence import SqlProfilesUnitOfWork
from contexts.profiles.use_cases import ProfilesUnitOfWork


def register(container: Container) -> None:
    """Bind the port of the use cases; they themselves are made from what their annotations ask for."""
    container[SqlProfilesUnitOfWork] = lambda found: SqlProfilesUnitOfWork(found[async_sessionmaker])
    container[ProfilesUnitOfWork] = SqlProfilesUnitOfWork  # type: ignore[type-abstract]  # a port is what it is asked by
