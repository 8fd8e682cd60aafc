"""K4: a collector of events that no tracked aggregate records."""

from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest

from outbox_kernel.errors import AlreadyRecorded, DefinitionError, UnknownEventType
from outbox_kernel.kernel import AggregateRoot, DomainEvent, EventBus, aggregate, event
from outbox_kernel.kernel.bus import in_order


@attrs.frozen
class WalletId:
    value: UUID


@event("bus.said")
class Said(DomainEvent):
    what: str


@aggregate("bus.wallet")
class Wallet(AggregateRoot):
    id: UUID


def test_what_is_emitted_is_collected_once_and_in_order() -> None:
    bus, first, second = EventBus(), Said("a"), Said("b")
    assert bus.event_count == 0
    bus.emit(first)
    bus.emit(second)
    assert bus.has_events
    assert bus.event_count == 2
    assert bus.collect() == (first, second)
    assert (bus.collect(), bus.event_count, bus.has_events) == ((), 0, False)


def test_an_emitted_event_has_no_number_and_no_aggregate() -> None:
    said = Said("a")
    EventBus().emit(said)
    assert (said.aggregate_type, said.aggregate_id, said.aggregate_version) == (None, None, None)


@pytest.mark.parametrize("aggregate_type", ["bus.wallet", Wallet])
@pytest.mark.parametrize("wrap", [UUID, lambda text: WalletId(UUID(text))])
def test_an_emitted_event_may_belong_to_an_aggregate(aggregate_type: Any, wrap: Any) -> None:
    identity, said = str(uuid4()), Said("a")
    EventBus().emit(said, aggregate_type=aggregate_type, aggregate_id=wrap(identity))
    assert (said.aggregate_type, said.aggregate_id) == ("bus.wallet", UUID(identity))
    assert said.aggregate_version is None


@pytest.mark.parametrize(
    "half",
    [
        {"aggregate_type": "wallet"},
        {"aggregate_id": uuid4()},
        {"aggregate_type": "wallet", "aggregate_id": 1.5},
        {"aggregate_type": "wallet", "aggregate_id": ""},
        {"aggregate_type": "wallet", "aggregate_id": True},
        {"aggregate_type": "wallet", "aggregate_id": "half \ud800"},
        {"aggregate_type": "wallet", "aggregate_id": "nul \0"},
        {"aggregate_type": "wallet", "aggregate_id": "x" * 501},
        {"aggregate_type": Wallet, "aggregate_id": "no uuid"},
        {"aggregate_type": "bus.wallet", "aggregate_id": 7},
    ],
)
def test_type_and_id_come_together(half: dict[str, Any]) -> None:
    bus, said = EventBus(), Said("a")
    with pytest.raises(DefinitionError, match="aggregate_type and aggregate_id together"):
        bus.emit(said, **half)
    assert not bus.has_events
    bus.emit(said)


def test_an_unusable_aggregate_is_refused() -> None:
    with pytest.raises(DefinitionError, match="aggregate name 'a b' cannot be used"):
        EventBus().emit(Said("a"), aggregate_type="a b", aggregate_id=uuid4())

    class Undecorated(AggregateRoot):
        pass

    with pytest.raises(DefinitionError, match="no registered aggregate"):
        EventBus().emit(Said("a"), aggregate_type=Undecorated, aggregate_id=uuid4())


def test_an_event_is_emitted_or_recorded_once() -> None:
    bus, said = EventBus(), Said("a")
    bus.emit(said)
    with pytest.raises(AlreadyRecorded):
        bus.emit(said)
    with pytest.raises(AlreadyRecorded):
        Wallet(uuid4()).record(said)


def test_an_unregistered_event_is_refused() -> None:
    class Forgotten(DomainEvent):
        pass

    with pytest.raises(UnknownEventType, match="put @event on it"):
        EventBus().emit(Forgotten())


def test_events_of_all_sources_have_one_order() -> None:
    bus, wallet = EventBus(), Wallet(uuid4())
    first, second, third = Said("1"), Said("2"), Said("3")
    wallet.record(first)
    bus.emit(second)
    wallet.record(third)
    assert in_order([*bus.collect(), *wallet.recorded_events]) == [first, second, third]
