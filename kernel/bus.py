"""The event bus: events that no tracked aggregate records, collected for one unit of work (K4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.events import DomainEvent, stamp_event
from outbox_kernel.kernel.identity import KEY_KINDS, stream_key
from outbox_kernel.kernel.wire.head import moment_to_wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.kernel.aggregate import AggregateRoot


class EventBus:
    """Collects emitted events until the unit of work commits them; one per unit of work."""

    def __init__(self) -> None:
        self._emitted: list[DomainEvent] = []

    def emit(
        self,
        event: DomainEvent,
        *,
        aggregate_type: str | type[AggregateRoot] | None = None,
        aggregate_id: object = None,
        not_before: datetime | None = None,
    ) -> None:
        """Collect an event; one with an aggregate's type and id is delivered in order with its others.

        With `not_before` it is handled from that moment on, outside that order.
        """
        catalogue.event_type_of(type(event))
        moment = moment_to_wait_for(not_before, event)
        kind, uuid, key = stream_of(aggregate_type, aggregate_id)
        stamp_event(event, kind, uuid, None, aggregate_key=key, not_before=moment)
        self._keep(event)

    def collect(self) -> tuple[DomainEvent, ...]:
        """Return the collected events, in the order of emission, and clear the bus."""
        events = tuple(self._emitted)
        self._emitted.clear()
        return events

    @property
    def has_events(self) -> bool:
        """Whether an event waits here."""
        return self.event_count > 0

    @property
    def event_count(self) -> int:
        """How many events wait here."""
        return len(self._emitted)

    def _keep(self, event: DomainEvent) -> None:
        self._emitted.append(event)


def stream_of(
    aggregate_type: str | type[AggregateRoot] | None, aggregate_id: object
) -> tuple[str | None, UUID | None, str | None]:
    """Return the wire name of an aggregate's stream, its UUID and its key, given together or not at all."""
    if aggregate_type is None and aggregate_id is None:
        return None, None, None
    name = catalogue.aggregate_type_of(aggregate_type) if isinstance(aggregate_type, type) else aggregate_type
    known = catalogue.definitions.aggregate_by_name.get(name or "")
    found = stream_key(aggregate_id, known._key_rule.kinds if known else KEY_KINDS)
    if name is None or found is None:
        raise DefinitionError(
            "emit takes aggregate_type and aggregate_id together, the id a UUID, an int, a str, or a value object "
            f"of one, as the aggregate declares it, not {aggregate_type!r} and {aggregate_id!r}"
        )
    catalogue.check_wire_name("aggregate", name)
    return name, *found


def in_order(events: Sequence[DomainEvent]) -> list[DomainEvent]:
    """Return events of any source in the order in which they were recorded or emitted."""
    return sorted(events, key=lambda event: event.stamp.sequence)
