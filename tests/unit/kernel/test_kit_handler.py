"""K12: one handler in a unit test, run as a relay would run it."""

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest

from outbox_kernel.errors import DefinitionError, NothingDelivered, UnserializableEvent
from outbox_kernel.kernel import (
    AggregateRoot,
    Delivery,
    DomainEvent,
    StoredEvent,
    aggregate,
    current_delivery,
    event,
    handles,
)
from outbox_kernel.kernel.catalogue import isolated_definitions
from outbox_kernel.kernel.errors import SecondCommit
from outbox_kernel.kernel.testing import InMemoryUnitOfWork, run_handler


@event("handled.opened")
class Opened(DomainEvent):
    owner: str


@event("handled.welcomed")
class Welcomed(DomainEvent):
    owner: str


@aggregate("handled.account")
class Account(AggregateRoot):
    id: UUID


@attrs.define
class Witness:
    seen: list[Opened] = attrs.Factory(list)
    deliveries: list[Delivery] = attrs.Factory(list)

    async def handle(self, event: Opened) -> None:
        self.seen.append(event)
        self.deliveries.append(current_delivery())


@attrs.frozen
class Welcome:
    uow: InMemoryUnitOfWork

    async def handle(self, event: Opened) -> None:
        async with self.uow as uow:
            uow.emit(Welcomed(event.owner))
            await uow.commit()


async def test_a_handler_gets_the_event_and_can_read_its_delivery() -> None:
    witness, opened = Witness(), Opened("ada")
    await run_handler(witness, opened, position=7, attempt=2, headers={"user_id": "u-1"})
    assert witness.seen == [opened]
    assert witness.deliveries == [Delivery(opened.event_id, 7, 2, {"user_id": "u-1"})]
    with pytest.raises(NothingDelivered):
        current_delivery()


async def test_a_handler_gets_what_the_wire_gives() -> None:
    witness, opened = Witness(), Opened("ada")
    await run_handler(witness, opened)
    assert witness.seen[0] is not opened
    with pytest.raises(UnserializableEvent):
        await run_handler(witness, Opened("a\0b"))


async def test_a_recorded_event_stands_where_it_was_recorded() -> None:
    witness, account, opened = Witness(), Account(uuid4()), Opened("ada")
    account.record(opened)
    await run_handler(witness, opened)
    await run_handler(witness, opened, attempt=2)
    assert [(each.aggregate_type, each.aggregate_id, each.aggregate_version) for each in witness.seen] == [
        ("handled.account", account.id, 1)
    ] * 2


async def test_where_an_event_stands_may_be_given() -> None:
    witness, account_id = Witness(), uuid4()
    await run_handler(
        witness, Opened("ada"), aggregate_type=Account, aggregate_id=account_id, aggregate_version=4
    )
    (seen,) = witness.seen
    assert (seen.aggregate_type, seen.aggregate_id, seen.aggregate_version) == (
        "handled.account",
        account_id,
        4,
    )


async def test_what_a_handler_commits_is_caused_by_its_event() -> None:
    uow, opened = InMemoryUnitOfWork(), Opened("ada")
    await run_handler(Welcome(uow), opened, headers={"correlation_id": "origin"})
    (record,) = uow.store.outbox
    assert record.headers == {"correlation_id": "origin", "causation_id": str(opened.event_id)}


async def test_what_a_handler_raises_comes_out() -> None:
    class Failing:
        async def handle(self, event: Opened) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_handler(Failing(), Opened("ada"))


async def test_a_function_gets_its_event_and_what_it_asks_for_with_partial() -> None:
    seen: list[object] = []

    async def greet(event: Opened, greeting: str) -> None:
        seen.extend([f"{greeting} {event.owner}", current_delivery().attempt])

    await run_handler(partial(greet, greeting="hello"), Opened("ada"), attempt=2)
    assert seen == ["hello ada", 2]


async def test_a_function_that_is_not_async_runs_in_a_thread_and_can_read_its_delivery() -> None:
    seen: list[object] = []

    def greet(event: Opened) -> None:
        seen.extend([event.owner, current_delivery().position, threading.current_thread().name])

    await run_handler(greet, Opened("ada"), position=7)
    assert seen[:2] == ["ada", 7]
    assert str(seen[2]).startswith("outbox-handler ")


