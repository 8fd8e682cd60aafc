"""Of several servers in one URL the one that is wanted is found, whatever the others do (R12)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import NullPool

from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.errors import DatabaseUnreachable, LoginRefused
from outbox_kernel.infrastructure.postgres import hosts
from outbox_kernel.infrastructure.postgres.connections import connect
from tests.waiting import until


@pytest.fixture
def mute(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that takes connections and says nothing, as what stands before a machine that is gone."""
    monkeypatch.setattr(hosts, "FIRST_TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield f"127.0.0.1:{made.getsockname()[1]}"


@pytest.fixture
def nobody() -> str:
    """An address at which nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        return f"127.0.0.1:{made.getsockname()[1]}"


def port_of(place: str) -> int:
    return int(place.rpartition(":")[2])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ports that were connected to, one after the other."""
    found: list[int] = []
    really = asyncpg.connect

    async def noting(**options: Any) -> Any:
        found.append(options["port"])
        return await really(**options)

    monkeypatch.setattr(asyncpg, "connect", noting)
    return found


def engine_of(url: str, before: str, *, wanted: str, user: str | None = None) -> AsyncEngine:
    """An engine that may connect to another server first."""
    parts = urlsplit(url)
    who, _, place = parts.netloc.rpartition("@")
    folder = parse_qs(parts.query).get("host")
    places = f"{before},{folder[0] if folder else place}"
    return create_engine(
        f"postgresql://{user or who}@{parts.path}?host={places}{f'&target_session_attrs={wanted}' if wanted else ''}",
        poolclass=NullPool,
    )


async def test_a_server_that_is_gone_is_passed_by(postgres_url: str, nobody: str) -> None:
    engine = engine_of(postgres_url, nobody, wanted="primary")
    async with engine.connect() as connection:
        assert await connection.scalar(text("SELECT 1")) == 1


async def test_a_server_that_says_nothing_is_waited_for_once(
    postgres_url: str, mute: str, asked: list[int]
) -> None:
    engine = engine_of(postgres_url, mute, wanted="primary")
    for _ in range(2):
        async with engine.connect() as connection:
            assert await connection.scalar(text("SELECT 1")) == 1
    assert len(asked) == 3


async def test_where_any_will_do_the_first_is_asked_first_again(
    postgres_url: str, nobody: str, asked: list[int]
) -> None:
    engine = engine_of(postgres_url, nobody, wanted="any")
    for _ in range(2):
        async with engine.connect() as connection:
            assert await connection.scalar(text("SELECT 1")) == 1
    assert asked[0] == asked[2] == port_of(nobody)


async def test_who_is_cut_off_has_found_out_who_says_nothing(
    postgres_url: str, mute: str, asked: list[int]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as made:
        other = f"127.0.0.1:{made.getsockname()[1]}"
        engine = engine_of(postgres_url, f"{mute},{other}", wanted="primary")
        connecting = asyncio.create_task(connect(engine.sync_engine))

        async def comes_to_the_other() -> bool:
            return port_of(other) in asked

        await until(comes_to_the_other)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        asked.clear()
        async with engine.connect() as connection:
            assert await connection.scalar(text("SELECT 1")) == 1
        assert port_of(mute) not in asked


async def test_the_wish_may_stand_in_the_environment(
    postgres_url: str, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "standby")
    engine = engine_of(postgres_url, nobody, wanted="")
    with pytest.raises(DatabaseUnreachable, match=r"target_session_attrs=standby asks for: promote"):
        await connect(engine.sync_engine)


async def test_none_that_is_wanted_is_a_sentence(postgres_url: str, nobody: str) -> None:
    engine = engine_of(postgres_url, nobody, wanted="standby")
    with pytest.raises(
        DatabaseUnreachable, match=rf"^no server of {nobody} or \S+ is now what .*=standby asks for: promote"
    ):
        await connect(engine.sync_engine)


async def test_none_that_answers_is_a_sentence(
    nobody: str, mute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "CONNECT_TIMEOUT_SECONDS", 0.2)
    engine = create_engine(f"postgresql://nobody@{nobody},{mute}/nothing", poolclass=NullPool)
    with pytest.raises(DatabaseUnreachable, match=rf"^no PostgreSQL answers at {nobody} or {mute} "):
        await connect(engine.sync_engine)


async def test_who_is_not_let_in_is_not_sent_to_the_next(postgres_url: str, nobody: str) -> None:
    engine = engine_of(postgres_url, nobody, wanted="primary", user="outbox_tests_nobody")
    with pytest.raises(LoginRefused):
        await connect(engine.sync_engine)
