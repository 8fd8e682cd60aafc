"""One handler in a unit test, run as a relay would run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from outbox_kernel.kernel.bus import stream_of
from outbox_kernel.kernel.catalogue import event_type_of
from outbox_kernel.kernel.context import Delivery, handling
from outbox_kernel.kernel.events import DomainEvent, stamp_event
from outbox_kernel.kernel.serialization import deserialize_event, serialize_event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outbox_kernel.kernel.aggregate import AggregateRoot
    from outbox_kernel.kernel.context import Header
    from outbox_kernel.kernel.handlers import EventHandler

E = TypeVar("E", bound=DomainEvent)


async def run_handler(
    handler: EventHandler[E],
    event: E,
    *,
    position: int = 1,
    attempt: int = 1,
    headers: Mapping[str, Header] | None = None,
    aggregate_type: str | type[AggregateRoot] | None = None,
    aggregate_id: object = None,
    aggregate_version: int | None = None,
) -> None:
    """Let one handler handle one event; whatever it raises comes out.

    The handler gets the event as a relay would restore it, with where it stands (taken from a recorded
    event, or from the arguments), and `current_delivery()` tells it position, attempt and headers. What
    it commits carries `causation_id` and `correlation_id`.
    """
    delivery = Delivery(event.event_id, position, attempt, dict(headers or {}))
    stream = stream_of(aggregate_type, aggregate_id)
    if stream == (None, None, None):
        stream = event.aggregate_type, event.aggregate_id, event.aggregate_key
    kind, uuid, key = stream
    received = _received(event)
    stamp_event(received, kind, uuid, aggregate_version or event.aggregate_version, aggregate_key=key)
    with handling(delivery):
        await handler.handle(received)


def _received(event: E) -> E:
    event_type = event_type_of(type(event))
    restored = deserialize_event(event_type.name, serialize_event(event), event_type.version)
    return cast("E", restored)  # or of its newest version, which is what the handler must cope with
