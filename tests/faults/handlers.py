"""The handlers of the rig: each leaves one effect per event, in its own way; imported by relays only."""

from __future__ import annotations

import os
import random

import attrs
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.kernel import Reject, RetrySchedule, current_delivery, handles
from tests.faults.domain import Counted
from tests.faults.tables import (
    CONTINUES,
    EFFECT,
    FLAKY,
    PLAIN,
    RENAMED_TRANSACTIONAL,
    TRANSACTIONAL,
    UNORDERED,
    rejects,
)

# Short, and without an end: whatever a fault does to a handler, it must not be what kills its events.
SOON = RetrySchedule((0.05, 0.1, 0.2, 0.5, 1.0))
TIMEOUT_SECONDS = float(os.environ.get("FAULTS_TIMEOUT", "10"))
FAILURES_MAX = 3
SHARE_THAT_FAILS = 0.1


async def leave_effect(connection: AsyncConnection, handler: str, event: Counted) -> None:
    """Note that a handler has done its work for an event."""
    arguments = (handler, event.aggregate_id, event.event_id, event.aggregate_version, os.getpid())
    await connection.exec_driver_sql(EFFECT, arguments)


async def commit_effect(uow: SqlAlchemyUnitOfWork, handler: str, event: Counted) -> None:
    """Leave the effect through a unit of work, whose commit writes the receipt."""
    async with uow:
        await leave_effect(await uow.session.connection(), handler, event)
        await uow.commit()


_renamed = os.environ.get("FAULTS_RENAMED") == "1"


@handles(
    Counted,
    name=RENAMED_TRANSACTIONAL if _renamed else TRANSACTIONAL.handler,
    renamed_from=TRANSACTIONAL.handler if _renamed else None,
    retry=SOON,
    timeout=TIMEOUT_SECONDS,
)
@attrs.frozen
class Transactional:
    """Once, in order."""

    uow: SqlAlchemyUnitOfWork

    async def handle(self, event: Counted) -> None:
        await commit_effect(self.uow, TRANSACTIONAL.handler, event)


@handles(Counted, name=PLAIN.handler, retry=SOON, timeout=TIMEOUT_SECONDS)
@attrs.frozen
class Plain:
    """At least once, on a connection that no receipt guards."""

    engine: AsyncEngine

    async def handle(self, event: Counted) -> None:
        async with self.engine.begin() as connection:
            await leave_effect(connection, PLAIN.handler, event)


@handles(Counted, name=UNORDERED.handler, ordered=False, retry=SOON, timeout=TIMEOUT_SECONDS)
@attrs.frozen
class Unordered:
    """Once, in any order."""

    uow: SqlAlchemyUnitOfWork

    async def handle(self, event: Counted) -> None:
        await commit_effect(self.uow, UNORDERED.handler, event)


@handles(Counted, name=CONTINUES.handler, on_dead="continue", retry=SOON, timeout=TIMEOUT_SECONDS)
@attrs.frozen
class Continues:
    """Rejects one event in fifty, and lets later ones pass it."""

    uow: SqlAlchemyUnitOfWork

    async def handle(self, event: Counted) -> None:
        if rejects(event.event_id.hex):
            raise Reject("one in fifty is refused")
        await commit_effect(self.uow, CONTINUES.handler, event)


@handles(Counted, name=FLAKY.handler, retry=SOON, timeout=TIMEOUT_SECONDS)
@attrs.frozen
class Flaky:
    """Fails at random, before its effect or between effect and commit, and recovers."""

    uow: SqlAlchemyUnitOfWork

    async def handle(self, event: Counted) -> None:
        attempt = current_delivery().attempt
        luck = random.Random(f"{os.environ.get('FAULTS_SEED')}:{event.event_id}:{attempt}").random()
        unlucky = attempt <= FAILURES_MAX and luck < SHARE_THAT_FAILS
        if unlucky and luck < SHARE_THAT_FAILS / 2:
            raise RuntimeError("bad luck before the effect")
        async with self.uow as uow:
            await leave_effect(await uow.session.connection(), FLAKY.handler, event)
            if unlucky:
                raise RuntimeError("bad luck before the commit")
            await uow.commit()
