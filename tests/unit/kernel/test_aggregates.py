"""K2: aggregates record events and number them."""

# ruff: noqa: SLF001 - what units of work know of an aggregate is tested here too

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, NewType, TypeVar
from uuid import UUID, uuid4

import attrs
import pytest

from outbox_kernel.errors import (
    AggregateHasNoId,
    AlreadyRecorded,
    DefinitionError,
    DuplicateName,
    IdentityMoved,
    StaleAggregate,
    UnknownEventType,
    VersionMoved,
)
from outbox_kernel.kernel import AggregateRoot, DomainEvent, aggregate, event
from outbox_kernel.kernel.catalogue import aggregate_type_of
from outbox_kernel.kernel.clock import now


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


def test_an_id_that_changed_after_an_event_is_refused() -> None:
    """K2: the event would be one of an aggregate that does not exist."""
    wallet = Wallet(first := uuid4())
    wallet.record(Paid(1))
    wallet.id = uuid4()
    with pytest.raises(
        IdentityMoved, match=f"recorded Paid when its id was {first}; give an aggregate its id before"
    ):
        wallet._events_between(0, 1)
    wallet.id = None
    with pytest.raises(IdentityMoved):
        wallet._events_between(0, 1)
    wallet.id = first
    assert len(wallet._events_between(0, 1)) == 1


def test_an_id_that_is_not_loaded_has_not_changed() -> None:
    wallet = Wallet(uuid4())
    wallet.record(Paid(1))
    del wallet.__dict__["id"]
    assert len(wallet._events_between(0, 1)) == 1


def test_an_error_inside_a_property_comes_out() -> None:
    """K2: it is the property's error, and not that there is no such property."""

    @aggregate
    class Purse(AggregateRoot):
        id: UUID

        @property
        def total(self) -> int:
            return self.itmes  # type: ignore[no-any-return]  # what is tested

        @property
        def doubled(self) -> int:
            return 2 * self.total

    purse = Purse(uuid4())
    for name in ("total", "doubled"):
        with pytest.raises(AttributeError, match="'Purse' object has no attribute 'itmes'"):
            getattr(purse, name)
    assert not hasattr(purse, "mro")


def test_an_event_recorded_after_a_rollback_takes_the_place_of_the_dropped_one() -> None:
    wallet, dropped, kept = Wallet(uuid4()), Paid(1), Paid(2)
    wallet.record(dropped)
    wallet.version = 0
    wallet.record(kept)
    assert wallet.recorded_events == (kept,)


def test_an_aggregate_without_decorator_says_so_when_it_is_made() -> None:
    class Forgotten(AggregateRoot):
        id: UUID

    class Derived(Wallet):
        currency: str

    made: list[Any] = [Forgotten, Derived]
    for cls, arguments in zip(made, [(uuid4(),), (uuid4(), "EUR")], strict=True):
        with pytest.raises(
            DefinitionError, match=f"{cls.__name__} is no registered aggregate; put @aggregate on it"
        ):
            cls(*arguments)


def test_an_undecorated_base_lends_its_fields_and_constructor() -> None:
    class Plain(AggregateRoot):
        pass

    @attrs.define(eq=False, slots=False)
    class Base(Plain):
        id: UUID

    @aggregate
    class Purse(Base):
        owner: str = "ada"

        def __init__(self, identity: UUID) -> None:
            super().__init__(identity)
            self.owner = "brian"

    purse = Purse(uuid4())
    purse.record(Paid(1))
    assert (purse.owner, purse.version) == ("brian", 1)

    @aggregate
    class Pocket(Plain):
        id: UUID

        def __init__(self, identity: UUID) -> None:
            super().__init__()
            self.id = identity

    assert Pocket(uuid4()).version == 0


def test_a_field_of_a_base_that_is_no_attrs_class_is_refused() -> None:
    """K2: it would be no part of the state, and one list would be every aggregate's."""

    class Tagged(AggregateRoot):
        id: UUID
        tags: list[str] = []  # noqa: RUF012 - the slip

    class Purse(Tagged):
        id: UUID

    class Nameless(Tagged):
        pass

    for cls, name in ((Purse, "tags"), (Nameless, "id")):
        with pytest.raises(
            DefinitionError,
            match=rf"derived from Tagged, whose `{name}` would not be a field of it; put @attrs.define\(eq=False",
        ):
            aggregate(cls)


Text = NewType("Text", str)


@attrs.frozen
class Weight:
    grams: float


