"""What was recorded, held against what was expected."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from outbox_kernel.kernel.aggregate import AggregateRoot
from outbox_kernel.kernel.events import DomainEvent
from outbox_kernel.kernel.testing.comparison import check_expected, described, differences
from outbox_kernel.kernel.testing.store import InMemoryStore
from outbox_kernel.kernel.testing.unit_of_work import InMemoryUnitOfWork

if TYPE_CHECKING:
    from outbox_kernel.kernel.testing.comparison import Expected

Source = AggregateRoot | InMemoryUnitOfWork | InMemoryStore | Iterable[DomainEvent]


def assert_recorded(source: Source, *expected: Expected) -> None:
    """Assert that exactly these events were recorded, in this order.

    `source` is an aggregate (what it recorded and nobody committed), an in-memory unit of work or its
    store (what was committed), or any events. An expected event is compared field by field, except
    `event_id` and `occurred_at` (`exactly(event)` compares these too); `ANY` stands for any value of a
    field, and an event class for any event of that class.
    """
    __tracebackhide__ = True
    found = recorded_in(source)
    check_expected(expected)
    lines = differences(expected, found)
    if lines:
        raise AssertionError("\n".join([*_headline(found), *(f"  {line}" for line in lines)]))


def recorded_in(source: Source) -> tuple[DomainEvent, ...]:
    """Return the events of any source that `assert_recorded` takes."""
    if isinstance(source, AggregateRoot):
        return source.recorded_events
    if isinstance(source, InMemoryUnitOfWork):
        return source.store.events
    if isinstance(source, InMemoryStore):
        return source.events
    events = tuple(source) if isinstance(source, Iterable) and not isinstance(source, str) else None
    if events is None or not all(isinstance(each, DomainEvent) for each in events):
        raise TypeError(
            "assert_recorded takes an aggregate, an in-memory unit of work, its store, or events, and "
            f"{reprlib.repr(source)} is none of them"
        )
    return events


def _headline(found: tuple[DomainEvent, ...]) -> list[str]:
    if not found:
        return ["no events were recorded:"]
    listed = (f"  {number}. {described(event)}" for number, event in enumerate(found, start=1))
    return ["these events were recorded:", *listed, "they differ from the expected ones:"]
