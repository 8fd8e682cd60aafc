"""From sign-up to profile, across two contexts and the relay, once (X1, X2, R6, K10)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from lagom import Container
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from contexts.accounts.use_cases import SignUp, SignUpHandler
from contexts.profiles.persistence import SqlProfilesUnitOfWork
from contexts.profiles.use_cases import CreateProfile, CreateProfileHandler
from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import discover_handlers
from tests.stumbling import stumbling

CONTEXTS = ("contexts.accounts", "contexts.profiles")


@pytest.fixture
async def container(empty_postgres_url: str) -> AsyncIterator[Container]:
    settings = Settings(database_url=empty_postgres_url, contexts=CONTEXTS)
    container = build_container(settings)
    await migrate(container[AsyncEngine], settings)
    yield container
    await container[AsyncEngine].dispose()


@pytest.fixture
def relay(container: Container) -> OutboxRelay:
    handlers = [
        each for each in discover_handlers(CONTEXTS) if each.handler.__module__.startswith("contexts.")
    ]
    return OutboxRelay(container[AsyncEngine], container, handlers=handlers)


async def rows(container: Container, query: str) -> list[tuple[Any, ...]]:
    async with container[AsyncEngine].connect() as connection:
        return [tuple(row) for row in await connection.execute(text(query))]


async def test_who_signs_up_has_a_profile_when_the_relay_has_run(
    container: Container, relay: OutboxRelay
) -> None:
    account_id = await container[SignUpHandler].handle(SignUp("ada@example.org"))
    await relay.run_until_idle()
    assert await rows(container, "SELECT account_id FROM profiles") == [(account_id,)]
    assert await rows(container, "SELECT DISTINCT status FROM outbox_status") == [("delivered",)]


async def test_the_profiles_event_says_what_caused_it(container: Container, relay: OutboxRelay) -> None:
    await container[SignUpHandler].handle(SignUp("ada@example.org"))
    await relay.run_until_idle()
    [(cause,)] = await rows(
        container, "SELECT event_id::text FROM outbox_events WHERE event_type = 'AccountCreated'"
    )
    [found] = await rows(
        container,
        "SELECT headers->>'causation_id', headers->>'correlation_id' FROM outbox_events "
        "WHERE event_type = 'ProfileCreated'",
    )
    assert found == (cause, cause)


async def test_delivered_again_it_makes_no_second_profile(container: Container, relay: OutboxRelay) -> None:
    await container[SignUpHandler].handle(SignUp("ada@example.org"))
    await relay.run_until_idle()
    async with container[AsyncEngine].begin() as connection:
        # As after a crash between the handler's commit and the progress that was to follow.
        await connection.execute(text("UPDATE outbox_cursors SET rewind_to = 0"))
        await connection.execute(text("DELETE FROM profiles"))
    counts = await relay.run_until_idle()
    assert counts.delivered == 2
    assert await rows(container, "SELECT count(*) FROM profiles") == [(0,)]
    assert await rows(container, "SELECT count(*) FROM outbox_receipts") == [(1,)]


async def test_a_failure_between_two_steps_leaves_neither_state_nor_events(container: Container) -> None:
    everything = (
        "SELECT to_jsonb(profiles) FROM profiles UNION ALL SELECT to_jsonb(outbox_events) FROM outbox_events"
    )
    command, failed = CreateProfile(uuid4()), []
    attempts = stumbling(
        container[SqlProfilesUnitOfWork], lambda uow: CreateProfileHandler(uow).handle(command)
    )
    async for step in attempts:
        failed.append(step)
        assert await rows(container, everything) == []
    assert failed == ["profiles.of_account", "record ProfileCreated", "profiles.add", "commit"]
    assert len(await rows(container, everything)) == 2
