"""Where RabbitMQ is: a URL that is checked once and never shown with its password."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, unquote, unquote_to_bytes, urlencode, urlsplit

import attrs

from outbox_kernel.infrastructure.brokers.limits import NAME_BYTES_MAX
from outbox_kernel.infrastructure.brokers.rabbitmq.options import VARIABLE, options_of
from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.settings import names_host

if TYPE_CHECKING:
    from collections.abc import Mapping

PORTS = {"amqp": 5672, "amqps": 5671}
_REMEDY = "write amqp://user:password@host:5672/vhost, or amqps:// for TLS"


@attrs.frozen
class Address:
    """A URL of RabbitMQ, taken apart."""

    url: str = attrs.field(repr=False)
    host: str
    port: int
    user: str
    vhost: str
    tls: bool

    @classmethod
    def parse(cls, url: str) -> Address:
        """Check a URL; the sentence that refuses it never shows a password."""
        parts = _split(url.strip())
        port, host, vhost = _port(parts), _host(parts), _vhost(parts)
        tls = parts.scheme == "amqps"
        written = _written(parts, options_of(parts.query, tls=tls))
        return cls(written, host, port, unquote(parts.username or "guest"), vhost, tls)

    def __str__(self) -> str:
        """Say where it is, and who we are there."""
        return f"{self.host}:{self.port}"


def _split(url: str) -> SplitResult:
    _check_text(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadSetting(VARIABLE, f"is no URL of a RabbitMQ: {_REMEDY}") from None
    if parts.scheme not in PORTS:
        # Without a scheme it is a host, or a password: neither is shown.
        begins = f"begins with {parts.scheme}://, but" if "://" in url else "is no URL of a RabbitMQ:"
        raise BadSetting(VARIABLE, f"{begins} only amqp:// and amqps:// serve: {_REMEDY}")
    if parts.netloc.count("@") > 1:
        raise BadSetting(VARIABLE, "has more than one @ before the host: write %40 for those of a password")
    return parts


def _check_text(url: str) -> None:
    """Refuse what would be read as something else than was meant, or not at all."""
    try:
        unquote_to_bytes(url).decode()
    except UnicodeError:
        raise BadSetting(VARIABLE, "has bytes in it that are no UTF-8: write it in UTF-8") from None
    if not url.isprintable():
        raise BadSetting(
            VARIABLE, "has a character in it that cannot be seen: take it out, or write it with %"
        )
    for sign, written in (("#", "%23"), ("\\", "%5C")):
        if sign in url:
            raise BadSetting(VARIABLE, f"has a {sign} in it: write {written} for that of a password")


def _port(parts: SplitResult) -> int:
    try:
        port = PORTS[parts.scheme] if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        raise BadSetting(VARIABLE, "has no number for its port: write a :, /, ? or # of a password with %")
    if "@" in parts.path + parts.query:
        raise BadSetting(
            VARIABLE, "has an @ behind the host: write %40 for it, and %2F or %3F for a / or ? of a password"
        )
    return port


def _host(parts: SplitResult) -> str:
    host = parts.hostname
    if not host:
        raise BadSetting(VARIABLE, f"names no host: {_REMEDY}")
    names_host(VARIABLE, host, _REMEDY)
    return host


def _vhost(parts: SplitResult) -> str:
    path, vhost = parts.path[1:], unquote(parts.path[1:]) or "/"
    if "/" in path:
        raise BadSetting(VARIABLE, "names a vhost with a / in it: write %2F for it")
    if len(vhost.encode()) > NAME_BYTES_MAX:
        raise BadSetting(
            VARIABLE, f"names a vhost of more than {NAME_BYTES_MAX} bytes, which none has: correct it"
        )
    # The client takes the first two for the root of a path, and the third for a slash.
    if vhost in (".", "..") or "%2F" in vhost:
        raise BadSetting(
            VARIABLE, f"names a vhost {vhost!r}, which the client cannot write: use one of another name"
        )
    return vhost


def _written(parts: SplitResult, options: Mapping[str, str]) -> str:
    """Write it so that the client reads in it what we do."""
    login, at, place = parts.netloc.rpartition("@")
    login = ":".join(quote(unquote(each), safe="") for each in login.split(":", 1))
    path = f"/{quote(unquote(parts.path[1:]), safe='')}"
    return parts._replace(netloc=f"{login}{at}{place}", path=path, query=urlencode(options)).geturl()
