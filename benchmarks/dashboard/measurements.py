"""What each page costs with so many events, beside what it costs with none, and what it asks of the server."""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import attrs
import httpx
from sqlalchemy import event

from benchmarks.dashboard.filling import DYING, fill
from benchmarks.dashboard.sizes import FULL, SHORT
from benchmarks.databases import bare_connection, database_on, measured_server
from outbox_kernel.infrastructure.dashboard import Dashboard
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.operations import Desk, dead_letters
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from benchmarks.dashboard.sizes import Sizes

APPLICATION = "outbox-kernel dashboard"
MIDDLE = "SELECT event_id::text, aggregate_type || ':' || aggregate_id FROM outbox_events WHERE position = $1"
LOCKS = """
SELECT DISTINCT mode, granted FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE application_name = $1 AND relation IS NOT NULL AND pid <> pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
LOOK_SECONDS = 0.002
P95 = 0.95


@attrs.define(eq=False)
class Side:
    """A dashboard over one outbox, and the longest that one statement of it has taken."""

    browser: httpx.AsyncClient
    longest_query_ms: float = 0.0

    async def ask(self, path: str) -> float:
        """Load a page, and return how many milliseconds that took."""
        begun = time.perf_counter()
        response = await self.browser.get(path)
        elapsed = time.perf_counter() - begun
        if response.status_code not in {200, 404}:
            raise RuntimeError(f"{path} is answered with {response.status_code}: {response.text}")
        return elapsed * 1_000


async def run(*, short: bool = False, events: int | None = None) -> dict[str, Any]:
    """Fill an outbox, load every page many times, and return the figures by page."""
    sizes = SHORT if short else FULL
    if events is not None:
        sizes = attrs.evolve(sizes, events=events, dead=min(sizes.dead, max(1, events // 10)))
    async with measured_server() as server, database_on(server) as full_url, database_on(server) as empty_url:
        connection = await _prepared(full_url)
        await (await _prepared(empty_url)).close()
        begun = time.perf_counter()
        await fill(full_url, sizes)
        filled_seconds = time.perf_counter() - begun
        async with _side(full_url) as full, _side(empty_url) as empty:
            pages = await _pages(connection, sizes)
            figures, held = await _looked_at(connection, full, empty, pages, sizes)
        figures["all"] = {
            "p95_ms": max(each["p95_ms"] for each in figures.values()),
            "longest_query_ms": round(full.longest_query_ms, 1),
            **held,
        }
        figures["retry"] = await _retried(connection)
        version = await connection.fetchval("SHOW server_version")
        await connection.close()
    return {"machine": _machine(version), "filled": _filled(sizes, filled_seconds), **figures}


async def _prepared(url: str) -> asyncpg.Connection:
    engine = create_engine(url)
    try:
        await migrate(engine, Settings(contexts=()))
    finally:
        await engine.dispose()
    return await bare_connection(url)


@asynccontextmanager
async def _side(url: str) -> AsyncIterator[Side]:
    """Serve it in this process: what a server and the network add is no business of pages."""
    engine = create_engine(url, session_defaults={"application_name": APPLICATION}, pool_size=2)
    dashboard = Dashboard(Settings(contexts=()), engine)
    transport = httpx.ASGITransport(app=dashboard, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as browser:
        side = Side(browser)

        def note(record: Any) -> None:
            side.longest_query_ms = max(side.longest_query_ms, record.elapsed * 1_000)

        @event.listens_for(engine.sync_engine, "connect")
        def listen(made: Any, _: object) -> None:
            made.driver_connection.add_query_logger(note)

        yield side
    await engine.dispose()


async def _pages(connection: asyncpg.Connection, sizes: Sizes) -> dict[str, str]:
    [(event_id, aggregate)] = await connection.fetch(MIDDLE, sizes.events // 2)
    return {
        "overview_24h": "/",
        "overview_7d": "/?window=7d",
        "events": "/events",
        "events_far_back": f"/events?from={sizes.events // 3}",
        "events_by_rare_type": "/events?type=nothing.*",
        "events_by_rare_text": "/events?text=zzzzzz",
        "events_dead": "/events?state=dead",
        "events_by_aggregate": f"/events?aggregate={aggregate}&since=2d",
        "event": f"/events/{event_id}",
        "aggregate": f"/aggregate?key={aggregate}",
        "subscriptions": "/subscriptions",
        "subscription": f"/subscription?name={DYING}",
        "dead_letters": "/dead-letters",
        "letters": f"/dead-letters/of?handler={DYING}",
        "letters_far_on": f"/dead-letters/of?handler={DYING}&from={sizes.events // 2}",
        "letters_by_rare_type": f"/dead-letters/of?handler={DYING}&type=nothing",
        "relays": "/relays",
        "confirm_retry": f"/confirm/retry?handler={DYING}",
        "confirm_rewind": f"/confirm/rewind?name={DYING}&since=3d",
        "confirm_retire": f"/confirm/retire?name={DYING}",
        "confirm_purge": "/confirm/purge?days=3",
    }


async def _looked_at(
    connection: asyncpg.Connection, full: Side, empty: Side, pages: dict[str, str], sizes: Sizes
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Load every page in turn, many times over, of the one outbox and of the other."""
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in pages}
    locks = Locks()
    watching = asyncio.create_task(locks.watch(connection))
    for number in range(-1, sizes.rounds):
        for name, path in pages.items():
            times = await full.ask(path), await empty.ask(path)
            # The first of each prepares its statements, and loads its template.
            if number >= 0:
                for side, elapsed in zip(found[name], times, strict=True):
                    side.append(elapsed)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    told = {"lock_modes": sorted(locks.modes), "waited_for_locks": locks.waited}
    return {name: _told(*times) for name, times in found.items()}, told


def _told(full: list[float], empty: list[float]) -> dict[str, float]:
    return {
        "p50_ms": round(statistics.median(full), 1),
        "p95_ms": round(_p95(full), 1),
        "empty_p95_ms": round(_p95(empty), 1),
        "ratio": round(_p95(full) / _p95(empty), 2),
    }


def _p95(times: list[float]) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * P95))]


@attrs.define(eq=False)
class Locks:
    """Which locks on tables pages hold, and whether they ever wait for one."""

    modes: set[str] = attrs.Factory(set)
    waited: bool = False

    async def watch(self, connection: asyncpg.Connection) -> None:
        """Look again and again, until cancelled."""
        while True:
            for row in await connection.fetch(LOCKS, APPLICATION):
                self.modes.add(row["mode"])
                self.waited = self.waited or not row["granted"]
            await asyncio.sleep(LOOK_SECONDS)


async def _retried(connection: asyncpg.Connection) -> dict[str, Any]:
    """Let dead letters run again, as many as one press of the button does."""
    begun = time.perf_counter()
    mended = await dead_letters.retry_meant(Desk(connection), dead_letters.Meant(handler=DYING))
    seconds = time.perf_counter() - begun
    return {
        "letters": mended.changed,
        "letters_per_s": round(mended.changed / seconds),
        "is_over": mended.is_over,
    }


def _filled(sizes: Sizes, seconds: float) -> dict[str, Any]:
    return {"events": sizes.events, "dead": sizes.dead, "seconds": round(seconds, 1)}


def _machine(version: str) -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "postgresql": version,
    }
