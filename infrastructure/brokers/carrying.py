"""The publishers of an application, each with its way out, for a relay to carry (R2, R14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.brokers.discovery import discover_topology
from outbox_kernel.infrastructure.brokers.rabbitmq import rabbitmq

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outbox_kernel.infrastructure.brokers.port import Outlet
    from outbox_kernel.infrastructure.brokers.topology import Publisher
    from outbox_kernel.infrastructure.settings import Settings


def publishers_of(settings: Settings) -> Mapping[Publisher, Outlet]:
    """Return what the contexts publish; nothing where no broker is set. Nothing is connected yet."""
    if settings.rabbitmq_url is None:
        return {}
    topology = discover_topology(settings)
    broker = rabbitmq(settings.rabbitmq_url)
    return {each: broker.outlet(each, topology.part_of(each)) for each in topology.publishers}
