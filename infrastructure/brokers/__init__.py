"""Brokers: what is published where, what is read of it, and the two ports that every broker is behind (T0-T2).

An `Outlet` sends a publisher's messages and says of each whether the broker has it, refuses it, or is away. An
`Inlet` takes what lies in a queue: received, then acknowledged, put back or buried. Each port has one suite, in
tests/conformance/publishing and tests/conformance/consuming, which every adapter passes: `memory`, and `rabbitmq`.

One format is on the wire: `messages` writes it, `received` reads it, ours or a stranger's.

The relay calls outlets, the consumer inlets; contexts declare a `Publisher` and a `Queue` in their room `topology`,
which `discovery` finds. `carrying` alone knows which brokers there are; `operated` is what the commands and the
doctor ask. One folder knows one broker and its client, which is an extra: nothing is imported of it before it is
asked for.

It may import the kernel, settings, errors and the discovery of contexts; nothing of the database, the outbox or the
relay.
"""

from outbox_kernel.infrastructure.brokers.port import (
    PUBLISHED,
    Broker,
    BrokerRefusal,
    Incoming,
    Inlet,
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
    "BrokerRefusal",
    "Incoming",
    "Inlet",
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
