"""What tests/posting.py has, for a relay that reads the log by cursors."""

from __future__ import annotations

from typing import Any

from outbox_kernel.infrastructure.brokers import Outlet
from outbox_kernel.infrastructure.log_relay.relay import OutboxRelay
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.log_relaying import LogStage
from tests.posting import BANK, COPY

PLACES = """
SELECT reader, number, position FROM outbox_progress ORDER BY reader, number
"""


def relay(
    stage: LogStage,
    outlet: Outlet,
    *handlers: HandlerRegistration,
    at: float | None = 0,
    copy: Outlet | None = None,
    **settings: Any,
) -> OutboxRelay:
    """A relay that carries the publisher, and the other one if it is given an outlet too."""
    publishers = {BANK: outlet} if copy is None else {BANK: outlet, COPY: copy}
    return stage.relay(*handlers, at=at, publishers=publishers, **settings)


async def written(stage: LogStage) -> list[Any]:
    """Every place that was ever written down."""
    return [tuple(row) for row in await stage.witness.fetch(PLACES)]
