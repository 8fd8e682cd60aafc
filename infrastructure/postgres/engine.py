"""Make the engine from a URL as people write it: libpq's forms, by TCP or unix socket, on asyncpg alone.

asyncpg reads the URL itself, so that what libpq's form may say (sslmode, certificates, a socket's folder)
means here what it means there; SQLAlchemy keeps the parts it shows and compares.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import uuid4

from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.ext.asyncio import create_async_engine

from outbox_kernel.infrastructure.errors import BadSetting, InfrastructureError
from outbox_kernel.infrastructure.postgres.asyncpg_inside import hush_upgrades
from outbox_kernel.infrastructure.postgres.connecting import connecting
from outbox_kernel.infrastructure.postgres.explain import explained
from outbox_kernel.infrastructure.postgres.hosts import Hosts, hosts_apart, listed, with_every_port
from outbox_kernel.infrastructure.postgres.limits import (
    CONNECT_TIMEOUT_SECONDS,
    POOL_RECYCLE_SECONDS,
    PORT_MAX,
)
from outbox_kernel.infrastructure.settings import names_host

if TYPE_CHECKING:
    from collections.abc import Mapping

    import asyncpg
    from sqlalchemy.ext.asyncio import AsyncEngine

APPLICATION_NAME = "outbox-kernel"

_DRIVER_NAMES = ("postgres", "postgresql", "postgresql+asyncpg")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_REMEDY = "write postgresql://user:password@host:5432/database, special characters as %-escapes"

hush_upgrades()


def create_engine(
    url: str | URL,
    *,
    setting: str = "DATABASE_URL",
    pgbouncer: bool = False,
    session_defaults: Mapping[str, str] | None = None,
    **options: Any,
) -> AsyncEngine:
    """Make an engine; `pgbouncer` (or `?pgbouncer=true`) suits a pooler in transaction mode.

    `setting` is what its errors say is to be corrected.
    `session_defaults` are settings of the server for each connection; the URL's own win, and a pooler takes none.
    `options` go to SQLAlchemy's `create_async_engine`. Errors and logs show no parameters, since a payload may
    hold secrets, unless `hide_parameters=False` says so.
    """
    parsed = parse_url(url, setting)
    pgbouncer = pgbouncer or _says_yes(parsed.query.get("pgbouncer"))
    parsed = parsed.difference_update_query(["pgbouncer"])
    defaults = {} if pgbouncer else dict(session_defaults or {})
    arguments = {
        **_connect_arguments(parsed, defaults, setting, pgbouncer=pgbouncer),
        **options.pop("connect_args", {}),
    }
    # The query is asyncpg's to read, from the DSN; only a socket's folder, or several hosts, are the address as well.
    several = len(listed(parsed.query.get("host"))) > 1
    address = {
        key: value for key, value in parsed.query.items() if key == "host" or (several and key == "port")
    }
    engine = create_async_engine(
        parsed.set(drivername="postgresql+asyncpg", query=address),
        connect_args=arguments,
        **{"pool_recycle": POOL_RECYCLE_SECONDS, "hide_parameters": True, **options},
    )
    # Not `pool_pre_ping`: it costs each transaction a round trip, to learn what asyncpg mostly knows already.
    event.listen(engine.sync_engine, "checkout", _refuse_closed)
    return engine


def parse_url(url: str | URL, setting: str = "DATABASE_URL") -> URL:
    """Check that the URL is one of ours; the sentence that refuses it names the setting, and never a password."""
    scheme = _SCHEME.match(str(url))
    name = url.drivername if isinstance(url, URL) else scheme[1] if scheme else None
    if name is not None and name not in _DRIVER_NAMES:
        raise BadSetting(setting, f"begins with {name}://, but only PostgreSQL by asyncpg serves: {_REMEDY}")
    if str(url).partition("?")[0].count("@") > 1:
        # Cut at the wrong @, the rest of the password would pass for the host and be shown as one.
        raise BadSetting(
            setting, "has more than one @, so a password ends nowhere: write %40 for those within"
        )
    try:
        parsed = make_url(hosts_apart(url) if isinstance(url, str) else url)
    except (ArgumentError, ValueError):
        # Without its cause: SQLAlchemy's message quotes the text, password and all.
        raise BadSetting(setting, f"is no URL of a PostgreSQL database: {_REMEDY}") from None
    parsed = with_every_port(parsed, setting)
    _check_address(parsed, setting)
    return parsed


def _check_address(url: URL, setting: str) -> None:
    """Refuse what no connection can be made to, which the driver would tell in a traceback or take for the default."""
    for host in [*listed(unquote(url.host or "")), *listed(url.query.get("host"))]:
        if not host.startswith("/"):  # a socket's folder
            names_host(setting, host.partition(":")[0], _REMEDY)
    ports = [*listed(url.query.get("port")), *([] if url.port is None else [str(url.port)])]
    for port in ports:
        if not (port.isdecimal() and 1 <= int(port) <= PORT_MAX):
            raise BadSetting(setting, f"names a port {port}, which is none of 1 to {PORT_MAX}: {_REMEDY}")


def _connect_arguments(
    url: URL, defaults: Mapping[str, str], setting: str, *, pgbouncer: bool
) -> dict[str, Any]:
    defaults = {"application_name": APPLICATION_NAME, **defaults}
    arguments: dict[str, Any] = {
        "dsn": url.set(drivername="postgresql").render_as_string(hide_password=False),
        "timeout": CONNECT_TIMEOUT_SECONDS,
        # Not a listener of `do_connect`: any listener of a dialect slows each of its statements.
        "async_creator_fn": partial(_connect_or_explain, setting, Hosts(url)),
        "server_settings": {name: value for name, value in defaults.items() if name not in url.query},
    }
    if pgbouncer:
        # In transaction mode the next statement may meet another server connection: nothing prepared may be
        # kept, and what is prepared for one statement must not take a name that another client took there.
        arguments |= {
            "statement_cache_size": 0,
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": lambda: f"__outbox_{uuid4().hex}__",
        }
    return arguments


async def _connect_or_explain(setting: str, hosts: Hosts, **options: Any) -> asyncpg.Connection:
    """Connect, and say in one sentence why that is refused: here nothing else can have raised an OSError."""
    try:
        with explained(options["dsn"]), connecting(make_url(options["dsn"])):
            return await hosts.connect(**options)
    except InfrastructureError as refusal:
        # The sentences name the setting that nearly all connections are of.
        refusal.args = (str(refusal).replace("DATABASE_URL", setting),)
        raise


def _refuse_closed(dbapi_connection: Any, _record: object, _proxy: object) -> None:
    """Make the pool connect anew where the server has closed a pooled connection, as every restart does."""
    if dbapi_connection.driver_connection.is_closed():
        raise DisconnectionError("the server closed this connection while it was idle")


def _says_yes(value: object) -> bool:
    return str(value).lower() in {"1", "true", "yes", "on"}
