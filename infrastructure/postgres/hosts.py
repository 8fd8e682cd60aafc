"""Several servers in one URL, of which the one that takes writes is wanted: reading them, and trying each."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import asyncpg
from asyncpg.exceptions import TargetServerAttributeNotMatched

from outbox_kernel.infrastructure.errors import BadSetting, DatabaseUnreachable
from outbox_kernel.infrastructure.postgres.explain import address_of
from outbox_kernel.infrastructure.postgres.limits import CONNECT_TIMEOUT_SECONDS, FIRST_TIMEOUT_SECONDS
from outbox_kernel.infrastructure.postgres.outages import is_outage

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

PORT = "5432"

_SEVERAL = re.compile(
    r"(?P<scheme>[^:/]+://)(?P<user>[^/?#]*@)?(?P<hosts>[^/?#@]*,[^/?#@]*)(?P<rest>(?:[/?#].*)?)"
)
_HOST = re.compile(r"(?P<host>/.*|\[[^\]]+\]|[^:\[\]]*)(:(?P<port>[^:]*))?")


def hosts_apart(url: str) -> str:
    """Move several hosts, as libpq has them between the user and the database, to where one may name any number."""
    found = _SEVERAL.fullmatch(url)
    if found is None:
        return url
    path, _, query = found["rest"].partition("?")
    query = "&".join(filter(None, (query, f"host={found['hosts']}")))
    return f"{found['scheme']}{found['user'] or ''}{path or '/'}?{query}"


def listed(names: str | tuple[str, ...] | None) -> list[str]:
    """Part what may be named once, several times, or with commas."""
    every = names if isinstance(names, tuple) else (names or "",)
    return [name for each in every for name in each.split(",") if name]


def with_every_port(url: URL, setting: str) -> URL:
    """Write several hosts in the one form that all who read the URL understand: as many hosts as ports."""
    named = [_HOST.fullmatch(each) for each in listed(url.query.get("host"))]
    if not named[1:]:
        return url
    ports = listed(url.query.get("port")) or [str(url.port or PORT)]
    if len(ports) == 1:
        ports *= len(named)
    if len(ports) != len(named) or None in named:
        raise BadSetting(
            setting,
            "names several hosts, and not a port for each: write host1:5432,host2:5432 before the database",
        )
    found = [
        (each["host"].strip("[]"), each["port"] or port)
        for each, port in zip(named, ports, strict=True)
        if each
    ]
    query = {"host": ",".join(host for host, _ in found), "port": ",".join(port for _, port in found)}
    return url.set(host=None, port=None).update_query_dict(query)


class Hosts:
    """The servers of one engine, that which was what is wanted the last time first."""

    def __init__(self, url: URL) -> None:
        self._url = url
        query = url.query
        # As the driver looks for it.
        self._wanted = str(
            query.get("target_session_attrs") or os.environ.get("PGTARGETSESSIONATTRS") or "any"
        )
        self._places = [*zip(listed(query.get("host")), listed(query.get("port")), strict=False)]
        if not self._places[1:] or self._wanted == "prefer-standby":
            self._places = []  # the driver's own way serves

    async def connect(self, **options: Any) -> asyncpg.Connection:
        """Connect to the first that answers and is what is wanted, or raise why there is none."""
        if not self._places:
            return await asyncpg.connect(**options)
        late: list[tuple[str, str]] = []
        refusals: list[Exception] = []
        for places, seconds in (
            (tuple(self._places), FIRST_TIMEOUT_SECONDS),
            (late, CONNECT_TIMEOUT_SECONDS),
        ):
            for place in places:
                try:
                    return await self._connect_to(place, {**options, "timeout": seconds})
                except TimeoutError as error:
                    refusals.append(error)
                    if places is not late:
                        late.append(place)
                        self._move(place, to_front=False)
                except Exception as error:
                    if not _is_of_this_one(error):
                        raise
                    refusals.append(error)
        raise self._none_serves(refusals)

    async def _connect_to(self, place: tuple[str, str], options: dict[str, Any]) -> asyncpg.Connection:
        host, port = place
        connection: asyncpg.Connection = await asyncpg.connect(**{**options, "host": host, "port": int(port)})
        self._move(place, to_front=True)
        return connection

    def _move(self, place: tuple[str, str], *, to_front: bool) -> None:
        """Remember what was found out; where any will do, the first is to be first again once it is back."""
        if self._wanted != "any":
            self._places.sort(key=lambda each: (each == place) != to_front)

    def _none_serves(self, refusals: list[Exception]) -> Exception:
        if not any(isinstance(each, TargetServerAttributeNotMatched) for each in refusals):
            return refusals[-1]
        return DatabaseUnreachable(
            f"no server of {address_of(self._url)} is now what target_session_attrs={self._wanted} asks for: promote "
            "one, or correct DATABASE_URL"
        )


def _is_of_this_one(error: Exception) -> bool:
    """Whether another server may do better; a wrong password is wrong at each."""
    return isinstance(error, OSError | TargetServerAttributeNotMatched) or is_outage(error)
