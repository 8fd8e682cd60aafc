"""One body of test for every driver: synchronous code, in a greenlet where the driver needs one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from attrs import frozen
from sqlalchemy import Engine, create_engine
from sqlalchemy.event import listen, remove
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.util import greenlet_spawn

from outbox_kernel.infrastructure.outbox import install_capture

T = TypeVar("T")

NAMES = ("asyncpg", "psycopg, async", "psycopg, sync")


@frozen
class Driver:
    """An engine of one driver, as an application makes it."""

    name: str
    engine: Engine

    @classmethod
    def of(cls, name: str, url: str, **options: Any) -> Driver:
        scheme = f"postgresql+{name.partition(',')[0]}://"
        url = url.replace("postgresql://", scheme)
        if name.endswith("sync") and not name.endswith("async"):
            return cls(name, create_engine(url, **options))
        return cls(name, create_async_engine(url, **options).sync_engine)

    def sessions(self, **options: Any) -> sessionmaker[Session]:
        """A new maker, without capture."""
        return sessionmaker(self.engine, **options)

    def captured(self, *, schema: str | None = None, **options: Any) -> sessionmaker[Session]:
        """A new maker, with capture."""
        return install_capture(self.sessions(**options), schema=schema)

    async def run(self, work: Callable[[], T]) -> T:
        """Do it where this driver can."""
        return await greenlet_spawn(work) if self.engine.dialect.is_async else work()

    async def dispose(self) -> None:
        await self.run(self.engine.dispose)


@contextmanager
def statements(driver: Driver) -> Iterator[list[str]]:
    """What the block sends."""
    sent: list[str] = []

    def hear(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement.strip())

    listen(driver.engine, "before_cursor_execute", hear)
    try:
        yield sent
    finally:
        remove(driver.engine, "before_cursor_execute", hear)
