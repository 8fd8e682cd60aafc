"""All connections of a server: as many as there is room for, and none that keeps others out by saying nothing.

When there is no room, whoever has the most connections that are waited for loses the oldest of them. So a thousand
that never send a request make room for one that does, and where many addresses ask, one does not crowd out the rest.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from typing import TYPE_CHECKING, Any

from outbox_kernel.infrastructure.http.connection import CURRENT, Connection
from outbox_kernel.infrastructure.http.limits import (
    ACCEPTED_AT_ONCE_MAX,
    CONNECTIONS_MIN,
    SPARE_DESCRIPTORS,
    TELLING_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from outbox_kernel.infrastructure.http.settings import HttpSettings

_log = logging.getLogger("outbox.http")


class Connections:
    """Those of one server."""

    def __init__(self, settings: HttpSettings) -> None:
        self.head_seconds = settings.head_seconds
        # A little more than the request itself has, which is told that it was too slow.
        self.body_seconds = settings.request_seconds_max + 1
        self.most = room_for(settings.connections_max)
        self._open: set[Connection] = set()
        # By address, the oldest first.
        self._waiting: dict[str, dict[Connection, None]] = {}
        self._cut: Counter[str] = Counter()
        self._telling: asyncio.TimerHandle | None = None

    def protocol(self, make: Callable[..., asyncio.Protocol]) -> Callable[..., Connection]:
        """Stand before each protocol that is made."""

        def made(**given: Any) -> Connection:
            return Connection(make(**given), self)

        return made

    def application(self, app: ASGIApp) -> ASGIApp:
        """Follow the requests of each connection."""

        async def followed(scope: Scope, receive: Receive, send: Send) -> None:
            connection = CURRENT.get(None) if scope["type"] == "http" else None
            if connection is None:
                await app(scope, receive, send)
                return
            connection.begin(has_body=_has_body(scope))
            try:
                await app(scope, _received(connection, receive), _sent(connection, send))
            finally:
                connection.end()

        return followed

    # --- what connections tell --------------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        """Let it in; where there is no room and nobody to make some, that is refused."""
        if len(self._open) >= self.most and not self._make_room():
            self.note("refused")
            return False
        self._open.add(connection)
        return True

    def forget(self, connection: Connection) -> None:
        """Take note that it is no more."""
        self._open.discard(connection)

    def waits(self, connection: Connection) -> None:
        """Take note that it is waited for, from now on."""
        self._waiting.setdefault(connection.address, {})[connection] = None

    def waits_no_more(self, connection: Connection) -> None:
        """Take note that it is not."""
        of_address = self._waiting[connection.address]
        del of_address[connection]
        if not of_address:
            del self._waiting[connection.address]

    def note(self, reason: str) -> None:
        """Count what was cut, for one line in the log, however many it is."""
        self._cut[reason] += 1
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(TELLING_SECONDS / 10, self._tell)

    def _make_room(self) -> bool:
        if not self._waiting:
            return False
        crowd = max(self._waiting.values(), key=len)
        oldest = next(iter(crowd))
        self._open.discard(oldest)
        oldest.cut("for_others")
        return True

    def _tell(self) -> None:
        told, self._cut, self._telling = self._cut, Counter(), None
        if not told:
            return
        _log.warning(
            "connections were cut: late without a whole request, to make room for others, or refused for want of room",
            extra={
                "action": "api.connections.cut",
                **{why: told[why] for why in told},
                "open": len(self._open),
                "most": self.most,
            },
        )
        # What comes soon after is told together.
        self._telling = asyncio.get_running_loop().call_later(TELLING_SECONDS, self._tell)


def room_for(connections: int) -> int:
    """Return how many connections this process may have open, and let it have as many as are asked for if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + ACCEPTED_AT_ONCE_MAX + SPARE_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    allowed = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed == needed:
        return connections
    room = max(CONNECTIONS_MIN, allowed - ACCEPTED_AT_ONCE_MAX - SPARE_DESCRIPTORS)
    _log.warning(
        "this process may open %d files, which is too few for OUTBOX_API_CONNECTIONS_MAX=%d: it takes %d connections; "
        "raise its limit (`ulimit -n`)",
        allowed,
        connections,
        room,
        extra={"action": "api.connections.fewer"},
    )
    return room


def _has_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0") != b""


def _received(connection: Connection, receive: Receive) -> Receive:
    async def received() -> Message:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            connection.have_body()
        return message

    return received


def _sent(connection: Connection, send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start" and connection.is_body_left:
            # Nobody reads the rest of the body, so nothing can come after it.
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return sent
