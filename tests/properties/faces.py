"""A synchronous session, with the face of an asynchronous one, so that one history drives both (C9)."""

from __future__ import annotations

from typing import Any, Self

from sqlalchemy.orm import Session, SessionTransaction, sessionmaker


class Savepoint:
    """What `AsyncSessionTransaction` is to an asynchronous session."""

    def __init__(self, transaction: SessionTransaction) -> None:
        self.transaction = transaction

    async def commit(self) -> None:
        self.transaction.commit()

    async def rollback(self) -> None:
        self.transaction.rollback()


class Face:
    """What `AsyncSession` is, as far as the histories ask."""

    def __init__(self, session: Session) -> None:
        self.sync_session = session

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.sync_session.close()

    def __getattr__(self, name: str) -> Any:
        """What is no coroutine of an asynchronous session either."""
        return getattr(self.sync_session, name)

    async def begin_nested(self) -> Savepoint:
        return Savepoint(self.sync_session.begin_nested())

    async def get(self, *key: Any) -> Any:
        return self.sync_session.get(*key)

    async def get_one(self, *key: Any) -> Any:
        return self.sync_session.get_one(*key)

    async def execute(self, statement: Any) -> Any:
        return self.sync_session.execute(statement)

    async def delete(self, instance: object) -> None:
        self.sync_session.delete(instance)

    async def refresh(self, instance: object) -> None:
        self.sync_session.refresh(instance)

    async def flush(self) -> None:
        self.sync_session.flush()

    async def commit(self) -> None:
        self.sync_session.commit()

    async def rollback(self) -> None:
        self.sync_session.rollback()

    async def close(self) -> None:
        self.sync_session.close()

    async def reset(self) -> None:
        self.sync_session.reset()


def faces_of(maker: sessionmaker[Session]) -> Any:
    """What stands in the place of an `async_sessionmaker`."""
    return lambda **options: Face(maker(**options))
