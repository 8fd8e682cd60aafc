"""How far back charts go, as an address says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.operations.series import WINDOWS

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.dashboard.visit import Visit

_USUAL = "24h"


def window_of(visit: Visit) -> str:
    """Return the name of the window; one that there is none of is the usual one."""
    asked = visit.asked("window")
    return asked if asked in WINDOWS else _USUAL
