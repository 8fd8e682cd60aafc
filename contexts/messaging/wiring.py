"""Puts this context into the container."""

from __future__ import annotations

from lagom import Container
from sqlalchemy.ext.asyncio import async_sessionmaker

from contexts.messaging.persistence import SqlMessagingUnitOfWork
from contexts.messaging.use_cases import MessagingUnitOfWork


def register(container: Container) -> None:
    """Bind the port of the use cases; they themselves are made from what their annotations ask for."""
    container[SqlMessagingUnitOfWork] = lambda found: SqlMessagingUnitOfWork(found[async_sessionmaker])
    container[MessagingUnitOfWork] = SqlMessagingUnitOfWork  # type: ignore[type-abstract]  # a port is what it is asked by
