"""What this context publishes to the broker, and the queue that is read of it."""

from __future__ import annotations

from outbox_kernel import Publisher, Queue

EXCHANGE = "family-hub.events"

PUBLISHERS = (Publisher("families", ("FamilyMember*",), exchange=EXCHANGE),)
QUEUES = (Queue("family_events", ("#",), exchange=EXCHANGE),)
