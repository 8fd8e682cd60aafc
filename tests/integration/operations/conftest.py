"""An outbox with rows put there by hand, in one database per run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from attrs import frozen

from outbox_kernel.infrastructure.cli import main
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.infrastructure.outbox import outbox_metadata
from tests import servers

TABLES = (
    "outbox_events, outbox_deliveries, outbox_receipts, outbox_subscriptions, outbox_relays, outbox_cursors, "
    "outbox_progress, outbox_cursors_past, outbox_servers, outbox_arrivals, outbox_subject_keys"
)
HANDLER = "bank.Letters"
Result = tuple[int | str | None, str, str]


@frozen
class Outbox:
    """Writes rows and reads them, by the names that the tests give."""

    desk: Desk
    url: str

    async def execute(self, statement: str, *arguments: Any) -> None:
        await self.desk.connection.execute(statement, *arguments)

    async def event(
        self,
        aggregate: UUID | None = None,
        *,
        event_type: str = "bank.paid",
        version: int = 1,
        days_old: float = 0,
        payload: dict[str, Any] | None = None,
    ) -> UUID:
        """Store an event of a wallet, the next of its aggregate if it has one."""
        event_id = uuid4()
        await self.execute(
            """
            INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id,
              aggregate_version, payload, occurred_at, created_at)
            SELECT $1, $2, $6, CASE WHEN $3::uuid IS NULL THEN NULL ELSE 'bank.wallet' END, $3,
              CASE WHEN $3::uuid IS NOT NULL THEN
                (SELECT count(*) + 1 FROM outbox_events WHERE aggregate_id = $3) END,
              $4::text::jsonb, at, at
            FROM (SELECT clock_timestamp() - $5::float8 * interval '1 day' AS at) AS moment
            """,
            *(event_id, event_type, aggregate, json.dumps(payload or {"what": "10"}), days_old, version),
        )
        return event_id

    async def failed_event(
        self, aggregate: UUID | None = None, status: str = "dead", *, days_old: float = 0, **delivery: Any
    ) -> UUID:
        """Store an event that has a delivery."""
        event_id = await self.event(aggregate, days_old=days_old)
        await self.delivery(event_id, status, **delivery)
        return event_id

    async def delivery(
        self,
        event_id: UUID,
        status: str = "dead",
        *,
        handler: str = HANDLER,
        attempts: int = 3,
        error: str | None = "ValueError: no",
        lease: tuple[UUID, int] | None = None,
    ) -> None:
        await self.execute(
            """
            INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status, attempts, error_message,
              lease_relay, lease_epoch)
            SELECT event_id, position, $2, coalesce(aggregate_type || ':' || aggregate_id, event_id::text),
              $3, $4, $5, $6, $7 FROM outbox_events WHERE event_id = $1
            """,
            *(event_id, handler, status, attempts, error, *(lease or (None, None))),
        )

    async def receipt(
        self, event_id: UUID, outcome: str = "done", *, handler: str = HANDLER, days_old: float = 0
    ) -> None:
        await self.execute(
            "INSERT INTO outbox_receipts (event_id, handler, outcome, created_at) "
            "VALUES ($1, $2, $3, clock_timestamp() - $4::float8 * interval '1 day')",
            *(event_id, handler, outcome, days_old),
        )

    async def subscription(
        self,
        name: str = HANDLER,
        patterns: tuple[str, ...] = ("bank.paid",),
        *,
        ordered: bool = True,
        source: str | None = None,
    ) -> None:
        """Subscribe; it begins at the end of the log."""
        await self.execute(
            "INSERT INTO outbox_subscriptions (name, kind, patterns, ordered, source) "
            "VALUES ($1, 'handler', $2, $3, $4)",
            *(name, list(patterns), ordered, source),
        )
        await self.execute(
            "INSERT INTO outbox_servers (identifier, floor) SELECT 'here', 0 "
            "WHERE NOT EXISTS (SELECT FROM outbox_servers)"
        )
        await self.execute(
            """
            WITH reader AS (
              INSERT INTO outbox_progress (reader, number, position, server, snapshot)
              SELECT gen_random_uuid(), 0, coalesce((SELECT max(position) FROM outbox_events), 0), 1,
                     pg_current_snapshot()
              RETURNING reader)
            INSERT INTO outbox_cursors (subscription, shard, reader)
            SELECT $1, shard, reader FROM reader, generate_series(0, 31) AS shard
            """,
            name,
        )

    async def is_read(self) -> None:
        """Let somebody have subscribed, for nothing that happens here: until then all of it is pending."""
        if not await self.value("SELECT EXISTS (SELECT FROM outbox_subscriptions)"):
            await self.subscription("bank.Idle", ("bank.idle",))

    async def passed(self, name: str = HANDLER) -> None:
        """Let a subscription have passed all there is."""
        await self.execute(
            """
            INSERT INTO outbox_progress (reader, number, position, server, snapshot)
            SELECT reader, number + 1, (SELECT max(position) FROM outbox_events), server, pg_current_snapshot()
            FROM (SELECT reader, max(number) AS number, max(server) AS server FROM outbox_progress
                  WHERE reader IN (SELECT reader FROM outbox_cursors WHERE subscription = $1) GROUP BY reader) AS last
            """,
            name,
        )

    async def relay(
        self,
        abilities: dict[str, dict[str, int]] | None = None,
        *,
        live: bool = True,
        patterns: dict[str, list[str]] | None = None,
    ) -> tuple[UUID, int]:
        """A relay's lease; without `patterns` it is one of older code."""
        lease = (uuid4(), 1)
        await self.execute(
            """
            INSERT INTO outbox_relays (id, epoch, expires_at, process_id, host, code_version, abilities, patterns)
            VALUES ($1, $2, clock_timestamp() + $3::float8 * interval '1 second', 7, 'host-1', 'v1', $4::text::jsonb,
              $5::text::jsonb)
            """,
            *(*lease, 60 if live else -60, json.dumps(abilities or {})),
            json.dumps(patterns) if patterns is not None else None,
        )
        return lease

    async def pauses(self, told: dict[str, dict[str, str]]) -> None:
        """Let every relay tell of these."""
        await self.execute("UPDATE outbox_relays SET pauses = $1::text::jsonb", json.dumps(told))

    async def status(self, event_id: UUID) -> str:
        """The event's status, and what its deliveries are at."""
        rows = await self.rows(
            "SELECT event.status, delivery.handler, delivery.status FROM outbox_status AS event "
            "LEFT JOIN outbox_deliveries AS delivery USING (event_id) WHERE event_id = $1 ORDER BY handler",
            event_id,
        )
        return " ".join([rows[0][0], *(row[2] for row in rows if row[1])]) if rows else "gone"

    async def receipts(self) -> list[tuple[UUID, str]]:
        rows = await self.rows("SELECT event_id, outcome FROM outbox_receipts ORDER BY created_at")
        return [(row[0], row[1]) for row in rows]

    async def rows(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        return await self.desk.connection.fetch(query, *arguments)

    async def value(self, query: str, *arguments: Any) -> Any:
        return await self.desk.connection.fetchval(query, *arguments)


@contextmanager
def fresh_outbox(server: servers.Server) -> Iterator[str]:
    async def create(url: str) -> None:
        engine = create_engine(url)
        async with engine.begin() as connection:
            await connection.run_sync(outbox_metadata.create_all)
        await engine.dispose()

    with servers.fresh_database(server) as url:
        servers.run(create(url))
        yield url


@pytest.fixture(scope="session")
def outbox_url(postgres_server: servers.Server) -> Iterator[str]:
    with fresh_outbox(postgres_server) as url:
        yield url


@pytest.fixture
async def outbox(outbox_url: str) -> AsyncIterator[Outbox]:
    connection = await asyncpg.connect(outbox_url, server_settings={"synchronous_commit": "off"})
    yield Outbox(Desk(connection), outbox_url)
    await connection.execute(f"TRUNCATE {TABLES} RESTART IDENTITY")
    await connection.close()


@pytest.fixture
def by_hand(outbox_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put rows into an empty outbox; the commands' own loop runs afterwards."""
    for name in ("OUTBOX_SCHEMA", "OUTBOX_CONTEXTS", "OUTBOX_CHANNEL", "OUTBOX_CLEANUP_DAYS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATABASE_URL", outbox_url)

    def on_outbox(work: Callable[[Outbox], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            connection = await asyncpg.connect(outbox_url)
            try:
                return await work(Outbox(Desk(connection), outbox_url))
            finally:
                await connection.close()

        return servers.run(run())

    yield on_outbox
    on_outbox(lambda outbox: outbox.execute(f"TRUNCATE {TABLES} RESTART IDENTITY"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], by_hand: Any) -> Callable[..., Result]:
    def typed(*words: object) -> Result:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return typed
