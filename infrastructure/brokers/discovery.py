"""Find what the contexts publish and which queues they read, by name: in their room `topology` (T2)."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from outbox_kernel.infrastructure.brokers.topology import Publisher, Queue, Topology
from outbox_kernel.infrastructure.discovery import context_folder, context_packages
from outbox_kernel.infrastructure.errors import BadContext

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from outbox_kernel.infrastructure.settings import Settings
    from outbox_kernel.kernel.handlers import HandlerRegistration

T = TypeVar("T")


def discover_topology(settings: Settings) -> Topology:
    """Put together what all contexts declare; a context without that room declares nothing."""
    publishers: list[Publisher] = []
    queues: list[Queue] = []
    for package in context_packages(settings):
        room = _room(package)
        if room is not None:
            publishers += _declared(package, room, "PUBLISHERS", Publisher)
            queues += _declared(package, room, "QUEUES", Queue)
    return Topology.of(publishers, queues, exchange=settings.rabbitmq_exchange)


def undeclared_queues(settings: Settings, handlers: Iterable[HandlerRegistration]) -> list[str]:
    """Say, handler by handler, whose queue no context declares; that is no error, since it may be another owner's."""
    reading = [(each.name, each.queue) for each in handlers if each.queue is not None]
    if not reading:
        return []
    topology = discover_topology(settings)
    return [
        f"handler {name!r} is for queue {queue!r}, which no context's topology declares: correct the name or declare "
        "the queue, unless another application makes it"
        for name, queue in reading
        if topology.queue(queue) is None
    ]


def _room(package: str) -> ModuleType | None:
    context_folder(package)
    try:
        return import_module(f"{package}.topology") if find_spec(f"{package}.topology") else None
    except Exception as error:
        raise BadContext(
            package,
            f"has a topology that cannot be imported ({type(error).__name__}: {error}): mend it, "
            "or leave the context out of OUTBOX_CONTEXTS",
        ) from error


def _declared(package: str, room: ModuleType, name: str, kind: type[T]) -> list[T]:
    found = getattr(room, name, ())
    if not isinstance(found, tuple) or not all(isinstance(each, kind) for each in found):
        raise BadContext(
            package,
            f"has a topology whose {name} is no tuple of {kind.__name__}s: write {name} = ({kind.__name__}(…),)",
        )
    return list(found)
