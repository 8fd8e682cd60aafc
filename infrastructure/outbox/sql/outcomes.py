"""Outcomes: what a run came to (R2, R6, R7)."""

from __future__ import annotations

# Lock the events of deliveries that are about to be settled: of two relays that settle the last two
# deliveries of one event, the second must see what the first did. 1 positions.
LOCK_EVENTS = """
SELECT FROM {outbox_events} WHERE position = ANY ($1) ORDER BY position FOR UPDATE
"""
