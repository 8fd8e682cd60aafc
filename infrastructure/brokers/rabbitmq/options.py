"""What may stand behind the ? of RabbitMQ's URL: what the client reads, as it is meant (R12, R14)."""

from __future__ import annotations

import ssl
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from outbox_kernel.infrastructure.brokers.rabbitmq.limits import (
    HEARTBEAT_SECONDS,
    HEARTBEAT_SECONDS_MAX,
    SHOWN_CHARACTERS_MAX,
)
from outbox_kernel.infrastructure.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VARIABLE = "RABBITMQ_URL"
LOGINS = ("plain", "external")
FILES = ("cafile", "certfile", "keyfile")
TLS = (*FILES, "capath", "cadata", "no_verify_ssl")
NAMES = ("auth", "heartbeat", *TLS)


def options_of(query: str, *, tls: bool) -> dict[str, str]:
    """Check what a URL asks for, and add what it leaves out."""
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    if len(options) < len(pairs):
        raise BadSetting(VARIABLE, "names an option twice behind its ?: leave one of them out")
    for name, value in options.items():
        _check_name(name, tls=tls)
        if not value:
            raise BadSetting(VARIABLE, f"names {name} without a value: write {name}=…, or leave it out")
    options.setdefault("heartbeat", str(HEARTBEAT_SECONDS))
    _check_login(options.get("auth", LOGINS[0]))
    _check_heartbeat(options["heartbeat"])
    _check_tls(options)
    return options


def _check_name(name: str, *, tls: bool) -> None:
    if name not in NAMES:
        what = f"names {name[:SHOWN_CHARACTERS_MAX]!r} behind its ?, which is not supported here"
        raise BadSetting(VARIABLE, f"{what}: correct it to one of {', '.join(NAMES)}, or leave it out")
    if name in TLS and not tls:
        raise BadSetting(VARIABLE, f"names {name}, which is for TLS: write amqps://, or leave it out")


def _check_login(login: str) -> None:
    if login.lower() not in LOGINS:
        raise BadSetting(VARIABLE, f"names {login!r} as auth: write {' or '.join(LOGINS)}, or leave it out")


def _check_heartbeat(seconds: str) -> None:
    remedy = (
        f"write a whole number of seconds from 1 to {HEARTBEAT_SECONDS_MAX}, or leave it out for "
        f"{HEARTBEAT_SECONDS}"
    )
    number = int(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) < len(remedy) else -1
    if number == 0:
        why = "by which a connection that is gone without a word is never noticed"
        raise BadSetting(VARIABLE, f"asks for no heartbeat, {why}: {remedy}")
    if not 0 < number <= HEARTBEAT_SECONDS_MAX:
        raise BadSetting(VARIABLE, f"names {seconds[:SHOWN_CHARACTERS_MAX]!r} as heartbeat: {remedy}")


def _check_tls(options: Mapping[str, str]) -> None:
    for name in FILES:
        if name in options:
            _check_path(name, options[name], Path.is_file, "file")
    if "capath" in options:
        _check_path("capath", options["capath"], Path.is_dir, "folder")
    if "keyfile" in options and "certfile" not in options:
        raise BadSetting(VARIABLE, "names a keyfile and no certfile: write both, or leave it out")
    if options.get("no_verify_ssl", "0") not in ("0", "1"):
        # The client would take every other word, `false` as well, for a yes.
        remedy = "write 0, or 1 for a broker whose certificate nobody checks"
        raise BadSetting(VARIABLE, f"names {options['no_verify_ssl']!r} as no_verify_ssl: {remedy}")
    _check_certificates(options)


def _check_path(name: str, value: str, test: Callable[[Path], bool], kind: str) -> None:
    try:
        found = test(Path(value))
    except (OSError, ValueError):
        found = False
    if not found:
        raise BadSetting(VARIABLE, f"names {value!r} as {name}, which is no {kind} here: correct the path")


def _check_certificates(options: Mapping[str, str]) -> None:
    """Load them as the client will, which would tell of them as if it were the broker's fault."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if "cadata" in options:
            context.load_verify_locations(cadata=b64decode(options["cadata"]))
    except (ssl.SSLError, ValueError):
        remedy = "write the base64 of a certificate in DER, %2B for each + of it, or name a file as cafile"
        raise BadSetting(VARIABLE, f"has a cadata that is no certificate: {remedy}") from None
    try:
        if authority := options.get("cafile"):
            context.load_verify_locations(authority)
    except OSError as error:
        remedy = "name a file of certificates in PEM"
        raise BadSetting(VARIABLE, f"names a cafile that cannot be used ({_told(error)}): {remedy}") from None
    try:
        if own := options.get("certfile"):
            # Without an answer to the question for a passphrase, OpenSSL would ask whoever sits at the terminal.
            context.load_cert_chain(own, options.get("keyfile"), password="")
    except OSError as error:
        remedy = "name files in PEM that belong together, the key without a passphrase"
        what = f"names a certfile or keyfile that cannot be used ({_told(error)})"
        raise BadSetting(VARIABLE, f"{what}: {remedy}") from None


def _told(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not understood").replace("_", " ").lower()
    return error.strerror or type(error).__name__
