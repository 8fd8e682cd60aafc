"""What this context publishes to the broker, and the queues that are read of it."""

from __future__ import annotations

from outbox_kernel import Publisher, Queue

# Without an exchange of their own: RABBITMQ_EXCHANGE names it.
PUBLISHERS = (Publisher("messaging", ("group_message.*", "scheduled_message.*")),)
QUEUES = (
    Queue("group_message_processing", ("group_message.*",)),
    Queue("scheduled_message_processing", ("scheduled_message.*",)),
    Queue("messaging_audit", ("#",), optional=True),
)
