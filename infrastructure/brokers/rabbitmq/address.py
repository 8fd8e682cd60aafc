"""Where RabbitMQ is: a URL that is checked once and never shown with its password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

import attrs

from infrastructure.errors import BadSetting
from infrastructure.settings import names_host

VARIABLE = "RABBITMQ_URL"
PORTS = {"amqp": 5672, "amqps": 5671}
LOGINS = ("plain", "external")
# A peer that is gone without a word is noticed after three of these.
HEARTBEAT_SECONDS = 10
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
        parts = _split(url)
        if parts.netloc.count("@") > 1:
            raise BadSetting(
                VARIABLE, "has more than one @ before the host: write %40 for those of a password"
            )
        try:
            port = parts.port or PORTS[parts.scheme]
        except ValueError:
            raise BadSetting(
                VARIABLE, "has no number for its port: a password with : / ? or # in it is written with %"
            ) from None
        if not parts.hostname:
            raise BadSetting(VARIABLE, f"names no host: {_REMEDY}")
        names_host(VARIABLE, parts.hostname, _REMEDY)
        if "/" in parts.path[1:]:
            raise BadSetting(VARIABLE, "names a vhost with a / in it: write %2F for it")
        _check_options(dict(parse_qsl(parts.query)))
        return cls(
            _with_heartbeat(parts),
            parts.hostname,
            port,
            unquote(parts.username or "guest"),
            unquote(parts.path[1:]) or "/",
            parts.scheme == "amqps",
        )

    def __str__(self) -> str:
        """Say where it is, and who we are there."""
        return f"{self.host}:{self.port}"


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        raise BadSetting(VARIABLE, f"is no URL of a RabbitMQ: {_REMEDY}") from None
    if parts.scheme not in PORTS:
        # Without a scheme it is a host, or a password: neither is shown.
        begins = f"begins with {parts.scheme}://, but" if "://" in url else "is no URL of a RabbitMQ:"
        raise BadSetting(VARIABLE, f"{begins} only amqp:// and amqps:// serve: {_REMEDY}")
    return parts


def _check_options(options: dict[str, str]) -> None:
    """Refuse what the client would take for a broker that cannot be reached."""
    authority, login = options.get("cafile"), options.get("auth", LOGINS[0])
    if authority is not None and not Path(authority).is_file():
        raise BadSetting(VARIABLE, f"names {authority!r} as cafile, which is no file here: correct the path")
    if login.lower() not in LOGINS:
        raise BadSetting(VARIABLE, f"names {login!r} as auth: write {' or '.join(LOGINS)}, or leave it out")


def _with_heartbeat(parts: SplitResult) -> str:
    query = dict(parse_qsl(parts.query))
    query.setdefault("heartbeat", str(HEARTBEAT_SECONDS))
    return parts._replace(query=urlencode(query)).geturl()
