"""K13: an event may wait for a moment, told where it is recorded or emitted."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox_kernel.errors import UnserializableEvent
from outbox_kernel.kernel import AggregateRoot, DomainEvent, EventBus, aggregate, event
from outbox_kernel.kernel.testing import InMemoryUnitOfWork, when

TOMORROW = datetime(2030, 1, 2, 9, tzinfo=UTC)


@event("waiting.reminded")
class Reminded(DomainEvent):
    what: str


@aggregate("waiting.reminder")
class Reminder(AggregateRoot):
    id: UUID

    @classmethod
    def set_for(cls, moment: Any) -> Reminder:
        reminder = cls(uuid4())
        reminder.record(Reminded("now"))
        reminder.record(Reminded("then"), not_before=moment)
        return reminder


def test_a_recorded_event_has_its_moment_and_its_number() -> None:
    outcome = when(lambda: Reminder.set_for(TOMORROW)).then(Reminded("now"), Reminded("then"))
    assert [(each.aggregate_version, each.stamp.not_before) for each in outcome.events] == [
        (1, None),
        (2, TOMORROW),
    ]


def test_an_emitted_event_has_its_moment_in_utc() -> None:
    bus = EventBus()
    bus.emit(Reminded("then"), not_before=TOMORROW.astimezone(timezone(timedelta(hours=5))))
    [emitted] = bus.collect()
    assert emitted.stamp.not_before == TOMORROW
    assert emitted.stamp.not_before.tzinfo is UTC


async def test_the_outbox_in_memory_has_the_moment() -> None:
    uow = InMemoryUnitOfWork()
    async with uow:
        uow.repository(Reminder).add(Reminder.set_for(TOMORROW))
        uow.emit(Reminded("to all"), not_before=TOMORROW)
        await uow.commit()
    found = [(record.aggregate_version, record.not_before) for record in uow.store.outbox]
    assert found == [(1, None), (2, TOMORROW), (None, TOMORROW)]
    assert [record.event.stamp.not_before for record in uow.store.outbox] == [None, TOMORROW, TOMORROW]


@pytest.mark.parametrize(
    ("moment", "sentence"),
    [
        (TOMORROW.replace(tzinfo=None), "'not_before' holds a naive datetime; give it a time zone"),
        (date(2030, 1, 2), "'not_before' holds date"),
        (60, "'not_before' holds int"),
        ("2030-01-02T09:00:00Z", "'not_before' holds str"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))), "'not_before' holds a moment outside"),
    ],
)
def test_what_is_no_moment_is_refused_and_nothing_is_recorded(moment: Any, sentence: str) -> None:
    reminder, bus, reminded = Reminder(uuid4()), EventBus(), Reminded("then")
    with pytest.raises(UnserializableEvent, match=sentence):
        reminder.record(reminded, not_before=moment)
    with pytest.raises(UnserializableEvent, match=sentence):
        bus.emit(reminded, not_before=moment)
    assert (reminder.version, reminder.recorded_events, bus.event_count) == (0, (), 0)
    reminder.record(reminded)