async def test_what_a_function_raises_in_its_thread_comes_out() -> None:
    def fail(event: Opened) -> None:
        raise ZeroDivisionError(event.owner)

    with pytest.raises(ZeroDivisionError, match="ada"):
        await run_handler(fail, Opened("ada"))


async def test_a_coroutine_that_nobody_would_await_is_told() -> None:
    async def greet(event: Opened) -> None: ...

    def wrapped(event: Opened) -> object:
        return greet(event)

    with pytest.raises(DefinitionError, match="wrapped returned a coroutine, which nobody would await"):
        await run_handler(wrapped, Opened("ada"))


async def test_a_handler_of_a_pattern_gets_the_event_as_it_is_stored() -> None:
    seen: list[StoredEvent] = []

    @handles("handled.*")
    async def audit(event: StoredEvent) -> None:
        seen.append(event)

    opened = Opened("ada")
    await run_handler(audit, opened, position=7, headers={"user_id": "u-1"})
    await run_handler(audit, StoredEvent.of(opened, headers={"user_id": "u-1"}), position=7)
    assert seen == [StoredEvent.of(opened, position=7, headers={"user_id": "u-1"})] * 2


async def test_a_handler_of_a_class_and_a_pattern_gets_the_class() -> None:
    seen: list[object] = []

    @handles(Opened, "handled.*")
    async def audit(event: Opened | StoredEvent) -> None:
        seen.append(type(event))

    await run_handler(audit, Opened("ada"))
    await run_handler(audit, Welcomed("ada"))
    assert seen == [Opened, StoredEvent]


@attrs.define
class Twice:
    """Commits two effects, and maybe swallows what that raises, or fails afterwards."""

    first: InMemoryUnitOfWork
    second: InMemoryUnitOfWork
    swallows: bool = False
    fails: bool = False

    async def handle(self, event: Opened) -> None:
        await self._welcome(self.first, event)
        try:
            await self._welcome(self.second, event)
        except SecondCommit:
            if not self.swallows:
                raise
        if self.fails:
            raise ZeroDivisionError

    async def _welcome(self, unit: InMemoryUnitOfWork, event: Opened) -> None:
        async with unit as uow:
            uow.emit(Welcomed(event.owner))
            await uow.commit()


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("one_store", [False, True])
async def test_a_second_effect_fails_the_test(swallows: bool, one_store: bool) -> None:
    """R6: as the relay makes it dead, even if the handler swallows it."""
    first = InMemoryUnitOfWork()
    second = InMemoryUnitOfWork(first.store if one_store else None)
    with pytest.raises(SecondCommit, match=r"'Twice' commits a second time.*atomic=True.*two handlers"):
        await run_handler(Twice(first, second, swallows), Opened("ada"))
    assert len(first.store.events) == 1
    assert len(second.store.events) == one_store


@pytest.fixture
def own_definitions() -> Iterator[None]:
    with isolated_definitions():
        yield


@pytest.mark.usefixtures("own_definitions")
async def test_two_effects_of_an_atomic_handler_are_one() -> None:
    """R6: there when it returns, gone when it raises."""
    uow = InMemoryUnitOfWork()
    handles(Opened, name="handled.Twice", atomic=True)(Twice)
    await run_handler(Twice(uow, uow), Opened("ada"))
    assert len(uow.store.events) == 2
    with pytest.raises(ZeroDivisionError):
        await run_handler(Twice(uow, uow, fails=True), Opened("eve"))
    assert [each.owner for each in uow.store.events if isinstance(each, Welcomed)] == ["ada", "ada"]


@pytest.mark.usefixtures("own_definitions")
async def test_what_an_atomic_run_took_back_can_be_committed_anew() -> None:
    """R6, C3: rows, numbers and ids are free again."""
    uow, account_id = InMemoryUnitOfWork(), uuid4()

    @handles(Opened, name="handled.Open", atomic=True)
    class Open:
        fails = True

        async def handle(self, event: Opened) -> None:
            async with uow:
                account = Account(account_id)
                account.record(Welcomed(event.owner))
                uow.repository(Account).add(account)
                await uow.commit()
            if self.fails:
                raise ZeroDivisionError

    opening = Open()
    with pytest.raises(ZeroDivisionError):
        await run_handler(opening, Opened("ada"))
    assert uow.store.get(Account, account_id) is None
    opening.fails = False
    await run_handler(opening, Opened("ada"))
    assert uow.store.get(Account, account_id) is not None


