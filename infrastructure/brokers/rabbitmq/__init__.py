"""RabbitMQ, by aio-pika: the extra `rabbitmq` (T1-T4).

`broker` is the door: outlets, inlets, and what operators ask. Each of them has a `Link`, a connection that is opened
when it is needed and dropped when it is broken: who uses it decides when to try again, so aio-pika's robust one is
not used. `outlet` publishes with confirms; `inlet` consumes on one connection and buries on another; `declaring`
makes a topology and tells conflicts; `letters` and `dead_letters` write dead letters and send them back.

`trouble` turns what the client raises into one sentence with a remedy, a `BrokerRefusal` of the port. `address` and
`options` check RABBITMQ_URL and never show its password. `decoding` lets the client read whatever strangers write.

Only `brokers.carrying` imports this package, and only this package imports aio_pika, aiormq and pamqp: import-linter
holds both. It may import the ports and the topology beside it, settings and errors. Without the extra this module and
`address` can be imported, and nothing else; `rabbitmq()` says then what to install.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.brokers.rabbitmq.address import Address
from outbox_kernel.infrastructure.errors import MissingExtra

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.brokers.operated import OperatedBroker

__all__ = ["Address", "rabbitmq"]


def rabbitmq(address: Address | str) -> OperatedBroker:
    """Return the broker at an address; nothing is connected yet."""
    require_extra()
    from outbox_kernel.infrastructure.brokers.rabbitmq.broker import RabbitBroker  # noqa: PLC0415 - needs the extra

    return RabbitBroker(Address.parse(address) if isinstance(address, str) else address)


def require_extra() -> None:
    """Raise the sentence that says how to install what this needs."""
    if find_spec("aio_pika") is None:
        raise MissingExtra("rabbitmq", "RabbitMQ's client")
