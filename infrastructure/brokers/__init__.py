"""Brokers: what is published where, and one port with an adapter per broker; nothing here needs an extra."""

from outbox_kernel.infrastructure.brokers.port import (
    PUBLISHED,
    Broker,
    Message,
    Outage,
    Outcome,
    Outlet,
    Published,
    Refused,
)
from outbox_kernel.infrastructure.brokers.topology import Publisher, Queue, Topology
from outbox_kernel.infrastructure.errors import TopologyInvalid

__all__ = [
    "PUBLISHED",
    "Broker",
    "Message",
    "Outage",
    "Outcome",
    "Outlet",
    "Published",
    "Publisher",
    "Queue",
    "Refused",
    "Topology",
    "TopologyInvalid",
]
