"""Forgetting: the key of a subject is destroyed, and what it sealed is gone wherever it is stored (O6)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import attrs

from outbox_kernel.infrastructure.operations.selection import NothingFound
from outbox_kernel.infrastructure.outbox.sql.subject_keys import FORGET, FORGOTTEN_SINCE

if TYPE_CHECKING:
    from datetime import datetime

    from outbox_kernel.infrastructure.operations.desk import Desk


@attrs.frozen
class Forgotten:
    """A subject whose key is destroyed."""

    subject: str
    forgotten_at: datetime
    since: datetime | None
    """Since when it had the key that was destroyed now; None: it had none, and was forgotten before."""


async def forget(desk: Desk, subject: str) -> Forgotten:
    """Destroy the key of a subject; once more is no harm."""
    found = await desk.in_turn(lambda: _forget(desk, subject))
    # Relays have what they have read in memory, and look at its keys when they hear this.
    await desk.wake_relays()
    return found


async def _forget(desk: Desk, subject: str) -> Forgotten:
    for written in _ways_to_write(subject):
        for row in await desk.run(FORGET, subject=written):
            return Forgotten(written, row["forgotten_at"], row["created_at"])
    for written in _ways_to_write(subject):
        before = (await desk.run_one(FORGOTTEN_SINCE, subject=written))["forgotten_at"]
        if before is not None:
            return Forgotten(written, before, None)
    raise NothingFound(
        f"nothing was ever sealed for subject {subject!r}: write it as the events do, in the field that their "
        "sensitive(subject=…) names"
    )


def _ways_to_write(subject: str) -> list[str]:
    """Return a subject as it is typed, and as events have it if it is a UUID in another writing."""
    try:
        return [*dict.fromkeys((subject, str(UUID(subject))))]
    except ValueError:
        return [subject]
