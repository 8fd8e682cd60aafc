"""A connection outside every pool, with all that an engine gives its own: certificates, settings, a pooler's needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
from sqlalchemy.util import greenlet_spawn

from infrastructure.errors import InfrastructureError

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
    """Open one; who opens it closes it."""
    # By a pool of its own, since an engine's pool belongs to the event loop that used it first.
    fairy: Any = await greenlet_spawn(engine.pool.recreate().connect)
    connection: asyncpg.Connection = fairy.driver_connection
    fairy.detach()
    return connection
