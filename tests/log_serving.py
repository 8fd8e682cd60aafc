"""What a test sees of a relay that reads the log."""
# ruff: noqa: SLF001 - nobody else can say

from __future__ import annotations

from outbox_kernel.infrastructure.log_relay.relay import OutboxRelay


async def has_looked_everywhere(relay: OutboxRelay) -> bool:
    """Whether no look at deliveries is under way, which would find out that the lease is lost."""
    shift = relay._shift
    if shift is None or shift.deliveries.turns.scanning:
        return False
    return not shift.lines.write._turn.locked()


async def begins_nothing_more(relay: OutboxRelay) -> bool:
    """Whether it only lets end what runs."""
    shift = relay._shift
    return shift is not None and all(each.workers.is_stopping for each in shift.subscribers.values())
