"""Doctor's ear: whether what a committer says reaches a relay at once (R10)."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy.pool import NullPool

from outbox_kernel.infrastructure.errors import DatabaseRefusal
from outbox_kernel.infrastructure.operations.limits import ECHO_SECONDS_MAX
from outbox_kernel.infrastructure.operations.verdicts import Check, halves, ok, warn
from outbox_kernel.infrastructure.postgres.connections import connect
from outbox_kernel.infrastructure.postgres.engine import create_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg
    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.relay import RelaySettings


async def examine_hearing(engine: AsyncEngine, relay_settings: RelaySettings) -> list[Check]:
    """Check that what is said on the channel comes back."""
    polls = f"relays find commits only at their polls, every {relay_settings.poll_interval_seconds:g} s"
    try:
        milliseconds = await _echo(engine, relay_settings)
    except TimeoutError:
        detail = f"what is said on {relay_settings.channel!r} does not come back: {polls}"
        remedy = "point OUTBOX_LISTEN_URL at the server itself: a pooler in transaction mode has no LISTEN"
        return [warn("listen", detail, remedy)]
    except DatabaseRefusal as error:
        setting = "OUTBOX_LISTEN_URL" if relay_settings.listen_url else "DATABASE_URL"
        detail = f"the listener cannot connect ({halves(error)[0]}): {polls}"
        return [warn("listen", detail, f"correct {setting}, which is where relays listen")]
    return [ok("listen", f"heard after {milliseconds:.1f} ms on channel {relay_settings.channel!r}")]


async def _echo(engine: AsyncEngine, relay_settings: RelaySettings) -> float:
    """Say something as a committer does, hear it as a relay does, and return how long that took."""
    # Relays know a probe by this beginning, and leave it alone.
    word, heard = f"probe:doctor:{uuid4().hex}", asyncio.Event()

    def hear(_connection: Any, _pid: int, _channel: str, payload: object) -> None:
        if payload == word:
            heard.set()

    async with _listener(engine, relay_settings) as connection, asyncio.timeout(ECHO_SECONDS_MAX):
        await connection.add_listener(relay_settings.channel, hear)
        # Not by the listener itself: a pooler may hand what is said back to whoever says it.
        speaker = await connect(engine.sync_engine)
        try:
            began = time.monotonic()
            await speaker.execute("SELECT pg_notify($1, $2)", relay_settings.channel, word)
            await heard.wait()
            return (time.monotonic() - began) * 1_000
        finally:
            speaker.terminate()


@asynccontextmanager
async def _listener(engine: AsyncEngine, relay_settings: RelaySettings) -> AsyncIterator[asyncpg.Connection]:
    url = relay_settings.listen_url
    own = create_engine(url, setting="OUTBOX_LISTEN_URL", poolclass=NullPool) if url else engine
    connection = await connect(own.sync_engine)
    try:
        yield connection
    finally:
        connection.terminate()
        if own is not engine:
            await own.dispose()
