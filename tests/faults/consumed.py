"""The handler of the other machine; imported by its consumers only."""

from __future__ import annotations

import attrs

from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.kernel import handles
from tests.faults.domain import Counted
from tests.faults.handlers import SOON, TIMEOUT_SECONDS, commit_effect
from tests.faults.town import CONSUMED, QUEUE


@handles(Counted, name=CONSUMED, queue=QUEUE, retry=SOON, timeout=TIMEOUT_SECONDS)
@attrs.frozen
class Consumed:
    """Once, in order."""

    uow: SqlAlchemyUnitOfWork

    async def handle(self, event: Counted) -> None:
        await commit_effect(self.uow, CONSUMED, event)
