"""A desk to look from: read-only, in one snapshot, and for no longer than a moment (O3)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from outbox_kernel.infrastructure.errors import DatabaseRefusal
from outbox_kernel.infrastructure.operations.desk import Desk, in_sentences
from outbox_kernel.infrastructure.operations.limits import (
    LOOK_IDLE_SECONDS_MAX,
    LOOK_LOCK_SECONDS_MAX,
    LOOK_SECONDS_MAX,
)
from outbox_kernel.infrastructure.postgres.pinning import pin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from outbox_kernel.infrastructure.settings import Settings


class TookTooLong(DatabaseRefusal):
    """The database needed longer for an answer than anybody should wait for a page."""


class TooManyLook(DatabaseRefusal):
    """No connection was free to look by."""


@asynccontextmanager
async def looking(
    engine: AsyncEngine, settings: Settings, *, now: datetime | None = None
) -> AsyncIterator[Desk]:
    """Open a desk over one of the engine's connections, in a transaction that can change nothing."""
    try:
        with in_sentences(engine.url):
            async with (
                engine.connect() as pooled,
                _lent(pooled) as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                pinned = await pin(
                    connection,
                    LOOK_SECONDS_MAX,
                    statement_seconds=LOOK_SECONDS_MAX,
                    lock_seconds=LOOK_LOCK_SECONDS_MAX,
                    idle_seconds=LOOK_IDLE_SECONDS_MAX,
                    within=True,
                )
                home = settings.outbox_schema or pinned.home
                yield Desk(connection, home, settings.channel, now, pinned)
    except DatabaseRefusal as error:
        if isinstance(error.__cause__, asyncpg.QueryCanceledError):
            raise TookTooLong(
                f"the database did not answer within {LOOK_SECONDS_MAX:g} s: ask for less, or look at its load"
            ) from error
        raise
    except PoolTimeoutError as error:
        raise TooManyLook("all connections of the dashboard are in use: try again in a moment") from error


@asynccontextmanager
async def _lent(pooled: AsyncConnection) -> AsyncIterator[asyncpg.Connection]:
    """Give the driver's own connection, and end it where whoever had it was cancelled: nobody else may have it then.

    asyncpg does not know whether a BEGIN that was cancelled has begun something. The next look would be a savepoint
    in that transaction, with its snapshot, and what one pins there would stay for all who come later.
    """
    connection = (await pooled.get_raw_connection()).driver_connection
    assert connection is not None  # noqa: S101 - a connection that was just opened has a driver's
    try:
        yield connection
    except (asyncio.CancelledError, GeneratorExit):
        connection.terminate()
        raise