async def test_commits_that_store_nothing_are_free() -> None:
    """R6."""
    uow = InMemoryUnitOfWork()

    class Looking:
        async def handle(self, event: Opened) -> None:
            for _ in range(2):
                async with uow:
                    await uow.repository(Account).get(uuid4())
                    await uow.commit()
            await Welcome(uow).handle(event)

    await run_handler(Looking(), Opened("ada"))
    assert len(uow.store.events) == 1


async def test_what_is_committed_beside_a_handler_is_free() -> None:
    """K12: a test may set the stage in as many commits as it likes."""
    uow = InMemoryUnitOfWork()
    for _ in range(2):
        await run_handler(Welcome(uow), Opened("ada"))
        async with uow:
            uow.emit(Welcomed("eve"))
            await uow.commit()
    assert len(uow.store.events) == 4


async def test_a_function_that_asks_for_more_is_told_how_to_be_given_it() -> None:
    async def greet(event: Opened, uow: InMemoryUnitOfWork, *, sender: str, times: int = 1) -> None:
        seen.append(f"{sender}: {event.owner}")

    seen: list[str] = []
    with pytest.raises(
        DefinitionError,
        match=r"greet asks for 'uow', 'sender' .*: run_handler\(functools.partial\(greet, uow=…, sender=…\), event\)$",
    ):
        await run_handler(greet, Opened("ada"))  # type: ignore[arg-type]  # as a type checker says, too
    with pytest.raises(DefinitionError, match="greet asks for 'sender' beside its event"):
        await run_handler(partial(greet, uow=InMemoryUnitOfWork()), Opened("ada"))
    await run_handler(partial(greet, uow=InMemoryUnitOfWork(), sender="shop"), Opened("ada"))
    assert seen == ["shop: ada"]


# --- batches ----------------------------------------------------------------------------------------


async def test_a_handler_of_batches_gets_a_list_as_a_relay_restores_it() -> None:
    """R16."""
    seen: list[Opened] = []

    @handles(Opened, name="handled.load", batch=10)
    class Load:
        async def handle(self, events: Sequence[Opened]) -> None:
            assert isinstance(events, list)
            seen.extend(events)
            assert current_delivery().position == 6

    events = [Opened("ada"), Opened("grace")]
    await run_handler(Load(), events, position=5)
    assert seen == events
    assert not any(mine is theirs for mine, theirs in zip(seen, events, strict=True))


async def test_a_function_of_batches_may_run_in_a_thread() -> None:
    seen = list[str]()

    @handles("handled.*", name="handled.load", batch=10)
    def load(events: Sequence[StoredEvent], sink: list[str]) -> None:
        sink.extend(f"{each.position} {each.event_type}" for each in events)

    await run_handler(partial(load, sink=seen), [Opened("ada"), Welcomed("ada")])
    assert seen == ["1 handled.opened", "2 handled.welcomed"]


async def test_what_a_relay_would_not_give_is_refused() -> None:
    """K12: a test would pass with what never happens."""

    @handles(Opened, name="handled.load", batch=10)
    async def load(events: Sequence[Opened]) -> None: ...

    @handles(Opened, name="handled.note")
    async def note(event: Opened) -> None: ...

    one: Any = Opened("ada")
    with pytest.raises(DefinitionError, match=r"'handled.load' has batch=10: give it a list"):
        await run_handler(load, one)
    several: Any = [one]
    with pytest.raises(DefinitionError, match=r"'handled.note' has no batch=: give it one event"):
        await run_handler(note, several)
    with pytest.raises(ValueError, match="at least one event"):
        await run_handler(load, [])


async def test_a_second_effect_of_a_batch_is_a_second_commit() -> None:
    uow = InMemoryUnitOfWork()

    async def twice(events: Sequence[Opened]) -> None:
        for each in events:
            async with uow:
                uow.emit(Welcomed(each.owner))
                await uow.commit()

    with pytest.raises(SecondCommit):
        await run_handler(twice, [Opened("ada"), Opened("grace")])
