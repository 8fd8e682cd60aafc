"""The brokers that the settings name, and the publishers of an application, each with its way out (R2, R14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.brokers.discovery import discover_topology
from outbox_kernel.infrastructure.brokers.rabbitmq import rabbitmq

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outbox_kernel.infrastructure.brokers.operated import OperatedBroker
    from outbox_kernel.infrastructure.brokers.port import Outlet
    from outbox_kernel.infrastructure.brokers.topology import Publisher
    from outbox_kernel.infrastructure.settings import Settings


def broker_of(settings: Settings) -> OperatedBroker:
    """Return the broker, or raise the sentence that asks for its setting. Nothing is connected yet."""
    return rabbitmq(settings.required_rabbitmq_url)


def publishers_of(settings: Settings) -> Mapping[Publisher, Outlet]:
    """Return what the contexts publish; nothing where no broker is set. Nothing is connected yet."""
    if settings.rabbitmq_url is None:
        return {}
    topology, broker = discover_topology(settings), broker_of(settings)
    return {each: broker.outlet(each, topology.part_of(each)) for each in topology.publishers}
