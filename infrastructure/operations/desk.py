"""The operator's desk: one connection to one outbox, transactions in turn, and the bell that wakes the relays."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg
import attrs
from sqlalchemy.pool import NullPool

from outbox_kernel.infrastructure.errors import DatabaseRefusal
from outbox_kernel.infrastructure.operations.limits import (
    DEADLOCK_ATTEMPTS_MAX,
    IDLE_SECONDS_MAX,
    LOCK_SECONDS_MAX,
    STATEMENT_SECONDS_MAX,
)
from outbox_kernel.infrastructure.outbox.sql.named import arguments
from outbox_kernel.infrastructure.outbox.sql.operations import CLOCK, TAKE_TURN, WAKE
from outbox_kernel.infrastructure.postgres.connections import connect
from outbox_kernel.infrastructure.postgres.engine import create_engine
from outbox_kernel.infrastructure.postgres.explain import explained
from outbox_kernel.infrastructure.postgres.pinning import Pinned, pin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from datetime import datetime

    from sqlalchemy.engine import URL
    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.outbox.sql.named import Statement
    from outbox_kernel.infrastructure.settings import Settings

R = TypeVar("R")

# SQLSTATE classes of statements that are wrong, which is a defect of ours and keeps its traceback.
_OURS = ("22", "42")


class OutboxLocked(DatabaseRefusal):
    """Somebody holds a lock that the command needs, and does not let go of it."""


@attrs.frozen
class Desk:
    """A connection and the schema of the outbox; `now` is for tests."""

    connection: asyncpg.Connection
    schema: str | None = None
    channel: str = "outbox_channel"
    now: datetime | None = None
    pinned: Pinned | None = None
    """How its connection works; None: as it came."""

    async def run(self, statement: Statement, **values: Any) -> list[Any]:
        """Run a statement by the names of its parameters, and return its rows; `now` need not be given."""
        text, names = statement.in_schema(self.schema)
        if "now" in names:
            values["now"] = self.now
        if self.pinned is None or not self.pinned.in_transactions or self.connection.is_in_transaction():
            return await self.connection.fetch(text, *arguments(names, values))
        async with self.transaction():
            return await self.connection.fetch(text, *arguments(names, values))

    async def run_one(self, statement: Statement, **values: Any) -> Any:
        """Run a statement that answers with one row."""
        (row,) = await self.run(statement, **values)
        return row

    async def clock(self) -> datetime:
        """Return the server's time."""
        moment: datetime = (await self.run_one(CLOCK))[0]
        return moment

    async def in_turn(self, work: Callable[[], Awaitable[R]]) -> R:
        """Do it in one transaction, while no other operator does anything; again, if a relay was in the way."""
        for _ in range(DEADLOCK_ATTEMPTS_MAX - 1):
            try:
                return await self._in_turn(work)
            except asyncpg.DeadlockDetectedError:
                continue
        return await self._in_turn(work)

    async def _in_turn(self, work: Callable[[], Awaitable[R]]) -> R:
        async with self.transaction():
            await self.run(TAKE_TURN)
            return await work()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin one as it is to begin; at the end commit it, or roll it back."""
        async with self.connection.transaction():
            if self.pinned is not None and self.pinned.sets:
                await self.connection.execute(self.pinned.sets)
            yield

    async def wake_relays(self) -> None:
        """Tell the relays to look; those that do not hear find it at their next poll."""
        await self.run(WAKE, channel=self.channel)


@asynccontextmanager
async def desk(
    settings: Settings, engine: AsyncEngine | None = None, *, now: datetime | None = None
) -> AsyncIterator[Desk]:
    """Open a desk, by an engine of its own unless one is given; what the database refuses is raised as a sentence."""
    made = engine or create_engine(settings.required_database_url, poolclass=NullPool)
    with in_sentences(made.url):
        connection = await connect(made.sync_engine)
        try:
            yield await pinned_desk(connection, settings, now=now)
        except BaseException:
            connection.terminate()  # whatever was under way is rolled back
            raise
        else:
            await connection.close()
        finally:
            if engine is None:
                await made.dispose()


async def pinned_desk(
    connection: asyncpg.Connection, settings: Settings, *, now: datetime | None = None
) -> Desk:
    """Return the desk of a new connection, which works with what it needs, whatever its user's sessions begin with."""
    pinned = await pin(
        connection, STATEMENT_SECONDS_MAX, lock_seconds=LOCK_SECONDS_MAX, idle_seconds=IDLE_SECONDS_MAX
    )
    return Desk(connection, settings.outbox_schema or pinned.home, settings.channel, now, pinned)


@contextmanager
def in_sentences(url: URL) -> Iterator[None]:
    """Raise whatever the database answers, except to statements that are wrong, as a sentence."""
    try:
        with explained(url):
            yield
    except asyncpg.LockNotAvailableError as error:
        raise OutboxLocked(
            f"another session has held a lock on the outbox for {LOCK_SECONDS_MAX:g} s: let that command, migration "
            "or transaction end (`outbox doctor` names the oldest), then try again"
        ) from error
    except asyncpg.PostgresError as error:
        if (error.sqlstate or "")[:2] in _OURS:
            raise
        raise DatabaseRefusal(
            f"PostgreSQL could not do it ({str(error).partition(chr(10))[0].rstrip('.')}): "
            "look at its log, its disk and its limits, then try again"
        ) from error
