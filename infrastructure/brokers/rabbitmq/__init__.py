"""RabbitMQ, by aio-pika: the extra `rabbitmq`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.brokers.rabbitmq.address import Address
from outbox_kernel.infrastructure.errors import MissingExtra

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.brokers.port import Broker

__all__ = ["Address", "rabbitmq"]


def rabbitmq(address: Address | str) -> Broker:
    """Return the broker at an address; nothing is connected yet."""
    require_extra()
    from outbox_kernel.infrastructure.brokers.rabbitmq.outlet import RabbitBroker  # noqa: PLC0415 - needs the extra

    return RabbitBroker(Address.parse(address) if isinstance(address, str) else address)


def require_extra() -> None:
    """Raise the sentence that says how to install what this needs."""
    if find_spec("aio_pika") is None:
        raise MissingExtra("rabbitmq", "RabbitMQ's client")
