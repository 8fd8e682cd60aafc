"""The API of accounts in this process, on a store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from lagom import Container

from contexts.accounts.use_cases import AccountsUnitOfWork
from outbox_kernel.infrastructure.http import BearerTokens, HttpSettings, create_app
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel.testing import InMemoryStore
from tests.asking import KEY, asking
from tests.unit.accounts.in_memory import InMemoryAccountsUnitOfWork


@pytest.fixture
def store() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def container(store: InMemoryStore) -> Container:
    made = Container()
    made[Settings] = Settings(contexts=("contexts.accounts",))
    made[AccountsUnitOfWork] = lambda: InMemoryAccountsUnitOfWork(store)  # type: ignore[type-abstract]
    return made


@pytest.fixture
def app(container: Container) -> FastAPI:
    return create_app(container, BearerTokens(KEY), HttpSettings(body_bytes_max=100_000))


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(app) as client:
        yield client
