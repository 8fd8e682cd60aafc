"""An address to serve at, taken before anything else is started, or the sentence that says why it cannot be had."""

from __future__ import annotations

import errno
import socket

from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.limits import BACKLOG_MAX


class AddressRefused(InfrastructureError):
    """Nothing can listen where it is told to."""


def listen(
    host: str, port: int, *, host_setting: str = "--host", port_setting: str = "--port"
) -> socket.socket:
    """Take the address, or say why it cannot be had, and by which settings there is another."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        # The latter of a name that no name server could be asked for, like one of 64 letters without a dot.
        raise AddressRefused(f"the host {host!r} is unknown: correct {host_setting}") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        # At once, or a second process could take it in between without hearing that it is taken.
        listening.listen(BACKLOG_MAX)
    except OSError as error:
        listening.close()
        raise AddressRefused(_sentence(error, host, port, host_setting, port_setting)) from error
    return listening


def url_of(listening: socket.socket) -> str:
    """Say where it is reached from here."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - what it is told to listen to
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _sentence(error: OSError, host: str, port: int, host_setting: str, port_setting: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is taken by another program: stop that, or choose another port with "
            f"{port_setting}"
        )
    if error.errno == errno.EACCES:
        return f"port {port} may not be taken by this user: choose one above 1023 with {port_setting}"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine: correct {host_setting}"
    return (
        f"port {port} of {host} cannot be taken ({error.strerror}): choose another with {host_setting} and "
        f"{port_setting}"
    )
