"""A connection outside every pool, with all that an engine gives its own: certificates, settings, a pooler's needs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.util import greenlet_spawn

from outbox_kernel.infrastructure.errors import DatabaseUnreachable, InfrastructureError
from outbox_kernel.infrastructure.postgres.limits import CONNECT_SECONDS_MAX

if TYPE_CHECKING:
    from sqlalchemy import Engine

TROUBLE = (
    InfrastructureError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    # What the driver says of a connection that is cut between two of its messages.
    asyncpg.InternalClientError,
    OSError,
)
"""All that a database which is gone, or refuses, may raise."""


async def connect(engine: Engine) -> asyncpg.Connection:
    """Open one, or say in a sentence why not; who opens it closes it."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            # By a pool of its own, since an engine's pool belongs to the event loop that used it first.
            fairy: Any = await greenlet_spawn(engine.pool.recreate().connect)
    except InfrastructureError:
        raise
    except TimeoutError as error:
        raise DatabaseUnreachable(
            f"the database took the connection and said nothing for {CONNECT_SECONDS_MAX:g} s: "
            "look at its load, and at what stands between"
        ) from error
    except (*TROUBLE, SQLAlchemyError, engine.dialect.loaded_dbapi.Error) as error:
        raise DatabaseUnreachable(f"the connection broke while it was made: {error}") from error
    connection: asyncpg.Connection = fairy.driver_connection
    fairy.detach()
    return connection
