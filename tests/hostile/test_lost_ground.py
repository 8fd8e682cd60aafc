"""A disk that is full, a primary that is gone: 503 and not ready, and all well once there is room or a primary (R12).

Servers of these tests' own, since what happens to them happens to all who use them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

import asyncpg
import httpx

from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.settings import Settings
from tests.asking import bearer, problem
from tests.faults.cluster import Cluster
from tests.faults.disk import SmallDisk, missing_small_disk
from tests.faults.server import IMMEDIATE
from tests.hostile.conftest import serving
from tests.servers import require
from tests.waiting import until

DATABASE = "app"
SYNCHRONOUS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"

MORE_THAN_IS_KEPT_FOR_LATER = "CREATE TABLE much AS SELECT generate_series(1, 1000000)"


class Visitor:
    """Who signs people up, and knows whom."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.signed_up: set[str] = set()

    async def is_served(self) -> bool:
        """Sign somebody up; whoever cannot be is told to come again."""
        address = f"{uuid4().hex}@example.org"
        answer = await self._client.post("/accounts", json={"email": address})
        if answer.status_code == 201:
            self.signed_up.add(address)
            return True
        assert problem(answer, 503)["type"] in ("unavailable", "too_slow")
        assert int(answer.headers["retry-after"]) > 0
        return False

    async def is_refused(self) -> bool:
        return not await self.is_served()

    async def is_ready(self) -> bool:
        answer = await self._client.get("/health/ready")
        if answer.status_code == 200:
            return True
        assert problem(answer, 503)["type"] == "not_ready"
        assert int(answer.headers["retry-after"]) > 0
        return False

    async def is_not_ready(self) -> bool:
        return not await self.is_ready()


@asynccontextmanager
async def visiting(url: str, **settings: str) -> AsyncIterator[Visitor]:
    """A server over this database, which is alive all the time and says no traceback."""
    with serving(url, **settings) as api:
        async with httpx.AsyncClient(base_url=api.url, headers=bearer(), timeout=30) as client:
            visitor = Visitor(client)
            assert await visitor.is_ready()
            assert await visitor.is_served()
            yield visitor
            assert (await client.get("/health/live")).status_code == 200
        assert [line for line in api.serving.said if "exception" in line] == []


async def value(url: str, statement: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval(statement) or 0)
    finally:
        await connection.close()


async def made(cluster: Cluster, where: str = "") -> str:
    """A migrated database."""
    await value(cluster.url, f"CREATE DATABASE {DATABASE}{where}")
    url = cluster.url_of(DATABASE)
    engine = create_engine(url)
    await migrate(engine, Settings(database_url=url))
    await engine.dispose()
    return url


async def is_the_law_kept(url: str, visitor: Visitor) -> None:
    """Whoever was told that he is signed up is, and with one event each."""
    connection = await asyncpg.connect(url)
    try:
        there = {row["email"] for row in await connection.fetch("SELECT email FROM accounts")}
        events = await connection.fetchval(
            "SELECT count(*) FROM outbox_events WHERE event_type = 'AccountCreated'"
        )
    finally:
        await connection.close()
    assert visitor.signed_up <= there
    assert events == len(there)


async def test_a_disk_without_room_for_tables_is_told_and_waited_for() -> None:
    require(missing_small_disk())
    with SmallDisk() as disk, Cluster() as cluster:
        folder = await disk.folder_for_the_server("tables")
        await disk.run(cluster.stop)
        await disk.run(cluster.start)
        await value(cluster.url, f"CREATE TABLESPACE small LOCATION '{folder}'")
        url = await made(cluster, " TABLESPACE small")
        async with visiting(url) as visitor:
            await disk.fill()
            # The last pages have some room still.
            await until(visitor.is_refused)
            await until(visitor.is_not_ready)
            await disk.free()
            await until(visitor.is_ready)
            assert await visitor.is_served()
        await is_the_law_kept(url, visitor)


async def test_a_disk_without_room_for_the_log_is_told_and_waited_for() -> None:
    """The server goes down over it, and is started again once there is room."""
    require(missing_small_disk())
    with SmallDisk() as disk:
        cluster = Cluster(wal_folder=await disk.folder_for_the_server("log") / "wal")
        await disk.run(cluster.start)
        try:
            url = await made(cluster)
            async with visiting(url) as visitor:
                await disk.fill()
                with suppress(asyncpg.PostgresError, OSError):
                    await value(url, MORE_THAN_IS_KEPT_FOR_LATER)
                assert await visitor.is_refused()
                await until(visitor.is_not_ready)
                await disk.free()
                await disk.run(lambda: cluster.restart(IMMEDIATE))
                await until(visitor.is_ready)
                assert await visitor.is_served()
            await is_the_law_kept(url, visitor)
        finally:
            await disk.run(cluster.stop)


@asynccontextmanager
async def primary_and_standby() -> AsyncIterator[tuple[Cluster, Cluster]]:
    """Two servers, of which the second has whatever the first has acknowledged."""
    with Cluster() as primary:
        await made(primary)
        with Cluster(copy_of=primary) as standby:
            await value(primary.url, "ALTER SYSTEM SET synchronous_standby_names = '*'")
            await value(primary.url, "SELECT pg_reload_conf()")

            async def keeps_up() -> bool:
                return await value(primary.url, SYNCHRONOUS) == 1

            await until(keeps_up)
            yield primary, standby


def url_of(*ports: int) -> str:
    places = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://postgres@{places}/{DATABASE}?target_session_attrs=primary"


async def test_a_standby_that_is_promoted_is_found() -> None:
    """R12: passed by before, though the URL names it first."""
    async with primary_and_standby() as (primary, standby):
        async with visiting(url_of(standby.port, primary.port)) as visitor:
            primary.end()
            assert await visitor.is_refused()
            await until(visitor.is_not_ready)
            assert await visitor.is_refused()
            await value(standby.url, "SELECT pg_promote()")
            await until(visitor.is_ready)
            assert await visitor.is_served()
        await is_the_law_kept(standby.url_of(DATABASE), visitor)


async def test_a_primary_that_says_nothing_any_more_is_given_up() -> None:
    """As one whose machine is gone: its connections stand, and nobody answers on them."""
    settings = {"OUTBOX_API_REQUEST_SECONDS": "3"}
    async with primary_and_standby() as (primary, standby):
        async with visiting(url_of(primary.port, standby.port), **settings) as visitor:
            with primary.frozen():
                assert await visitor.is_refused()
                await until(visitor.is_not_ready)
                await value(standby.url, "SELECT pg_promote()")
                await until(visitor.is_ready)
                await until(visitor.is_served)
        await is_the_law_kept(standby.url_of(DATABASE), visitor)
