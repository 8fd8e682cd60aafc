"""Room for atomic runs in an engine's pool: each holds a connection from its first statement to its end (R6)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from outbox_kernel.infrastructure.outbox.limits import SHARE_LEFT_CONNECTIONS
from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import connections_max

if TYPE_CHECKING:
    from sqlalchemy import Pool

_rooms: WeakKeyDictionary[Pool, tuple[asyncio.AbstractEventLoop, asyncio.Semaphore]] = WeakKeyDictionary()


def room_in(pool: Pool) -> asyncio.Semaphore | None:
    """Return what lets in as many atomic runs as leave others a few connections; None: any number."""
    connections = connections_max(pool)
    if connections is None:
        return None
    loop, known = asyncio.get_running_loop(), _rooms.get(pool)
    if known is None or known[0] is not loop:
        left = max(1, connections // SHARE_LEFT_CONNECTIONS)
        known = _rooms[pool] = loop, asyncio.Semaphore(max(1, connections - left))
    return known[1]
