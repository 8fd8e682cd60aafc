"""What a request leaves in the database: its effect and its events, once, or nothing."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from typing import Annotated, Any
from uuid import UUID

import asyncpg
import attrs
import httpx
import pytest
from fastapi import APIRouter, FastAPI
from lagom import Container
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from contexts.accounts.use_cases import SignUpHandler
from outbox_kernel.errors import ConcurrencyError, UnserializableEvent
from outbox_kernel.infrastructure.application import Outbox
from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.hosting import Hosted
from outbox_kernel.infrastructure.http import BearerTokens, CurrentPrincipal, Provided, create_app
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.infrastructure.settings import Settings
from tests.asking import KEY, USER, asking, bearer, problem
from tests.integration.http.conftest import Ask
from tests.waiting import until

RequestsSession = Annotated[AsyncSession, Provided(AsyncSession)]
EVENTS = "SELECT event_type, headers FROM outbox_events WHERE aggregate_id = $1 ORDER BY position"


async def test_its_events_carry_its_id_and_its_user(client: httpx.AsyncClient, ask: Ask) -> None:
    answer = await client.post(
        "/accounts", json={"email": "carry@example.org"}, headers={"x-request-id": "request-7"}
    )
    ((event, headers),) = await ask(EVENTS, UUID(answer.json()["id"]))
    assert event == "AccountCreated"
    # Its id is that of the whole chain, so that the first event is found by it like those that follow (K10).
    assert json.loads(headers) == {"request_id": "request-7", "correlation_id": "request-7", "user_id": USER}


async def test_of_two_who_take_one_address_at_once_one_is_refused(
    client: httpx.AsyncClient, ask: Ask
) -> None:
    answers = await asyncio.gather(
        *(client.post("/accounts", json={"email": "race@example.org"}) for _ in range(8))
    )
    assert sorted(answer.status_code for answer in answers) == [201, *[409] * 7]
    assert await ask("SELECT count(*) FROM accounts WHERE email = 'race@example.org'") == [(1,)]


async def test_a_refusal_leaves_nothing(client: httpx.AsyncClient, ask: Ask) -> None:
    before = await ask("SELECT count(*) FROM outbox_events")
    for email in ("no address", "a" * 250 + "@b.org"):
        problem(await client.post("/accounts", json={"email": email}), 422)
    assert await ask("SELECT count(*) FROM outbox_events") == before


async def test_without_a_token_nothing_is_done_at_any_address(app: FastAPI, ask: Ask) -> None:
    before = await ask("SELECT count(*) FROM outbox_events")
    operations = [
        (method, path.format_map(defaultdict(lambda: USER)))
        for path, item in app.openapi()["paths"].items()
        for method in item
        if not path.startswith("/health/")
    ]
    async with asking(app, {}) as stranger:
        for method, path in operations:
            answer = await stranger.request(method.upper(), path, json={"email": "nobody@example.org"})
            assert problem(answer, 401)["type"] == "unauthenticated"
    assert {"post", "patch", "get"} == {method for method, _ in operations}
    assert await ask("SELECT count(*) FROM outbox_events") == before


async def test_each_request_has_one_scope_and_shares_it_with_no_other(app: FastAPI) -> None:
    both, router = asyncio.Barrier(2), APIRouter()
    seen: dict[str, tuple[AsyncSession, AsyncSession]] = {}

    @router.get("/scope")
    async def look(me: CurrentPrincipal, one: RequestsSession, other: RequestsSession) -> None:
        await both.wait()
        seen[me.user_id] = (one, other)

    app.include_router(router)
    async with asking(app, {}) as client, asyncio.timeout(5):
        await asyncio.gather(*(client.get("/scope", headers=bearer(user)) for user in ("ada", "brian")))
    (adas, adas_again), (brians, brians_again) = seen["ada"], seen["brian"]
    assert adas is adas_again is not brians
    assert brians is brians_again


class Failing:
    """In the place of a use case: raises what the test wants."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def handle(self, _command: object) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (ConcurrencyError("row of accounts"), 409, "concurrent_change"),
        (UnserializableEvent("AccountCreated", "email", "holds a NUL"), 422, "cannot_be_stored"),
        (ZeroDivisionError("hunter2"), 500, "unexpected"),
    ],
)
async def test_what_a_use_case_raises_has_its_status(
    container: Container, app: FastAPI, error: Exception, status: int, kind: str
) -> None:
    container[SignUpHandler] = Failing(error)  # type: ignore[assignment]
    async with asking(app) as client:
        assert problem(await client.post("/accounts", json={"email": "a@b.c"}), status)["type"] == kind


