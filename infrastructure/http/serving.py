"""Serve an application by uvicorn, at an address that is ours already."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

    from outbox_kernel.infrastructure.http.settings import HttpSettings


class ApiServer:
    """One server on one socket, until it is stopped."""

    def __init__(self, app: FastAPI, settings: HttpSettings) -> None:
        # Its own account of what it does says less than ours.
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="on",
                ws="none",
                timeout_graceful_shutdown=settings.grace_seconds,
            )
        )

    async def serve(self, listening: socket.socket, on_started: Callable[[], None]) -> None:
        """Serve until `stop()`; requests under way have their grace."""
        self._server.on_started = on_started
        await self._server.serve([listening])

    def stop(self) -> None:
        """Take no more requests."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    on_started: Callable[[], None]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command, which has more to stop."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin, and tell, unless the application has refused to."""
        await super().startup(sockets)
        if self.started:
            self.on_started()
