"""K3: an aggregate may live by its events alone."""

from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest

from outbox_kernel.errors import AlreadyRecorded, DefinitionError, StaleAggregate, VersionMoved
from outbox_kernel.kernel import AggregateRoot, DomainEvent, aggregate, applies, event


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


@pytest.mark.parametrize("argument", [int, lambda method: method])
def test_applies_takes_events_alone(argument: Any) -> None:
    with pytest.raises(DefinitionError, match="needs the event class"):
        applies(argument)


def test_a_method_that_applies_does_not_record() -> None:
    """K2, K3: the inner event would be lost, and what it changed would stay."""

    @aggregate
    class Greedy(Wallet):
        @applies(UnheardOf)
        def _unheard_of(self, _: UnheardOf) -> None:
            self.record(Paid(5))

    greedy = Greedy.replay([Opened(uuid4())])
    for act in (lambda: greedy.record(UnheardOf()), lambda: Greedy.replay([Opened(uuid4()), UnheardOf()])):
        with pytest.raises(
            DefinitionError,
            match=r"Greedy records Paid in an @applies method.*record in the method that decides",
        ):
            act()
    assert (greedy.balance, greedy.version, greedy.recorded_events) == (0, 1, ())
    greedy.record(Paid(2))
    assert (greedy.balance, greedy.version) == (2, 2)


class Counting:
    heard = 0

    @applies(UnheardOf)
    def _unheard_of(self, _: UnheardOf) -> None:
        self.heard += 1


def test_a_mixin_applies_as_well() -> None:
    """K3."""

    @aggregate
    class Savings(Counting, Wallet):
        pass

    @aggregate
    class Pocket(Wallet, Counting):
        pass

    for cls in (Savings, Pocket):
        found: Any = cls.replay([Opened(uuid4()), Paid(2), UnheardOf()])
        assert (found.balance, found.heard) == (2, 1)


def test_every_base_applies_its_events() -> None:
    """K3."""

    @aggregate
    class Listener(AggregateRoot):
        id: UUID = attrs.field(kw_only=True)
        heard: int = 0

        @applies(UnheardOf)
        def _unheard_of(self, _: UnheardOf) -> None:
            self.heard += 1

    @aggregate
    class Both(Listener, Wallet):
        pass

    both = Both.replay([Opened(uuid4()), Paid(2), UnheardOf()])
    assert (both.balance, both.heard) == (2, 1)


def test_stacked_marks_add_up() -> None:
    """K3."""

    @aggregate
    class Tally(AggregateRoot):
        id: UUID
        count: int = 0

        @applies(Paid)
        @applies(Drawn)
        def _moved(self, _: Paid | Drawn) -> None:
            self.count += 1

    tally = Tally(uuid4())
    tally.record(Paid(1))
    tally.record(Drawn(1))
    assert tally.count == 2


def test_two_methods_for_one_event_are_refused() -> None:
    """K3."""
    with pytest.raises(
        DefinitionError, match="Twice applies Paid in two methods, _one and _other; make them one"
    ):

        class Twice(AggregateRoot):
            id: UUID

            @applies(Paid)
            def _one(self, _: Paid) -> None: ...

            @applies(Paid)
            def _other(self, _: Paid) -> None: ...


def test_an_override_is_called_without_a_mark_of_its_own() -> None:
    """K3."""

    @aggregate
    class Generous(Wallet):
        def _moved(self, moved: Paid | Drawn) -> None:
            super()._moved(moved)
            self.balance += 1

    assert Generous.replay([Opened(uuid4()), Paid(2)]).balance == 3


def test_an_override_with_a_mark_applies_what_it_says() -> None:
    """K3."""

    @aggregate
    class Hoard(Wallet):
        @applies(Paid)
        def _moved(self, moved: Paid) -> None:  # type: ignore[override]  # what is tested
            self.balance += 2 * moved.amount

    assert Hoard.replay([Opened(uuid4()), Paid(2)]).balance == 4
    with pytest.raises(DefinitionError, match="Hoard has no @applies method for Drawn"):
        Hoard.replay([Opened(uuid4()), Drawn(2)])


def test_a_method_that_would_not_run_is_refused() -> None:
    """K3: a coroutine or a generator that nobody awaits changes nothing."""

    async def later(self: Any, _: Any) -> None: ...

    def bit_by_bit(self: Any, _: Any) -> Any:
        yield

    async def streamed(self: Any, _: Any) -> Any:
        yield

    methods: list[Any] = [later, bit_by_bit, streamed]
    for method in methods:
        with pytest.raises(
            DefinitionError, match=r"Lazy\._moved is marked with @applies and would not run.*plain"
        ):
            type("Lazy", (AggregateRoot,), {"_moved": applies(Paid)(method)})
        with pytest.raises(DefinitionError, match=r"Lazy\._moved is marked"):
            type("Lazy", (Wallet,), {"_moved": method})


def test_a_history_without_its_beginning_says_so() -> None:
    """K3: nothing was rolled back, so nothing could be loaded again."""

    @aggregate
    class Strict(AggregateRoot):
        id: UUID
        balance: int

        @applies(Paid)
        def _paid(self, paid: Paid) -> None:
            self.balance += paid.amount

    with pytest.raises(
        VersionMoved,
        match="Strict cannot be replayed: the history does not set `balance`; it begins with the event",
    ):
        Strict.replay([Paid(1)])


def test_an_applier_that_meets_another_stale_aggregate_says_that() -> None:
    """K3."""
    other = Wallet.__new__(Wallet)

    @aggregate
    class Curious(Wallet):
        @applies(UnheardOf)
        def _unheard_of(self, _: UnheardOf) -> None:
            self.balance = other.balance

    with pytest.raises(StaleAggregate, match="Wallet is stale"):
        Curious.replay([Opened(uuid4()), UnheardOf()])


def test_a_default_that_reads_what_an_event_sets_says_so() -> None:
    """K3."""

    @aggregate
    class Coded(Wallet):
        code: str = attrs.field(default=attrs.Factory(lambda self: str(self.id), takes_self=True))

    with pytest.raises(
        DefinitionError,
        match=r"default of Coded\.code reads `id`, which its first event sets; set `code` in the",
    ):
        Coded.replay([Opened(uuid4())])