@dataclass(frozen=True)
class Pair:
    first: int
    second: int


@dataclass(frozen=True)
class Number:
    value: int


@attrs.frozen
class Code:
    value: str


@attrs.frozen
class Wrapped:
    inner: WalletId


@attrs.frozen
class Loose:
    value: "Missing"  # type: ignore[name-defined]  # noqa: F821 - the point


T = TypeVar("T")


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        (float, "float"),
        (bytes | None, r"bytes \| None"),
        ("float", "float"),
        (bool, "bool"),
        (Weight, r".*\.Weight"),
        (Pair, r".*\.Pair"),
        (None, "NoneType"),
    ],
    ids=str,
)
def test_an_id_that_cannot_identify_is_refused_at_definition(declared: Any, shown: str) -> None:
    body = {"__annotations__": {"id": declared}, "__module__": __name__}
    with pytest.raises(
        DefinitionError,
        match=rf"Purse declares an id of type {shown}, .*make it a uuid.UUID, an int, a str, or a value object",
    ):
        aggregate(type("Purse", (AggregateRoot,), body))


@pytest.mark.parametrize(
    "declared",
    [
        UUID,
        "UUID",
        UUID | None,
        NewType("WalletKey", UUID),
        Annotated[UUID, "key"],
        WalletId,
        "WalletId | None",
        int,
        "int | None",
        str,
        Text,
        Code,
        Number,
        Wrapped,
        Loose,
        "Missing",
        object,
        Any,
        T,
        list[UUID],
        type("Key", (UUID,), {}),
    ],
    ids=str,
)
def test_an_id_that_may_identify_is_accepted(declared: Any) -> None:
    body = {"__annotations__": {"id": declared}, "__module__": __name__}
    aggregate(type("Purse", (AggregateRoot,), body))


@pytest.mark.parametrize(
    ("field", "declared"),
    [("version", int), ("version", str), ("record", str), ("recorded_events", list[str])],
)
def test_what_every_aggregate_has_is_not_declared_again(field: str, declared: Any) -> None:
    body = {"__annotations__": {"id": UUID, field: declared}, field: 5, "__module__": __name__}
    with pytest.raises(
        DefinitionError,
        match=f"Purse has a field named '{field}', which every aggregate has by itself; leave it",
    ):
        aggregate(type("Purse", (AggregateRoot,), body))


def test_a_constructor_by_hand_that_sets_no_version_is_named_with_the_remedy() -> None:
    @aggregate
    class Silent(AggregateRoot):
        id: UUID

        def __init__(self, identity: UUID) -> None:
            self.id = identity

    @aggregate
    class Recording(AggregateRoot):
        id: UUID

        def __init__(self, identity: UUID) -> None:
            self.id = identity
            self.record(Paid(1))

    @aggregate
    class Reading(AggregateRoot):
        id: UUID
        history: list[str] = attrs.Factory(list)

        def __init__(self, identity: UUID) -> None:
            self.history.append(str(identity))

    made: list[Any] = [Silent, Recording, Reading]
    for cls in made:
        with pytest.raises(
            DefinitionError,
            match=rf"{cls.__name__}.__init__ does not set `version`.*self.__attrs_init__\(…\)",
        ):
            cls(uuid4())


def test_a_constructor_by_hand_may_set_all_of_it() -> None:
    @aggregate
    class Purse(AggregateRoot):
        id: UUID
        owner: str = "ada"

        def __init__(self, identity: UUID, other: Wallet | None = None) -> None:
            """Take it from the shelf."""
            self.__attrs_init__(identity)
            if other is not None:
                other.record(Paid(1))

    @aggregate
    class Derived(Purse):
        def __init__(self) -> None:
            super().__init__(uuid4())
            self.owner = "brian"

    purse = Purse(uuid4())
    purse.record(Paid(1))
    assert (purse.owner, purse.version, Purse.__init__.__doc__) == ("ada", 1, "Take it from the shelf.")
    assert Derived().owner == "brian"
    stale = Wallet.__new__(Wallet)
    with pytest.raises(StaleAggregate, match="Wallet is stale"):
        Purse(uuid4(), stale)


def test_a_class_in_place_of_an_event_is_refused() -> None:
    wallet = Wallet(uuid4())
    with pytest.raises(
        UnknownEventType, match="a class was given where an event is expected; make an event of it"
    ):
        wallet.record(Paid)  # type: ignore[arg-type]  # what is refused
    assert wallet.version == 0
