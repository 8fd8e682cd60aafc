"""One handler in a unit test, run as a relay would run it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

import attrs

from outbox_kernel.kernel.bus import stream_of
from outbox_kernel.kernel.calling import awaitable, further_parameters
from outbox_kernel.kernel.catalogue import event_type_of
from outbox_kernel.kernel.context import Delivery, handling
from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.events import DomainEvent, stamp_event
from outbox_kernel.kernel.handlers import registered_handlers
from outbox_kernel.kernel.serialization import deserialize_event, serialize_event
from outbox_kernel.kernel.stored import StoredEvent
from outbox_kernel.kernel.testing.trial import Trial, trying

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outbox_kernel.kernel.aggregate import AggregateRoot
    from outbox_kernel.kernel.context import Header
    from outbox_kernel.kernel.handlers import BatchHandler, EventHandler, HandlerRegistration

E = TypeVar("E", bound=DomainEvent | StoredEvent)


@overload
async def run_handler(
    handler: EventHandler[E] | Callable[[E], object],
    event: E | DomainEvent,
    *,
    position: int = 1,
    attempt: int = 1,
    headers: Mapping[str, Header] | None = None,
    aggregate_type: str | type[AggregateRoot] | None = None,
    aggregate_id: object = None,
    aggregate_version: int | None = None,
) -> None: ...


@overload
async def run_handler(
    handler: BatchHandler[E] | Callable[[Sequence[E]], object],
    event: Sequence[E | DomainEvent],
    *,
    position: int = 1,
    attempt: int = 1,
    headers: Mapping[str, Header] | None = None,
) -> None: ...


async def run_handler(
    handler: Any,
    event: Any,
    *,
    position: int = 1,
    attempt: int = 1,
    headers: Mapping[str, Header] | None = None,
    **stream: Any,
) -> None:
    """Let one handler handle one event, or with batch= several; whatever it raises comes out.

    The handler gets the event as a relay would restore it, with where it stands (taken from a recorded
    event, or from the arguments), and `current_delivery()` tells it position, attempt and headers. What
    it commits carries `causation_id` and `correlation_id`. One of a pattern gets it as a `StoredEvent`. Of a
    function give what else it asks for with `functools.partial`; one that is not `async` runs in a thread.

    One with batch= gets a list: give it one, of events that stand one behind the other from `position` on.
    Then `current_delivery()` tells of the last.

    A second effect, committed by units of work in memory, is a SecondCommit, even if the handler swallows it. One that
    is registered with atomic=True may have several, and leaves none when it raises.
    """
    in_batches = isinstance(event, Sequence)
    mine, given, deliveries = _checked(handler, in_batches=in_batches), [], []
    for number, each in enumerate(event if in_batches else [event]):
        delivery = Delivery(each.event_id, position + number, attempt, headers or {})
        found, delivery = _given(handler, each, delivery, stream)
        given.append(found)
        deliveries.append(delivery)
    if not deliveries:
        raise ValueError("a relay gives a handler at least one event")
    method, last = getattr(handler, "handle", None), deliveries[-1]
    handle = _function(handler) if method is None else method
    name = mine[0].name if mine else getattr(_written(handler), "__qualname__", type(handler).__qualname__)
    with trying(Trial(name, last.event_id, any(each.atomic for each in mine))), handling(last):
        await handle(given if in_batches else given[0])


def _checked(handler: object, *, in_batches: bool) -> list[HandlerRegistration]:
    """Return how it is registered; refuse what a relay would not give it."""
    mine = _registrations(handler)
    for each in mine:
        if in_batches != (each.batch is not None):
            said = (
                "has no batch=: give it one event"
                if in_batches
                else f"has batch={each.batch}: give it a list"
            )
            raise DefinitionError(f"handler {each.name!r} {said}, as a relay does")
    return mine


def _given(
    handler: Any, event: Any, delivery: Delivery, stream: dict[str, Any]
) -> tuple[DomainEvent | StoredEvent, Delivery]:
    """Return an event as the handler gets it, and what it may read about this attempt."""
    if isinstance(event, StoredEvent):
        stored = attrs.evolve(
            event, position=event.position or delivery.position, headers={**event.headers, **delivery.headers}
        )
        return stored, attrs.evolve(delivery, position=stored.position, headers=stored.headers)
    delivery = attrs.evolve(delivery, headers=dict(delivery.headers))
    restored = _restored(event, **stream)
    if _gets_it_stored(handler, event):
        return StoredEvent.of(restored, position=delivery.position, headers=delivery.headers), delivery
    return restored, delivery


def _function(handler: Callable[..., object]) -> Callable[..., Any]:
    """Make a function ready to be called with its event alone."""
    lacking = [each.name for each in further_parameters(handler)]
    if lacking:
        name = getattr(_written(handler), "__qualname__", repr(handler))
        given = ", ".join(f"{each}=…" for each in lacking)
        raise DefinitionError(
            f"{name} asks for {', '.join(map(repr, lacking))} beside its event, and no container is here to make that: "
            f"run_handler(functools.partial({name.rpartition('.')[2]}, {given}), event)"
        )
    return awaitable(handler)


def _written(handler: object) -> object:
    return handler.func if isinstance(handler, partial) else handler


def _registrations(handler: object) -> list[HandlerRegistration]:
    classes = (type(handler), _written(handler))
    return [each for each in registered_handlers() if each.handler in classes]


def _gets_it_stored(handler: object, event: DomainEvent) -> bool:
    """Whether a registered handler has this event by a pattern alone."""
    due = [each for each in _registrations(handler) if each.is_for(type(event))]
    return bool(due) and not any(type(event) in each.events for each in due)


def _restored(
    event: DomainEvent,
    aggregate_type: str | type[AggregateRoot] | None = None,
    aggregate_id: object = None,
    aggregate_version: int | None = None,
) -> DomainEvent:
    """Return the event as a relay would restore it, where the arguments say that it stands, or else where it does."""
    event_type = event_type_of(type(event))
    # Maybe of its newest version, which is what the handler must cope with.
    restored = deserialize_event(event_type.name, serialize_event(event), event_type.version)
    stream = stream_of(aggregate_type, aggregate_id)
    if stream == (None, None, None):
        stream = event.aggregate_type, event.aggregate_id, event.aggregate_key
    kind, uuid, key = stream
    stamp_event(restored, kind, uuid, aggregate_version or event.aggregate_version, aggregate_key=key)
    return restored
