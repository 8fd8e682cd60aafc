"""An application of one context, on an empty database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from outbox_kernel import Outbox
from tests.context_on_disk import Shop, shop_in

Ask = Callable[..., Awaitable[list[Any]]]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "OUTBOX_SCHEMA", "OUTBOX_CONTEXTS", "RABBITMQ_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return shop_in(tmp_path, monkeypatch)


@pytest.fixture
async def outbox(shop: Shop, empty_postgres_url: str) -> AsyncIterator[Outbox]:
    """The one object, migrated; none of the context is imported yet."""
    outbox = Outbox(empty_postgres_url, contexts=shop.name)
    await outbox.migrate()
    yield outbox
    await outbox.close()


@pytest.fixture
async def ask(empty_postgres_url: str) -> AsyncIterator[Ask]:
    """Ask the database, as another connection sees it."""
    connection = await asyncpg.connect(empty_postgres_url)

    async def values(query: str, *arguments: object) -> list[Any]:
        return [row[0] for row in await connection.fetch(query, *arguments)]

    yield values
    await connection.close()
