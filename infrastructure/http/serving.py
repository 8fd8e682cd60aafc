"""Serve an application by uvicorn, at an address that is ours before anything else is started."""

from __future__ import annotations

import errno
import logging
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import uvicorn

from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.http.connections import ACCEPTED_AT_ONCE_MAX, Connections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

    from outbox_kernel.infrastructure.http.settings import HttpSettings

BACKLOG_MAX = 2048


class AddressRefused(InfrastructureError):
    """The API cannot listen where it is told to."""


def listen(host: str, port: int) -> socket.socket:
    """Take the address, or say why it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        # The latter of a name that no name server could be asked for, like one of 64 letters without a dot.
        raise AddressRefused(f"the host {host!r} is unknown: correct --host, or OUTBOX_API_HOST") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        # At once, or a second process could take it in between without hearing that it is taken.
        listening.listen(BACKLOG_MAX)
    except OSError as error:
        listening.close()
        raise AddressRefused(_sentence(error, host, port)) from error
    return listening


def url_of(listening: socket.socket) -> str:
    """Say where it is reached from here."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - what it is told to listen to
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class ApiServer:
    """One server on one socket, until it is stopped."""

    def __init__(self, app: FastAPI, settings: HttpSettings) -> None:
        # Its own account of what it does says less than ours.
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        connections = Connections(settings)
        config = uvicorn.Config(
            connections.application(app),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            ws="none",
            # So many are accepted in one turn of the loop; the system's own queue stays as long as it was made.
            backlog=ACCEPTED_AT_ONCE_MAX,
            timeout_graceful_shutdown=settings.grace_seconds,
        )
        config.load()
        config.http_protocol_class = cast("Any", connections.protocol(config.http_protocol_class))
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


def _sentence(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken by another program: stop that, or choose another port with --port"
    if error.errno == errno.EACCES:
        return f"port {port} may not be taken by this user: choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine: correct --host, or OUTBOX_API_HOST"
    return f"port {port} of {host} cannot be taken ({error.strerror}): choose another with --host and --port"
