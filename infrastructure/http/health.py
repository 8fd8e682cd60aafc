"""Whether this process lives, and whether it can serve (O4)."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.http.limits import (
    DEADLINE_SECONDS,
    FRESH_SECONDS,
    MIGRATIONS_FRESH_SECONDS,
    RETRY_SECONDS,
    WRITTEN_FRESH_SECONDS,
)
from outbox_kernel.infrastructure.http.openapi import refusals
from outbox_kernel.infrastructure.http.problems import Problem, Refused
from outbox_kernel.infrastructure.outbox.migrator import pending
from outbox_kernel.infrastructure.outbox.statements import IS_READ_ONLY, insert_probe
from outbox_kernel.infrastructure.postgres.explain import explain
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from lagom import Container

_log = logging.getLogger("outbox.http")

LIVE, READY = "/health/live", "/health/ready"

router = APIRouter(tags=["health"], responses=refusals(503))


class Health:
    """What the answers are made of."""

    def __init__(
        self,
        container: Container,
        relay_has_ended: Callable[[], bool],
        *,
        now: Callable[[], float] = time.monotonic,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._container = container
        self._relay_has_ended = relay_has_ended
        self._now = now
        self._deadline_seconds = deadline_seconds
        self._turn = asyncio.Lock()
        self._looked_at = self._written_at = self._migrated_at = float("-inf")
        self._trouble: str | None = None
        self._logged = ""

    def require_alive(self) -> None:
        """Refuse if only a restart can mend it."""
        if self._relay_has_ended():
            raise _not("alive", "the relay in this process has ended: start the process again")

    def doubt(self) -> None:
        """Take note that a request was refused for an outage: the next look is to see whether it can write."""
        self._written_at = float("-inf")

    async def require_ready(self) -> None:
        """Refuse if requests would fail."""
        self.require_alive()
        async with self._turn:
            if self._now() - self._looked_at >= FRESH_SECONDS:
                self._trouble = await self._look()
                self._looked_at = self._now()
                if self._trouble is None:
                    self._logged = ""
                else:
                    self.doubt()
        if self._trouble is not None:
            raise _not("ready", self._trouble)

    async def _look(self) -> str | None:
        try:
            async with asyncio.timeout(self._deadline_seconds):
                return await self._ask_database()
        except TimeoutError:
            return f"the database did not answer within {self._deadline_seconds:g} s"
        except Exception as error:  # noqa: BLE001 - whatever it is, this process is not ready, and its log says why
            # A sentence where there is one; else what the server said, without the statement.
            told = str(explain(error, self._container[AsyncEngine].url) or error).partition("\n")[0]
            if told != self._logged:
                self._logged = told
                _log.warning("not ready: %s", told, extra={"action": "api.not_ready"})
            return "the database cannot be reached, or refuses; the log says why"

    async def _ask_database(self) -> str | None:
        engine, settings = self._container[AsyncEngine], self._container[Settings]
        if self._now() - self._migrated_at >= MIGRATIONS_FRESH_SECONDS:
            if await pending(engine, settings):
                return "the database is not migrated: run `outbox migrate`"
            self._migrated_at = self._now()
        async with engine.connect() as connection:
            if await connection.scalar(text(IS_READ_ONLY)):
                return "the database takes no writes: it is a standby, or was made read-only"
            if self._now() - self._written_at >= WRITTEN_FRESH_SECONDS:
                await connection.execute(text(insert_probe(settings.outbox_schema)))
                await connection.rollback()
                self._written_at = self._now()
        return None


def _not(state: str, sentence: str) -> Refused:
    return Refused(Problem(503, f"not_{state}", sentence, headers={"retry-after": str(RETRY_SECONDS)}))


def _health(request: Request) -> Health:
    health: Health = request.app.state.health
    return health


@router.get(LIVE, summary="Does this process live?")
async def live(request: Request) -> dict[str, Any]:
    """Answer 503 if only a restart can mend it."""
    _health(request).require_alive()
    return {"status": "alive"}


@router.get(READY, summary="Can it serve?")
async def ready(request: Request) -> dict[str, Any]:
    """Answer 503 if the database does not answer in time, is not migrated, or takes no writes."""
    await _health(request).require_ready()
    return {"status": "ready"}
