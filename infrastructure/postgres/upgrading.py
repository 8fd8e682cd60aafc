"""The driver's question whether the server has TLS, of which asyncio complains when its connecting is cancelled.

As a program ends right after a commit, so does the connecting that was to tell of it. Nobody awaits the answer then,
and the error in its place would be told on standard error, of a program that ended well.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from asyncpg import connect_utils

# By its name, since it is none that the driver promises: without it there is nothing to hush.
_NAME = "TLSUpgradeProto"


def hush_upgrades() -> None:
    """Count the answer as asked for once its connection is lost; who awaits it gets it all the same."""
    protocol: Any = getattr(connect_utils, _NAME, type(_NAME, (asyncio.Protocol,), {}))
    lose = protocol.connection_lost

    def connection_lost(self: Any, error: Exception | None) -> None:
        lose(self, error)
        with suppress(asyncio.CancelledError):
            self.on_data.exception()

    protocol.connection_lost = connection_lost
