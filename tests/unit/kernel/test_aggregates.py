"""K2: aggregates record events and number them."""

# ruff: noqa: SLF001 - what units of work know of an aggregate is tested here too

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest

from kernel import (
    AggregateHasNoId,
    AggregateRoot,
    AlreadyRecorded,
    DefinitionError,
    DomainEvent,
    DuplicateName,
    StaleAggregate,
    UnknownEventType,
    VersionMoved,
    aggregate,
    event,
)
from kernel.catalogue import aggregate_type_of
from kernel.clock import now


@attrs.frozen
class WalletId:
    value: UUID


@event("aggregates.paid")
class Paid(DomainEvent):
    amount: int


@aggregate("aggregates.wallet")
class Wallet(AggregateRoot):
    id: UUID | None
    owner: str = "ada"
    history: list[str] = attrs.Factory(list)
    opened_at: datetime = attrs.Factory(now)
    label: str = attrs.Factory(lambda self: f"of {self.owner}", takes_self=True)


def test_recording_raises_the_version_and_numbers_the_event() -> None:
    wallet = Wallet(uuid4())
    assert (wallet.version, wallet.recorded_events) == (0, ())
    first, second = Paid(1), Paid(2)
    wallet.record(first)
    wallet.record(second)
    assert wallet.version == 2
    assert wallet.recorded_events == (first, second)
    assert [each.aggregate_version for each in (first, second)] == [1, 2]
    assert (first.aggregate_type, first.aggregate_id) == ("aggregates.wallet", wallet.id)


def test_where_an_event_stands_is_neither_compared_nor_shown() -> None:
    paid = Paid(1)
    twin = Paid(1, event_id=paid.event_id, occurred_at=paid.occurred_at)
    Wallet(uuid4()).record(paid)
    assert paid == twin
    assert repr(paid) == repr(twin)


def test_collecting_returns_the_events_and_clears_them() -> None:
    wallet = Wallet(uuid4())
    first, second = Paid(1), Paid(2)
    wallet.record(first)
    assert wallet.collect_events() == (first,)
    assert wallet.recorded_events == ()
    wallet.record(second)
    assert wallet.collect_events() == (second,)
    assert wallet.version == 2


def test_one_event_is_recorded_once() -> None:
    wallet, paid = Wallet(uuid4()), Paid(1)
    wallet.record(paid)
    with pytest.raises(AlreadyRecorded, match="make a new event"):
        wallet.record(paid)
    assert wallet.version == 1


def test_an_aggregate_without_an_id_records_nothing() -> None:
    wallet = Wallet(None)
    with pytest.raises(AggregateHasNoId, match=r"Wallet has the id None.*give it a UUID"):
        wallet.record(Paid(1))
    assert (wallet.version, wallet.recorded_events) == (0, ())


def test_an_id_may_be_a_value_object_of_a_uuid() -> None:
    @aggregate
    class Purse(AggregateRoot):
        id: WalletId

    uuid = uuid4()
    purse, paid = Purse(WalletId(uuid)), Paid(1)
    purse.record(paid)
    assert (paid.aggregate_type, paid.aggregate_id) == ("Purse", uuid)


@pytest.mark.parametrize("identity", ["text", 7, attrs.make_class("Pair", ["a", "b"])(uuid4(), uuid4())])
def test_an_id_of_another_kind_is_refused(identity: Any) -> None:
    with pytest.raises(AggregateHasNoId):
        Wallet(identity).record(Paid(1))


def test_an_event_without_decorator_is_refused() -> None:
    class Forgotten(DomainEvent):
        pass

    wallet = Wallet(uuid4())
    with pytest.raises(UnknownEventType, match="put @event on it"):
        wallet.record(Forgotten())
    assert wallet.version == 0


def test_an_aggregate_without_decorator_records_nothing() -> None:
    class Derived(Wallet):
        pass

    with pytest.raises(DefinitionError, match="Derived is no registered aggregate; put @aggregate on it"):
        Derived(uuid4()).record(Paid(1))


def test_the_default_name_is_the_class_name() -> None:
    @aggregate
    class Plain(AggregateRoot):
        id: UUID

    @aggregate()
    class Bracketed(AggregateRoot):
        id: UUID

    assert aggregate_type_of(Plain) == "Plain"
    assert aggregate_type_of(Bracketed) == "Bracketed"


def test_two_aggregates_with_one_name_fail_and_both_are_named() -> None:
    with pytest.raises(DuplicateName, match=r"Wallet and by .*Other"):

        @aggregate("aggregates.wallet")
        class Other(AggregateRoot):
            id: UUID


def test_an_aggregate_declares_an_id() -> None:
    with pytest.raises(DefinitionError, match="Nameless declares no id; add the field"):

        @aggregate
        class Nameless(AggregateRoot):
            name: str


def test_only_an_aggregate_root_can_be_an_aggregate() -> None:
    plain: Any = type("Plain", (), {})
    with pytest.raises(DefinitionError, match="stands on a class derived from AggregateRoot"):
        aggregate(plain)


def test_aggregates_are_equal_by_identity_and_can_be_hashed() -> None:
    identity = uuid4()
    one, other = Wallet(identity), Wallet(identity)
    assert one != other
    assert len({one, other}) == 2


def test_the_repr_shows_no_field_but_the_id() -> None:
    wallet = Wallet(uuid4(), owner="secret")
    wallet.record(Paid(1))
    assert repr(wallet) == f"<Wallet {wallet.id} version=1 recorded=1>"
    assert repr(Wallet.__new__(Wallet)) == "<Wallet None version=None recorded=0>"


def test_a_field_that_was_taken_away_says_so() -> None:
    wallet = Wallet(uuid4())
    wallet.__dict__.clear()
    with pytest.raises(StaleAggregate, match=r"Wallet is stale.*load it again"):
        _ = wallet.owner
    with pytest.raises(StaleAggregate):
        wallet.record(Paid(1))


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Wallet' object has no attribute 'colour'"):
        _ = Wallet(uuid4()).colour


def test_a_blank_instance_has_the_defaults_of_the_constructor() -> None:
    blank = Wallet._blank()
    assert (blank.owner, blank.history, blank.version) == ("ada", [], 0)
    assert blank.label == "of ada"
    assert blank.opened_at.tzinfo is UTC
    assert "id" not in vars(blank)


def test_the_events_between_two_versions_are_those_that_move_the_row() -> None:
    wallet = Wallet(uuid4())
    for amount in (1, 2, 3):
        wallet.record(Paid(amount))
    assert [each.aggregate_version for each in wallet._events_between(1, 3)] == [2, 3]
    with pytest.raises(VersionMoved, match="only record"):
        wallet._events_between(0, 4)


def test_an_event_recorded_after_a_rollback_takes_the_place_of_the_dropped_one() -> None:
    wallet, dropped, kept = Wallet(uuid4()), Paid(1), Paid(2)
    wallet.record(dropped)
    wallet.version = 0
    wallet.record(kept)
    assert wallet.recorded_events == (kept,)
