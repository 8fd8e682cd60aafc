"""Whether the database can be served from: it answers, and is migrated, or a sentence says why not (R14)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.errors import (
    DatabaseMissing,
    DatabaseUnreachable,
    SchemaNotMigrated,
    ServerFull,
)
from outbox_kernel.infrastructure.limits import ANSWER_SECONDS_MAX, WAIT_SECONDS
from outbox_kernel.infrastructure.outbox.migrator import pending, require_encoding
from outbox_kernel.infrastructure.postgres.explain import database_of, outbox_remedy

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.settings import Settings

_log = logging.getLogger("outbox.start")

# What a database may be for a while, and comes to be without us.
_PASSING = (DatabaseUnreachable, DatabaseMissing, ServerFull, SchemaNotMigrated)


async def database_ready(engine: AsyncEngine, settings: Settings, *, wait: bool) -> None:
    """Return when the database answers and is migrated, or raise why it is not; with `wait`, look again."""
    told = ""
    while True:
        try:
            await _check_database(engine, settings)
        except _PASSING as error:
            if not wait:
                raise
            if str(error) != told:
                told = str(error)
                _log.info("waiting for the database: %s", told, extra={"action": "database.awaited"})
            await asyncio.sleep(WAIT_SECONDS)
        else:
            return


async def _check_database(engine: AsyncEngine, settings: Settings) -> None:
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await require_encoding(engine)
            steps = await pending(engine, settings)
    except TimeoutError:
        raise DatabaseUnreachable(
            f"the database did not answer within {ANSWER_SECONDS_MAX:g} s: look at its load and its locks"
        ) from None
    if steps:
        names = ", ".join(step.revision for step in steps)
        remedy = outbox_remedy(settings.outbox_schema) if settings.outbox_schema else "run `outbox migrate`"
        raise SchemaNotMigrated(f"{database_of(engine.url)} is not migrated ({names} not run yet): {remedy}")
