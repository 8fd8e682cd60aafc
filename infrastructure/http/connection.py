"""One connection, between the event loop and the server's own protocol: what it may take of time and of turns.

The server's protocol has no time limit for a head that does not come, nor for a body. So a connection is either waited
for, until a deadline and as long as there is room for it, or a request of it is at work. What has come is handed on in
slices, a turn of the loop for each: a parser of Python is busy for long with what is made to keep it so.

Where a request is answered before its body is here, the rest is neither read nor refused: it is let pass for a moment,
since whoever is cut off in the middle of sending never reads the answer.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Any, cast

from outbox_kernel.infrastructure.http.limits import HEAD_BYTES_MAX, LINGER_SECONDS, SLICE_BYTES

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.http.connections import Connections

_IPV6_HOME_BITS = 64

CURRENT: ContextVar[Connection] = ContextVar("outbox_connection")
"""The connection that a request came by: the server makes each request's task while it is handed what has come."""


class Connection(asyncio.Protocol):
    """Stands before the server's protocol, which it speaks to as the event loop would."""

    def __init__(self, inner: asyncio.Protocol, connections: Connections) -> None:
        self.address = ""
        self._inner, self._connections = inner, connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._coming = bytearray()
        self._is_turn_due = self._is_held = self._is_paused = False
        self._head_bytes: int | None = 0
        self._is_body_left = False
        self._is_let_in = self._is_lingering = False

    # --- what the event loop tells ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let it in, if there is room, or room can be made."""
        self._transport = cast("asyncio.Transport", transport)
        self.address = _home_of(transport.get_extra_info("peername"))
        if not self._connections.admit(self):
            self._transport.abort()
            return
        self._is_let_in = True
        self.wait_for(self._connections.head_seconds)
        self._inner.connection_made(cast("asyncio.Transport", _Reins(self, self._transport)))

    def data_received(self, data: bytes) -> None:
        """Hand on what has come, unless nobody reads it any more."""
        if not self._is_let_in or self._is_lingering:
            return
        self._coming += data
        if self._is_turn_due:
            # Nothing more is read until then, or a fast sender would fill the memory.
            self._pause()
        elif not self._is_held:
            self._hand_on()

    def eof_received(self) -> bool | None:
        """Tell it on; nobody here answers who has closed."""
        return self._inner.eof_received() if self._is_let_in else None

    def connection_lost(self, error: Exception | None) -> None:
        """Forget it."""
        self._stop_waiting()
        if self._is_let_in:
            self._connections.forget(self)
            self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        """Tell it on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Tell it on."""
        self._inner.resume_writing()

    # --- what becomes of a request ----------------------------------------------------------------------

    def begin(self, *, has_body: bool) -> None:
        """Take note that a request is here, and wait for its body, if it has one."""
        self._head_bytes = None
        self._is_body_left = has_body
        if has_body:
            self.wait_for(self._connections.body_seconds)
        else:
            self._stop_waiting()

    def have_body(self) -> None:
        """Take note that the body is here, too: from now on it is waited for us."""
        self._is_body_left = False
        self._stop_waiting()

    @property
    def is_body_left(self) -> bool:
        """Whether more of the body is to come."""
        return self._is_body_left

    def end(self) -> None:
        """Take note that the request is answered; what is left of the answer, and the next request, have their time."""
        if self._is_let_in and not self._is_lingering:
            self._head_bytes = 0
            self.wait_for(self._connections.head_seconds)

    # --- how it is waited for, and cut ------------------------------------------------------------------

    def wait_for(self, seconds: float) -> None:
        """Give it so long; meanwhile it may have to make room for another."""
        self._stop_waiting()
        self._deadline = self._loop.call_later(seconds, self.cut, "late")
        self._connections.waits(self)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self._connections.waits_no_more(self)

    def cut(self, reason: str) -> None:
        """End it at once, whatever it was about."""
        self._stop_waiting()
        if not self._is_lingering:
            self._connections.note(reason)
        self._open_transport().abort()

    def close(self) -> None:
        """End it as the server asks for: at once, or once whoever still sends has had a moment to read the answer."""
        transport = self._open_transport()
        if self._is_lingering:
            return
        if self._is_body_left and transport.can_write_eof() and not transport.is_closing():
            self._is_lingering = True
            self._coming.clear()
            transport.write_eof()
            self._resume()
            self.wait_for(LINGER_SECONDS)
        else:
            transport.close()

    @property
    def is_closing(self) -> bool:
        """Whether nothing more is to be written."""
        return self._is_lingering or self._open_transport().is_closing()

    # --- turns ------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Let nothing more come until `let_go`."""
        self._is_held = True
        self._pause()

    def let_go(self) -> None:
        """Let come what comes."""
        self._is_held = False
        if not self._is_turn_due:
            self._take_turn()

    def _hand_on(self) -> None:
        """Hand on one slice; by the next turn a request that it ends has begun."""
        piece = bytes(self._coming[:SLICE_BYTES])
        del self._coming[:SLICE_BYTES]
        if self._head_bytes is not None:
            self._head_bytes += len(piece)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.cut("late")
                return
        before = CURRENT.set(self)
        try:
            self._inner.data_received(piece)
        finally:
            CURRENT.reset(before)
        if not self._is_turn_due:
            self._take_turn()

    def _take_turn(self) -> None:
        self._is_turn_due = True
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        if self._is_lingering or self._open_transport().is_closing():
            self._coming.clear()
        elif self._is_held:
            self._pause()
        elif self._coming:
            self._hand_on()
        else:
            self._resume()

    def _pause(self) -> None:
        if not self._is_paused and not self._open_transport().is_closing():
            self._is_paused = True
            self._open_transport().pause_reading()

    def _resume(self) -> None:
        if self._is_paused and not self._open_transport().is_closing():
            self._is_paused = False
            self._open_transport().resume_reading()

    def _open_transport(self) -> asyncio.Transport:
        assert self._transport is not None  # noqa: S101 - nothing is asked of it before it is connected
        return self._transport


class _Reins:
    """The transport as the server's protocol has it: reading and closing are the connection's to decide."""

    def __init__(self, connection: Connection, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.pause_reading = connection.hold
        self.resume_reading = connection.let_go
        self.close = connection.close
        self._connection = connection

    def is_closing(self) -> bool:
        return self._connection.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _home_of(peer: object) -> str:
    """Tell one sender from another: by the address, of version 6 by what a household or a server is given of it."""
    if not (isinstance(peer, tuple) and peer):
        return ""  # a socket of this machine
    address = ip_address(str(peer[0]).partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ip_network((address, _IPV6_HOME_BITS), strict=False))
    return str(address)
