"""K3: an aggregate may live by its events alone."""

from uuid import UUID, uuid4

import pytest

from kernel import (
    AggregateRoot,
    AlreadyRecorded,
    DefinitionError,
    DomainEvent,
    VersionMoved,
    aggregate,
    applies,
    event,
)


@event("sourced.opened")
class Opened(DomainEvent):
    wallet_id: UUID


@event("sourced.paid")
class Paid(DomainEvent):
    amount: int


@event("sourced.drawn")
class Drawn(DomainEvent):
    amount: int


@event("sourced.unheard_of")
class UnheardOf(DomainEvent):
    pass


@aggregate("sourced.wallet")
class Wallet(AggregateRoot):
    id: UUID
    balance: int = 0

    @classmethod
    def open(cls, wallet_id: UUID) -> "Wallet":
        wallet = cls._blank()
        wallet.record(Opened(wallet_id))
        return wallet

    @applies(Opened)
    def _opened(self, opened: Opened) -> None:
        self.id = opened.wallet_id

    @applies(Paid, Drawn)
    def _moved(self, moved: Paid | Drawn) -> None:
        self.balance += moved.amount if isinstance(moved, Paid) else -moved.amount


def test_recording_applies_the_event() -> None:
    wallet = Wallet.open(uuid4())
    wallet.record(Paid(5))
    wallet.record(Drawn(2))
    assert (wallet.balance, wallet.version) == (3, 3)


def test_the_first_event_may_give_the_id() -> None:
    wallet_id = uuid4()
    wallet = Wallet.open(wallet_id)
    assert wallet.recorded_events[0].aggregate_id == wallet_id


def test_replaying_rebuilds_the_same_state_with_nothing_to_commit() -> None:
    wallet = Wallet.open(uuid4())
    wallet.record(Paid(5))
    twin = Wallet.replay(wallet.recorded_events)
    assert (twin.id, twin.balance, twin.version) == (wallet.id, 5, 2)
    assert twin.recorded_events == ()
    twin.record(Paid(1))
    assert twin.version == 3
    assert len(twin.recorded_events) == 1


def test_events_that_stand_nowhere_can_be_replayed() -> None:
    assert Wallet.replay([Opened(uuid4()), Paid(2)]).balance == 2


def test_a_gap_in_the_history_is_refused() -> None:
    wallet = Wallet.open(uuid4())
    wallet.record(Paid(5))
    with pytest.raises(VersionMoved, match="event 1 in the list is number 2"):
        Wallet.replay(wallet.recorded_events[1:])


def test_an_event_without_an_applier_is_refused() -> None:
    wallet = Wallet.open(uuid4())
    with pytest.raises(DefinitionError, match="Wallet has no @applies method for UnheardOf"):
        wallet.record(UnheardOf())
    with pytest.raises(DefinitionError, match="no @applies method"):
        Wallet.replay([Opened(uuid4()), UnheardOf()])
    assert wallet.version == 1


def test_an_aggregate_without_appliers_cannot_be_replayed() -> None:
    @aggregate
    class Plain(AggregateRoot):
        id: UUID

    with pytest.raises(DefinitionError, match="Plain has no @applies method for Paid"):
        Plain.replay([Paid(1)])


def test_an_event_that_is_refused_has_not_been_applied() -> None:
    wallet, paid = Wallet.open(uuid4()), Paid(5)
    wallet.record(paid)
    with pytest.raises(AlreadyRecorded):
        wallet.record(paid)
    assert (wallet.balance, wallet.version) == (5, 2)


def test_appliers_are_inherited() -> None:
    @aggregate
    class Savings(Wallet):
        interest: int = 0

        @applies(UnheardOf)
        def _unheard_of(self, _: UnheardOf) -> None:
            self.interest += 1

    savings = Savings.replay([Opened(uuid4()), Paid(2), UnheardOf()])
    assert (savings.balance, savings.interest) == (2, 1)


def test_applies_needs_an_event() -> None:
    with pytest.raises(DefinitionError, match="needs the event class"):
        applies()
