"""The lease under which a relay works; what fences all that it writes (R3)."""

from __future__ import annotations

from uuid import UUID, uuid4

import attrs

from outbox_kernel.infrastructure.errors import InfrastructureError


@attrs.frozen
class Lease:
    """Who writes: a relay, and how many leases it has had."""

    relay: UUID = attrs.field(factory=uuid4)
    epoch: int = 1


class LeaseLost(InfrastructureError):
    """Another relay has taken over, or may have: nothing in hand is ours any more."""
