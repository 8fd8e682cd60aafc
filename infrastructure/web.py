"""Serve an ASGI application by uvicorn, at an address that is ours already."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from outbox_kernel.infrastructure.errors import MissingExtra
from outbox_kernel.infrastructure.limits import ACCEPTED_AT_ONCE_MAX, BACKLOG_MAX

try:
    import uvicorn
except ModuleNotFoundError as error:
    raise MissingExtra("http", "what serves HTTP") from error

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp


class WebServer:
    """One server on one socket, until it is stopped; requests under way have so many seconds then.

    `protocol` may put something between each connection and what reads it; of those that wait `backlog` are accepted in
    one turn of the loop.
    """

    def __init__(
        self,
        app: ASGIApp,
        grace_seconds: int,
        *,
        protocol: Callable[[Callable[..., asyncio.Protocol]], Callable[..., asyncio.Protocol]] | None = None,
        backlog: int = ACCEPTED_AT_ONCE_MAX,
    ) -> None:
        # Its own account of what it does says less than ours.
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            ws="none",
            # The system's own queue stays as long as it was made.
            backlog=backlog,
            timeout_graceful_shutdown=grace_seconds,
        )
        if protocol is not None:
            config.load()
            config.http_protocol_class = cast("Any", protocol(cast("Any", config.http_protocol_class)))
        self._server = _Server(config)

    async def serve(self, listening: socket.socket, on_started: Callable[[], None]) -> None:
        """Serve until `stop()`; requests under way have their grace."""

        def started() -> None:
            listening.listen(BACKLOG_MAX)
            on_started()

        self._server.on_started = started
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
