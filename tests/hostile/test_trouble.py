"""A database that is read-only, full or without a connection to give: 503 and a line each, and not ready (R12, R14).

The disk is told to be full by a trigger, with the error that the server has for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import httpx
import pytest
from lagom import Container

from contexts.families.use_cases import FamiliesUnitOfWork
from outbox_kernel.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.http import BearerTokens, create_app
from outbox_kernel.infrastructure.http.health import Health
from outbox_kernel.infrastructure.http.problems import Refused
from outbox_kernel.infrastructure.settings import Settings
from tests import servers
from tests.asking import KEY, USER, asking, bearer, problem
from tests.hostile.conftest import Api, serving
from tests.migrated import migrated_database
from tests.waiting import until

REQUESTS = 20
READ = ("GET", f"/accounts/{USER}", None)
GRAPHQL = (
    "POST",
    "/graphql",
    {"query": 'mutation { createFamily(input: {name: "Us", ownerEmail: "a@example.org"}) { id } }'},
)
ROLE = f"outbox_test_{uuid4().hex[:8]}"
PASSWORD = "pass"
MADE = f"""
CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}';
GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE};
CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
"""
UNMADE = f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE};"
CUT_OFF = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{ROLE}'"
TABLES = ("outbox_events", "accounts", "families")

# What begins it, and what ends it.
TROUBLES = {
    "read-only": (
        f"ALTER ROLE {ROLE} SET default_transaction_read_only = on",
        f"ALTER ROLE {ROLE} RESET default_transaction_read_only",
    ),
    "no room on the disk": (
        ";".join(
            f"CREATE TRIGGER no_room BEFORE INSERT ON {table} EXECUTE FUNCTION no_room()" for table in TABLES
        ),
        ";".join(f"DROP TRIGGER no_room ON {table}" for table in TABLES),
    ),
    "no connection left": (f"ALTER ROLE {ROLE} CONNECTION LIMIT 0", f"ALTER ROLE {ROLE} CONNECTION LIMIT -1"),
    "not let in": (f"ALTER ROLE {ROLE} NOLOGIN", f"ALTER ROLE {ROLE} LOGIN"),
}
READS_AS_BEFORE = {"read-only", "no room on the disk"}


@pytest.fixture(scope="module")
def database(postgres_server: servers.Server) -> Iterator[str]:
    with migrated_database(postgres_server) as url:
        servers.run(run(url, MADE))
        yield url
        servers.run(run(url, CUT_OFF, UNMADE))


@pytest.fixture(scope="module")
def own_api(database: str) -> Iterator[Api]:
    """A server that connects as a role of its own, as in production."""
    parts = urlsplit(database)
    where = parts.netloc.rpartition("@")[2]
    with serving(parts._replace(netloc=f"{ROLE}:{PASSWORD}@{where}").geturl()) as api:
        yield api


@pytest.fixture
async def client(own_api: Api) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=own_api.url, headers=bearer(), timeout=30) as made:
        yield made


async def run(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def ask(client: httpx.AsyncClient, method: str, path: str, body: Any) -> httpx.Response:
    return await client.request(method, path, json=body)


async def sign_up(client: httpx.AsyncClient) -> httpx.Response:
    return await ask(client, "POST", "/accounts", {"email": f"{uuid4().hex}@example.org"})


def is_told_as_passing(answer: httpx.Response) -> None:
    if answer.url.path == "/graphql":
        (error,) = answer.json()["errors"]
        assert error["extensions"]["status"] == 503
        assert error["extensions"]["type"] == "urn:problem:unavailable"
        assert error["extensions"]["retry_after"] > 0
    else:
        assert problem(answer, 503)["type"] == "unavailable"
        assert int(answer.headers["retry-after"]) > 0


async def said_so_far(api: Api, client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """What it has said since this was asked before."""
    mark, before = str(uuid4()), len(api.serving.said)
    await client.get("/health/live", headers={"x-request-id": mark})
    while api.serving.wait_for("request").get("request_id") != mark:
        pass
    return api.serving.said[before:]


async def is_ready(client: httpx.AsyncClient) -> bool:
    return (await client.get("/health/ready")).status_code == 200


@pytest.mark.parametrize("name", TROUBLES)
async def test_what_passes_is_503_and_not_ready_and_no_traceback(
    database: str, own_api: Api, client: httpx.AsyncClient, name: str
) -> None:
    begins, ends = TROUBLES[name]
    await until(lambda: is_ready(client))
    await said_so_far(own_api, client)
    await run(database, begins, CUT_OFF)
    try:
        for _ in range(REQUESTS):
            is_told_as_passing(await sign_up(client))
            is_told_as_passing(await ask(client, *GRAPHQL))
        read = await ask(client, *READ)
        if name in READS_AS_BEFORE:
            problem(read, 404)
        else:
            is_told_as_passing(read)

        async def is_known() -> bool:
            return not await is_ready(client)

        # It looks once a second; and since requests were refused, it writes each time.
        await until(is_known)
        refused = await client.get("/health/ready")
        assert problem(refused, 503)["type"] == "not_ready"
        assert int(refused.headers["retry-after"]) > 0
        assert (await client.get("/health/live")).status_code == 200
        said = await said_so_far(own_api, client)
    finally:
        await run(database, ends, CUT_OFF)
    assert [line for line in said if "exception" in line] == []
    assert [line for line in said if len(line["message"]) > 500] == []
    assert sum("cannot be served now" in line["message"] for line in said) >= 2 * REQUESTS
    assert sum("not ready" in line["message"] for line in said) == (name != "read-only")
    await until(lambda: is_ready(client))
    assert (await sign_up(client)).status_code == 201


async def test_what_graphql_refuses_for_an_outage_makes_ready_look_anew() -> None:
    """R14: whoever asks by GraphQL alone is not to be sent requests until it is next due."""

    def away() -> FamiliesUnitOfWork:
        raise DatabaseUnreachable("nobody answers: look whether it runs")

    doubts: list[str] = []
    container = Container()
    container[Settings] = Settings(contexts=("contexts.families",))
    container[FamiliesUnitOfWork] = away  # type: ignore[type-abstract]
    app = create_app(container, BearerTokens(KEY))
    app.state.health = SimpleNamespace(doubt=lambda: doubts.append("doubt"))
    async with asking(app) as client:
        is_told_as_passing(await ask(client, *GRAPHQL))
    assert doubts == ["doubt"]


async def test_a_pool_that_has_no_connection_to_give_in_time_is_not_ready(database: str) -> None:
    engine = create_engine(database, pool_size=1, max_overflow=0)
    container = build_container(Settings(database_url=database), engine)
    health = Health(container, lambda: False, deadline_seconds=0.2)
    async with engine.connect():
        with pytest.raises(Refused, match=r"did not answer within 0\.2 s") as refused:
            await health.require_ready()
    assert refused.value.problem.headers == {"retry-after": "5"}
    await engine.dispose()
