"""Serve an ASGI application by uvicorn, at an address that is ours before anything else is started."""

from __future__ import annotations

import errno
import logging
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from outbox_kernel.infrastructure.errors import InfrastructureError, MissingExtra

try:
    import uvicorn
except ModuleNotFoundError as error:
    raise MissingExtra("http", "what serves HTTP") from error

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp

BACKLOG_MAX = 2048
ACCEPTED_AT_ONCE_MAX = 100


class AddressRefused(InfrastructureError):
    """It cannot be listened where it is told to."""


def listen(host: str, port: int, variable: str | None = None) -> socket.socket:
    """Take the address, or say why it cannot be had; `variable` is the setting that may say it, too."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        # The latter of a name that no name server could be asked for, like one of 64 letters without a dot.
        raise AddressRefused(f"the host {host!r} is unknown: {_correct(variable)}") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        # At once, or a second process could take it in between without hearing that it is taken.
        listening.listen(BACKLOG_MAX)
    except OSError as error:
        listening.close()
        raise AddressRefused(_sentence(error, host, port, variable)) from error
    return listening


def url_of(listening: socket.socket) -> str:
    """Say where it is reached from here."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - what it is told to listen to
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


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


def _sentence(error: OSError, host: str, port: int, variable: str | None) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken by another program: stop that, or choose another port with --port"
    if error.errno == errno.EACCES:
        return f"port {port} may not be taken by this user: choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine: {_correct(variable)}"
    return f"port {port} of {host} cannot be taken ({error.strerror}): choose another with --host and --port"


def _correct(variable: str | None) -> str:
    return "correct --host" + (f", or {variable}" if variable else "")
