"""Brokers: what is published where, and one port with an adapter per broker; nothing here needs an extra."""

from infrastructure.brokers.port import (
    PUBLISHED,
    Broker,
    Message,
    Outage,
    Outcome,
    Outlet,
    Published,
    Refused,
)
from infrastructure.brokers.topology import Publisher, Queue, Topology, TopologyInvalid

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
