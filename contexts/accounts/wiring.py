"""Puts this context into the container."""

from __future__ import annotations

from lagom import Container
from sqlalchemy.ext.asyncio import async_sessionmaker

from contexts.accounts.persistence import SqlAccountsUnitOfWork
from contexts.accounts.use_cases import AccountsUnitOfWork


def register(container: Container) -> None:
    """Bind the port of the use cases; they themselves are made from what their annotations ask for."""
    container[SqlAccountsUnitOfWork] = lambda found: SqlAccountsUnitOfWork(found[async_sessionmaker])
    container[AccountsUnitOfWork] = SqlAccountsUnitOfWork  # type: ignore[type-abstract]  # a port is what it is asked by
