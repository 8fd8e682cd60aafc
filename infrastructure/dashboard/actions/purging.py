"""Purge: what was delivered long ago goes, as far as there is time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.dashboard.actions.doing import done
from outbox_kernel.infrastructure.dashboard.pages.confirming import days_of
from outbox_kernel.infrastructure.operations import purging
from outbox_kernel.infrastructure.operations.limits import WORK_SECONDS_MAX
from outbox_kernel.infrastructure.plain_text import count

if TYPE_CHECKING:
    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.visit import Form, Visit
    from outbox_kernel.infrastructure.operations.purging import Purged


async def purge(visit: Visit, form: Form) -> Response:
    """Delete delivered events that are older than so many days."""
    days, until = days_of(form.required("days")), time.monotonic() + WORK_SECONDS_MAX

    def told(purged: Purged) -> tuple[str, dict[str, object]]:
        rest = "; there was no time for all: do it once more for the rest" if is_late() else ""
        numbers: dict[str, object] = {
            "events": purged.events,
            "deliveries": purged.deliveries,
            "receipts": purged.receipts,
        }
        sentence = (
            f"{count(purged.events, 'event')} older than {days:g} days purged, with "
            f"{count(purged.deliveries, 'delivery', 'deliveries')} and {count(purged.receipts, 'receipt')}{rest}"
        )
        return sentence, numbers

    def is_late() -> bool:
        return time.monotonic() >= until

    return await done(
        visit,
        "purge",
        {"older_than_days": days},
        lambda desk: purging.purge(desk, days, is_late=is_late),
        told,
        ("/relays", {}),
    )
