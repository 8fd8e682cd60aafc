"""Handlers at once, for events that may be lost (K6)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar
from uuid import uuid4

import pytest
from lagom import Container

from contexts.profiles.events import ProfileCreated
from outbox_kernel.errors import NoStoreToWaitIn
from outbox_kernel.infrastructure.in_process import InProcessEventDispatcher
from outbox_kernel.kernel import (
    DomainEvent,
    EventBus,
    EventDispatcher,
    StoredEvent,
    event,
    event_context,
    handles,
)
from outbox_kernel.kernel.context import current_delivery, current_headers
from outbox_kernel.kernel.testing import isolated_definitions
from tests.waiting import until
from tests.whispers import SECRET, Whispered


class Note:
    """What a container makes for a handler."""

    lines: ClassVar[list[tuple[str, DomainEvent]]] = []


async def test_all_handlers_of_all_events_run_each_made_by_the_container() -> None:
    with isolated_definitions():
        heard = Note.lines

        @event
        class Rang(DomainEvent):
            pass

        @handles(Rang, name="one")
        class One:
            def __init__(self, note: Note) -> None:
                self.note = note

            async def handle(self, event: Rang) -> None:
                self.note.lines.append(("one", event))

        @handles(Rang, name="two")
        class Two:
            async def handle(self, event: Rang) -> None:
                heard.append(("two", event))

        rang = [Rang(), Rang()]
        dispatcher: EventDispatcher = InProcessEventDispatcher(Container())
        await dispatcher.dispatch(rang)
        assert sorted(name for name, _ in heard) == ["one", "one", "two", "two"]
        assert {event for _, event in heard} == set(rang)


async def test_an_event_for_later_is_refused_before_anything_is_handled() -> None:
    """K6, K13: it has no store for it to wait in."""
    with isolated_definitions():
        heard = []

        @event("bell.rang")
        class Rang(DomainEvent):
            number: int

        @handles(Rang, name="hears")
        class Hears:
            async def handle(self, event: Rang) -> None:
                heard.append(event.number)

        def rang(number: int, not_before: datetime | None = None) -> Rang:
            bus = EventBus()
            bus.emit(Rang(number=number), not_before=not_before)
            [event] = bus.collect()
            assert isinstance(event, Rang)
            return event

        dispatcher = InProcessEventDispatcher(Container())
        tomorrow = datetime(2126, 1, 2, 3, 4, 5, tzinfo=UTC)
        with pytest.raises(
            NoStoreToWaitIn, match=r"'bell.rang' is to be handled from 2126-01-02 03:04:05 UTC on"
        ) as told:
            await dispatcher.dispatch([rang(1), rang(2, tomorrow)])
        assert (told.value.event_type, told.value.not_before) == ("bell.rang", tomorrow)
        assert heard == []
        await dispatcher.dispatch([rang(3), rang(4, datetime(2020, 1, 1, tzinfo=UTC))])
        assert sorted(heard) == [3, 4]


async def test_handlers_run_concurrently() -> None:
    with isolated_definitions():
        both = asyncio.Barrier(2)

        @event
        class Rang(DomainEvent):
            pass

        @handles(Rang, name="meets")
        class Meets:
            async def handle(self, event: Rang) -> None:
                await both.wait()

        dispatcher = InProcessEventDispatcher(Container())
        async with asyncio.timeout(5):
            await dispatcher.dispatch([Rang(), Rang()])
        assert dispatcher.handled == 2


async def test_a_failing_handler_is_logged_and_counted_and_harms_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with isolated_definitions():
        heard = []

        @event
        class Rang(DomainEvent):
            pass

        @handles(Rang, name="fails")
        class Fails:
            async def handle(self, event: Rang) -> None:
                raise ValueError("no")

        @handles(Rang, name="works")
        class Works:
            async def handle(self, event: Rang) -> None:
                heard.append(event)

        dispatcher = InProcessEventDispatcher(Container())
        with caplog.at_level(logging.ERROR):
            await dispatcher.dispatch([Rang()])
        assert (dispatcher.handled, dispatcher.failed, len(heard)) == (1, 1, 1)
        assert [record.__dict__["handler"] for record in caplog.records] == ["fails"]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3)])
async def test_whatever_a_handler_raises_harms_no_other(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """K6: not whoever dispatches, either."""
    with isolated_definitions():
        begun, heard = asyncio.Event(), []

        @event
        class Rang(DomainEvent):
            pass

        @handles(Rang, name="fails")
        class Fails:
            async def handle(self, event: Rang) -> None:
                begun.set()
                raise error

        @handles(Rang, name="works")
        class Works:
            async def handle(self, event: Rang) -> None:
                await begun.wait()
                await asyncio.sleep(0)
                heard.append(event)

        dispatcher = InProcessEventDispatcher(Container())
        await dispatcher.dispatch([Rang()])
        assert (dispatcher.handled, dispatcher.failed, len(heard)) == (1, 1, 1)


async def test_a_handler_that_cancels_itself_harms_no_other() -> None:
    """K6."""
    with isolated_definitions():
        cancelled, heard = asyncio.Event(), []

        @event
        class Rang(DomainEvent):
            pass

        @handles(Rang, name="cancels_itself")
        class CancelsItself:
            async def handle(self, event: Rang) -> None:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                cancelled.set()
                await asyncio.Event().wait()

        @handles(Rang, name="works")
        class Works:
            async def handle(self, event: Rang) -> None:
                await cancelled.wait()
                await asyncio.sleep(0)
                heard.append(event)

        dispatcher = InProcessEventDispatcher(Container())
        await dispatcher.dispatch([Rang()])
        assert (dispatcher.handled, dispatcher.failed, len(heard)) == (1, 1, 1)


async def test_who_cancels_the_dispatch_cancels_its_handlers() -> None:
    """K6: that is no failure of theirs."""
    with isolated_definitions():
        begun = asyncio.Event()

        @event
        class Rang(DomainEvent):
            pass

        @handles(Rang, name="waits")
        class Waits:
            async def handle(self, event: Rang) -> None:
                begun.set()
                await asyncio.Event().wait()

        dispatcher = InProcessEventDispatcher(Container())
        task = asyncio.create_task(dispatcher.dispatch([Rang()]))
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        assert (task.cancelled(), dispatcher.failed) == (True, 0)


async def test_an_event_that_nobody_handles_is_ignored() -> None:
    await InProcessEventDispatcher(Container()).dispatch([ProfileCreated(uuid4(), uuid4())][:0])
    with isolated_definitions():

        @event
        class Unheard(DomainEvent):
            pass

        dispatcher = InProcessEventDispatcher(Container())
        await dispatcher.dispatch([Unheard()])
        assert (dispatcher.handled, dispatcher.failed) == (0, 0)


async def test_what_a_handler_commits_is_caused_by_the_event() -> None:
    with isolated_definitions():
        seen: dict[str, object] = {}

        @event
        class Rang(DomainEvent):
            pass

        @handles(Rang, name="looks")
        class Looks:
            async def handle(self, event: Rang) -> None:
                seen.update(current_headers(), attempt=current_delivery().attempt, event=event.event_id)

        rang = Rang()
        await InProcessEventDispatcher(Container()).dispatch([rang])
        assert seen == {
            "causation_id": str(rang.event_id),
            "correlation_id": str(rang.event_id),
            "attempt": 1,
            "event": rang.event_id,
        }


async def test_one_that_hangs_ends_at_its_timeout() -> None:
    with isolated_definitions():

        @event
        class Rang(DomainEvent):
            pass

        @handles(Rang, name="hangs", timeout=0.01)
        class Hangs:
            async def handle(self, event: Rang) -> None:
                await asyncio.Event().wait()

        dispatcher = InProcessEventDispatcher(Container())
        await dispatcher.dispatch([Rang()])
        assert dispatcher.failed == 1


async def test_functions_run_with_what_they_ask_for_and_in_a_thread_where_they_are_not_async() -> None:
    """K5, K6."""
    with isolated_definitions():
        seen: list[object] = []

        @event
        class Rang(DomainEvent):
            pass

        async def answer(event: DomainEvent, note: Note) -> None:
            seen.append(type(note))

        def fail_in_a_thread(event: DomainEvent) -> None:
            seen.append(current_delivery().event_id)
            raise ValueError("x")

        handles(Rang)(answer)
        handles(Rang)(fail_in_a_thread)
        dispatcher, rang = InProcessEventDispatcher(Container()), Rang()
        await dispatcher.dispatch([rang])
        assert set(seen) == {Note, rang.event_id}
        assert (dispatcher.handled, dispatcher.failed) == (1, 1)


async def test_handlers_of_patterns_get_events_as_they_would_be_stored() -> None:
    """K5, K6."""
    with isolated_definitions():
        seen: list[StoredEvent | DomainEvent] = []

        @event("bell.rang")
        class Rang(DomainEvent):
            how: str

        @event("bell.broke")
        class Broke(DomainEvent):
            pass

        @handles("bell.*", Broke)
        async def audit(event: StoredEvent | DomainEvent) -> None:
            seen.append(event)

        rang, broke = Rang("loud"), Broke()
        with event_context(user_id="u-1"):
            await InProcessEventDispatcher(Container()).dispatch([rang, broke])
        [stored] = [each for each in seen if isinstance(each, StoredEvent)]
        assert stored == StoredEvent.of(rang, headers={"user_id": "u-1"})
        assert [each for each in seen if each is not stored] == [broke]


async def test_handlers_of_batches_get_each_event_as_a_batch_of_one() -> None:
    """K6, R16: here each handler runs for each event by itself."""
    with isolated_definitions():
        seen: list[Sequence[DomainEvent]] = []

        @event("bell.rang")
        class Rang(DomainEvent):
            how: str

        @handles(Rang, batch=10)
        async def count(events: Sequence[Rang]) -> None:
            seen.append(events)

        rings = [Rang("loud"), Rang("low")]
        await InProcessEventDispatcher(Container()).dispatch(rings)
        assert sorted(seen, key=lambda each: each[0].occurred_at) == [[each] for each in rings]


async def test_what_a_handler_fails_with_is_logged_without_what_its_event_seals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """O6, K11: it is not stored here, and logs outlive keys."""
    go = threading.Event()
    with isolated_definitions():

        @handles(Whispered, name="fails")
        async def fail(told: Whispered) -> None:
            raise ValueError(f"no such place: {told.secret}")

        @handles(Whispered, name="stays", timeout=0.2)
        def stay(told: Whispered) -> None:
            go.wait(30)
            raise ValueError(f"no such place: {told.secret}")

        await InProcessEventDispatcher(Container()).dispatch([Whispered("one", uuid4())])

        async def has_ended() -> bool:
            return "ended after its run had been given up" in caplog.text

        go.set()
        await until(has_ended)
    assert caplog.text.count("no such place: ***") >= 2
    assert SECRET not in caplog.text
