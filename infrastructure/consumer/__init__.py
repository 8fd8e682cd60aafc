"""Consuming: what arrives in a queue is stored in our own outbox, and a relay in this process does the rest (T3)."""

from outbox_kernel.infrastructure.consumer.reading import Received, Unstorable, read

__all__ = ["Received", "Unstorable", "read"]
