"""What only connecting brings up, in a sentence: TLS, a closed database, a limit of connections, a driver's own word.

`explain` knows what any statement may be answered.
"""

from __future__ import annotations

import os
import re
import ssl
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.errors import (
    BadSetting,
    DatabaseUnreachable,
    InfrastructureError,
    LoginRefused,
    ServerFull,
    TlsRefused,
)
from outbox_kernel.infrastructure.postgres.asyncpg_inside import is_without_tls
from outbox_kernel.infrastructure.postgres.explain import address_of, sqlstate_of
from outbox_kernel.infrastructure.postgres.limits import CHAIN_ERRORS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine import URL

_NOT_ACCEPTING_CONNECTIONS = "55000"
_CANNOT_CHANGE_PARAMETER = "55P02"
_TOO_MANY_CONNECTIONS = "53300"
_OWN_LIMIT = re.compile(r'too many connections for (role|database) "[^"]+"')
# OpenSSL's numbers, which have no name in Python: the certificate is of another host, or another address.
_OF_ANOTHER_HOST = (62, 64)
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_DEMANDING = ("require", "verify-ca", "verify-full")


@contextmanager
def connecting(url: URL) -> Iterator[None]:
    """Raise the sentence in place of what connecting to this URL raised, which stays its cause."""
    try:
        yield
    except Exception as error:
        refusal = _by_file(error, url) or _by_tls(error, url) or _by_state(error, url)
        if refusal is None:
            raise
        raise refusal from error


def _by_file(error: BaseException, url: URL) -> InfrastructureError | None:
    # Python's TLS does not say which file it has missed, and a missing socket is told in the same way.
    if any(isinstance(cause, FileNotFoundError) for cause in _causes(error)):
        for name in _FILES:
            path = url.query.get(name)
            if isinstance(path, str) and not Path(path).is_file():
                return BadSetting(
                    "DATABASE_URL", f"names {path!r} as {name}, which is no file here: correct the path"
                )
    return None


def _by_tls(error: BaseException, url: URL) -> InfrastructureError | None:
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _distrusted(cause, url)
        if isinstance(cause, ssl.SSLError):
            return TlsRefused(
                f"PostgreSQL at {address_of(url)} and this client cannot agree on TLS ({cause.reason}): "
                "correct sslmode and the certificates in DATABASE_URL, or the server's ssl settings"
            )
        if is_without_tls(cause):
            if _sslmode(url) not in _DEMANDING:
                return DatabaseUnreachable(
                    f"what answers at {address_of(url)} is no PostgreSQL: correct host and port in DATABASE_URL"
                )
            return TlsRefused(
                f"PostgreSQL at {address_of(url)} has no TLS, which DATABASE_URL demands: "
                "set ssl = on at the server, or take sslmode out of the URL"
            )
    return None


def _sslmode(url: URL) -> str:
    # Where TLS is not demanded, a server without it says so, and is taken as it is.
    return str(url.query.get("sslmode") or os.environ.get("PGSSLMODE") or "prefer")


def _distrusted(error: ssl.SSLCertVerificationError, url: URL) -> TlsRefused:
    remedy = (
        "write the host that the certificate names, or sslmode=verify-ca"
        if error.verify_code in _OF_ANOTHER_HOST
        else "name the file of its authority as sslrootcert"
    )
    return TlsRefused(
        f"PostgreSQL at {address_of(url)} answers with a certificate that is not to be trusted "
        f"({error.verify_message.rstrip('.')}): {remedy} in DATABASE_URL"
    )


def _by_state(error: BaseException, url: URL) -> InfrastructureError | None:
    state = sqlstate_of(error)
    if state == _NOT_ACCEPTING_CONNECTIONS and "not currently accepting connections" in str(error):
        return LoginRefused(
            f'database "{url.database}" at {address_of(url)} is closed to everybody: '
            f'open it (`ALTER DATABASE "{url.database}" ALLOW_CONNECTIONS true`), or correct DATABASE_URL'
        )
    if state == _TOO_MANY_CONNECTIONS and (limit := _OWN_LIMIT.search(str(error))):
        return ServerFull(
            f"PostgreSQL at {address_of(url)} has {limit[0]}: close some, or raise its limit "
            f"(`ALTER {limit[1].upper()} … CONNECTION LIMIT`)"
        )
    if state == _CANNOT_CHANGE_PARAMETER and '"ssl"' in str(error):
        return BadSetting("DATABASE_URL", "says ssl=…, which is no parameter of libpq: write sslmode=require")
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(CHAIN_ERRORS_MAX):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__
