"""A command that serves HTTP: assembled, served until it is told to stop, and ended in order (R11)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.cli.serving import freeze_what_stays, stopped_by_signals

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp

    from outbox_kernel.infrastructure.web import WebServer

_log = logging.getLogger("outbox.start")


async def serve_until_stopped(
    listening: socket.socket,
    assemble: Callable[[AsyncExitStack], Awaitable[ASGIApp]],
    make: Callable[[ASGIApp], WebServer],
    *,
    what: str,
    on_started: Callable[[], None],
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal; what is assembled says what is to end with it, and is told when it stops."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine that runs is a task's
    server: WebServer | None = None

    def stop() -> None:
        if server is None:
            task.cancel()
        else:
            on_stop()
            server.stop()

    try:
        async with AsyncExitStack() as ending:
            ending.enter_context(stopped_by_signals(stop))
            server = make(await assemble(ending))
            freeze_what_stays()
            await server.serve(listening, on_started)
            _log.info("%s has stopped", what, extra={"action": "web.stopped"})
    except asyncio.CancelledError:
        if task.uncancel() > 0:
            raise
        _log.info("stopped before it had begun", extra={"action": "web.stopped_early"})