async def test_a_value_that_the_database_refuses_is_the_senders_mistake(
    container: Container, app: FastAPI
) -> None:
    """The net below the gate: a NUL that came by another way than the body."""

    class Storing:
        async def handle(self, _command: object) -> Any:
            from sqlalchemy import text

            async with container[AsyncEngine].connect() as connection:
                await connection.execute(text("SELECT CAST(:it AS text)"), {"it": "a\0b"})

    container[SignUpHandler] = Storing()  # type: ignore[assignment]
    async with asking(app) as client:
        refused = problem(await client.post("/accounts", json={"email": "a@b.c"}), 422)
    assert refused["type"] == "cannot_be_stored"


async def test_when_all_connections_are_taken_it_says_so_soon(database: Settings) -> None:
    engine = create_engine(database.required_database_url, pool_size=1, max_overflow=0, pool_timeout=0.05)
    app = create_app(build_container(database, engine), BearerTokens(KEY))
    async with engine.connect(), asking(app) as client:
        answer = await client.post("/accounts", json={"email": "full@example.org"})
        assert problem(answer, 503)["type"] == "unavailable"
        assert answer.headers["retry-after"]
    await engine.dispose()


async def test_a_connection_that_is_lost_is_not_the_next_requests_trouble(
    client: httpx.AsyncClient, database: Settings
) -> None:
    assert (await client.post("/accounts", json={"email": "before@example.org"})).status_code == 201
    admin = await asyncpg.connect(database.database_url)
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await admin.close()
    answers = [await client.post("/accounts", json={"email": f"after{n}@example.org"}) for n in range(3)]
    assert answers[-1].status_code == 201
    assert {answer.status_code for answer in answers} <= {201, 503}


async def test_a_relay_may_live_beside_the_application(
    container: Container, database: Settings, ask: Ask
) -> None:
    """R11: it delivers while the application serves, and gives back its lease when that ends."""
    alone = attrs.evolve(database, rabbitmq_url=None, contexts=("contexts.accounts", "contexts.profiles"))
    outbox = Outbox(settings=alone, relay_settings=RelaySettings(poll_interval_seconds=0.05))
    app = create_app(container, BearerTokens(KEY), is_alive=lambda: outbox.is_alive)
    async with outbox.delivering(), asking(app) as client:
        account_id = UUID(
            (await client.post("/accounts", json={"email": "relayed@example.org"})).json()["id"]
        )

        async def has_profile() -> bool:
            return await ask("SELECT count(*) FROM profiles WHERE account_id = $1", account_id) == [(1,)]

        await until(has_profile)
        assert (await client.get("/health/live")).status_code == 200
    assert await ask("SELECT count(*) FROM outbox_relays WHERE expires_at > clock_timestamp()") == [(0,)]
    await outbox.close()


async def test_a_relay_that_ends_by_itself_is_told(
    container: Container, caplog: pytest.LogCaptureFixture
) -> None:
    class Breaking:
        subscribed, broken = asyncio.Event(), asyncio.Event()

        async def run(self) -> None:
            self.subscribed.set()
            await self.broken.wait()
            raise RuntimeError("the relay broke")

    hosted = Hosted(Breaking())  # type: ignore[arg-type]
    app = create_app(container, BearerTokens(KEY), is_alive=lambda: hosted.ended is None)
    async with hosted.serving(), asking(app) as client:
        assert (await client.get("/health/live")).status_code == 200
        Breaking.broken.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert problem(await client.get("/health/live"), 503)["type"] == "not_alive"
    assert "has ended: start the process again" in caplog.text
