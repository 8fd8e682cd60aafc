"""The lease under which a relay works; what fences all that it writes (R3)."""

from __future__ import annotations

from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.relay.store import Lease

__all__ = ["Lease", "LeaseLost"]


class LeaseLost(InfrastructureError):
    """Another relay has taken over, or may have: nothing in hand is ours any more."""
