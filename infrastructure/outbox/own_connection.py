"""A database connection of one's own: opened when needed, dropped when broken, each call with a deadline."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.outbox.limits import CALL_SECONDS_MAX
from outbox_kernel.infrastructure.outbox.sql import at_home
from outbox_kernel.infrastructure.postgres.connections import connect
from outbox_kernel.infrastructure.postgres.explain import explain, lost
from outbox_kernel.infrastructure.postgres.pinning import pin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.postgres.pinning import Pinned

R = TypeVar("R", bound=asyncpg.Record)
T = TypeVar("T")
# A statement and its arguments, or what makes them of the rows of the steps before.
Step = tuple[str, "tuple[Any, ...] | Callable[[list[list[asyncpg.Record]]], tuple[Any, ...]]"]


class Line:
    """One asyncpg connection, made as the engine makes its own.

    Not the engine's pool: a busy application must not starve the relay, nor a relay the application. Not
    SQLAlchemy Core either: claims and marks are the hot path (`outbox bench relay` shows what it costs).
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        deadline_seconds: float = CALL_SECONDS_MAX,
        reopens: bool = True,
    ) -> None:
        self._engine = engine
        self._deadline_seconds = deadline_seconds
        self._reopens = reopens
        self._connection: asyncpg.Connection | None = None
        self._pinned: Pinned | None = None
        self._is_lost = False
        self._turn = asyncio.Lock()
        self.unanswered = False
        """Whether the last call may have had an effect that nobody heard of."""
        self.on_gone: Callable[[], None] = lambda: None
        """Called when the connection has ended."""

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run one statement and return its rows."""
        return await self.fetch_as(asyncpg.Record, statement, *arguments)

    async def fetch_as(self, record_class: type[R], statement: str, *arguments: Any) -> list[R]:
        """Run one statement and return its rows as records of a class."""
        return await self._with_connection(self._one, statement, arguments, record_class)

    async def transact(self, steps: Sequence[Step]) -> list[list[asyncpg.Record]]:
        """Run statements in one transaction and return the rows of each."""
        return await self._with_connection(self._all, steps)

    async def _one(
        self,
        connection: asyncpg.Connection,
        pinned: Pinned,
        statement: str,
        arguments: Sequence[Any],
        record_class: type[R],
    ) -> list[R]:
        text = at_home(statement, pinned.home)
        if not pinned.in_transactions:
            return await self._fetch(connection, text, arguments, record_class)
        async with self._transaction(connection, pinned):
            return await self._fetch(connection, text, arguments, record_class)

    async def _all(
        self, connection: asyncpg.Connection, pinned: Pinned, steps: Sequence[Step]
    ) -> list[list[asyncpg.Record]]:
        rows: list[list[asyncpg.Record]] = []
        async with self._transaction(connection, pinned):
            for statement, arguments in steps:
                given = arguments(rows) if callable(arguments) else arguments
                text = at_home(statement, pinned.home)
                rows.append(await self._fetch(connection, text, given, asyncpg.Record))
        return rows

    async def _fetch(
        self, connection: asyncpg.Connection, text: str, arguments: Sequence[Any], record_class: type[R]
    ) -> list[R]:
        return await connection.fetch(
            text, *arguments, timeout=self._deadline_seconds, record_class=record_class
        )

    @asynccontextmanager
    async def _transaction(self, connection: asyncpg.Connection, pinned: Pinned) -> AsyncIterator[None]:
        # Not asyncpg's own block: its rollback has no deadline, and a peer that is gone answers none.
        seconds = self._deadline_seconds
        await connection.execute(pinned.begin, timeout=seconds)
        try:
            yield
            await connection.execute("COMMIT", timeout=seconds)
        except asyncpg.PostgresError:
            if not connection.is_closed():
                await connection.execute("ROLLBACK", timeout=seconds)
            raise

    def check(self) -> None:
        """Raise if the connection was lost, and is not to be made anew: who relied on it is to begin anew, too."""
        if self._connection is not None and self._connection.is_closed():
            self._is_lost = True
        if self._is_lost and not self._reopens:
            raise lost("it was closed", self._engine.url)

    async def close(self) -> None:
        """Hang up."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=1.0)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection.terminate()

    # No context manager, which would cost an event that comes alone as much as its handler does.
    async def _with_connection(self, work: Callable[..., Awaitable[T]], *given: Any) -> T:
        """Lend the connection; one that has failed in any way but an answer of the server is never used again."""
        async with self._turn:
            self.unanswered = False
            self.check()
            connection = self._connection
            if connection is None or connection.is_closed():
                connection, self._pinned = await connect(self._engine.sync_engine), None
                self._connection = connection
                connection.add_termination_listener(lambda _: self.on_gone())
            try:
                if self._pinned is None:
                    self._pinned = await pin(connection, self._deadline_seconds)
                return await work(connection, self._pinned, *given)
            except asyncpg.PostgresError as error:
                if connection.is_closed() or isinstance(error, asyncpg.PostgresConnectionError):
                    self._drop()
                    self._is_lost = True
                raise self._told(error) from error
            except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
                self._drop()
                self._is_lost = True
                raise self._told(error) from error
            except (
                BaseException
            ):  # cancelled in the middle of a call: what comes now would be taken for the next answer
                self._drop()
                raise

    def _drop(self) -> None:
        self.unanswered = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def _told(self, error: Exception) -> Exception:
        if isinstance(error, TimeoutError):
            return DatabaseUnreachable(
                f"the database did not answer within {self._deadline_seconds:g} s: look at its load and its locks"
            )
        if isinstance(error, OSError | asyncpg.InternalClientError):
            # The second is the driver's word for a connection that was cut between two of its calls.
            return lost("it broke in the middle of a call", self._engine.url)
        return explain(error, self._engine.url) or error
