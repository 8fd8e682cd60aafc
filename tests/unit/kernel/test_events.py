"""K1: events are frozen facts with an id, a moment and a stable name."""

import os
from datetime import UTC, datetime, timedelta, timezone
from threading import Thread
from typing import Any, ClassVar, Protocol
from uuid import UUID, uuid4

import attrs
import pytest

from outbox_kernel.errors import DefinitionError, DuplicateName, UnknownEventType, UnserializableEvent
from outbox_kernel.kernel import DomainEvent, event
from outbox_kernel.kernel.catalogue import event_type_of, event_types, newest_event_type
from outbox_kernel.kernel.clock import SystemClock, uuid7_of
from outbox_kernel.kernel.testing import ANY, FrozenClock, isolated_definitions, using_clock


def test_the_default_name_is_the_class_name_and_the_first_version() -> None:
    @event
    class AccountClosed(DomainEvent):
        account_id: UUID

    found = event_type_of(AccountClosed)
    assert (found.name, found.version, found.layout, found.cls) == (
        "AccountClosed",
        1,
        "snake",
        AccountClosed,
    )


def test_a_wire_name_and_version_are_independent_of_the_class() -> None:
    @event("group_message.queued", version=2, layout="camel")
    class Renamed(DomainEvent):
        pass

    found = event_type_of(Renamed)
    assert (found.name, found.version, found.layout) == ("group_message.queued", 2, "camel")
    assert newest_event_type("group_message.queued") is found


def test_brackets_without_arguments_mean_the_defaults() -> None:
    @event()
    class Opened(DomainEvent):
        pass

    assert event_type_of(Opened).name == "Opened"


def test_two_classes_with_one_name_and_version_fail_and_both_are_named() -> None:
    @event("taken")
    class First(DomainEvent):
        pass

    with pytest.raises(DuplicateName) as refused:

        @event("taken")
        class Second(DomainEvent):
            pass

    assert "First" in str(refused.value)
    assert "Second" in str(refused.value)
    assert "'taken' version 1" in str(refused.value)


def test_one_name_may_have_several_versions() -> None:
    @event("grown")
    class Old(DomainEvent):
        pass

    @event("grown", version=2)
    class New(DomainEvent):
        pass

    assert newest_event_type("grown").cls is New
    assert [found.cls for found in event_types() if found.name == "grown"] == [Old, New]


def test_an_event_has_an_id_and_a_moment_by_keyword_alone() -> None:
    @event
    class Paid(DomainEvent):
        amount: int

    moment, event_id = datetime(2026, 1, 2, tzinfo=UTC), uuid4()
    paid = Paid(5, event_id=event_id, occurred_at=moment)
    assert (paid.event_id, paid.occurred_at, paid.amount) == (event_id, moment, 5)
    with pytest.raises(TypeError):
        Paid(5, event_id)  # type: ignore[call-arg]


def test_id_and_moment_are_given_by_the_clock() -> None:
    @event
    class Paid(DomainEvent):
        pass

    before = datetime.now(UTC)
    paid = Paid()
    assert paid.event_id.version == 7
    assert before <= paid.occurred_at <= datetime.now(UTC)
    assert paid.occurred_at.tzinfo is UTC
    with using_clock(FrozenClock()) as clock:
        assert Paid().occurred_at == clock.now()


def test_an_event_is_frozen() -> None:
    @event
    class Paid(DomainEvent):
        amount: int

    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Paid(5).amount = 6  # type: ignore[misc]


def test_events_are_equal_by_all_their_fields_and_nothing_else() -> None:
    @event
    class Paid(DomainEvent):
        amount: int

    paid = Paid(5)
    same: Any = {"event_id": paid.event_id, "occurred_at": paid.occurred_at}
    assert paid == Paid(5, **same)
    assert paid != Paid(6, **same)
    assert paid != Paid(5)


def test_an_event_stands_nowhere_until_it_is_recorded() -> None:
    @event
    class Paid(DomainEvent):
        pass

    paid = Paid()
    assert (paid.aggregate_type, paid.aggregate_id, paid.aggregate_version) == (None, None, None)


@pytest.mark.parametrize(
    "field",
    [
        "event_type",
        "aggregate_id",
        "aggregate_type",
        "aggregate_version",
        "event_version",
        "timestamp",
        "stamp",
        "_x",
    ],
)
def test_names_of_the_envelope_are_refused_as_fields(field: str) -> None:
    body = {"__annotations__": {field: int}, "__module__": __name__}
    with pytest.raises(DefinitionError, match=f"'Clash' has a field named '{field}'"):
        event(type("Clash", (DomainEvent,), body))


@pytest.mark.parametrize(
    "fields", [("a_b", "aB"), ("occurred_on",), ("eventId",), ("eventVersion",), ("user_id", "user__id")]
)
def test_fields_that_camel_case_would_merge_are_refused(fields: tuple[str, ...]) -> None:
    body = {"__annotations__": dict.fromkeys(fields, int), "__module__": __name__}
    with pytest.raises(DefinitionError, match="two fields would be stored under the key"):
        event("merged", layout="camel")(type("Merged", (DomainEvent,), body))
    event("merged")(type("Merged", (DomainEvent,), body))


def test_a_layout_is_snake_or_camel() -> None:
    with pytest.raises(DefinitionError, match="layout 'kebab'; choose 'snake' or 'camel'"):
        event("x", layout="kebab")(type("X", (DomainEvent,), {}))  # type: ignore[call-overload]


@pytest.mark.parametrize("version", [0, -1])
def test_versions_count_from_one(version: int) -> None:
    with pytest.raises(DefinitionError, match="versions count from 1"):
        event("x", version=version)(type("X", (DomainEvent,), {}))


@pytest.mark.parametrize("name", ["", "with space", "ümlaut", ".leading", "a/b", "x" * 201])
def test_a_name_that_is_hard_to_route_by_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be used; take letters"):
        event(name)(type("X", (DomainEvent,), {}))


def test_only_a_domain_event_can_be_an_event() -> None:
    plain: Any = type("Plain", (), {})
    with pytest.raises(DefinitionError, match="stands on a class derived from DomainEvent"):
        event(plain)


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    body = {"__annotations__": {"value": "Missing"}, "__module__": __name__}
    with pytest.raises(DefinitionError, match=r"'X'.*cannot be resolved.*'Missing'"):
        event(type("X", (DomainEvent,), body))


def test_an_unregistered_class_is_named_with_the_remedy() -> None:
    class Forgotten(DomainEvent):
        pass

    with pytest.raises(UnknownEventType, match=r"Forgotten is no registered event.*put @event on it"):
        event_type_of(Forgotten)


def test_a_refused_class_leaves_its_name_free() -> None:
    with pytest.raises(DefinitionError):
        event("again")(type("Bad", (DomainEvent,), {"__annotations__": {"x": complex}}))
    event("again")(type("Good", (DomainEvent,), {}))


def test_definitions_made_in_isolation_are_forgotten() -> None:
    with isolated_definitions():

        @event("gone")
        class Gone(DomainEvent):
            pass

    with pytest.raises(UnknownEventType, match="no event named 'gone'"):
        newest_event_type("gone")


def test_ids_ascend_in_every_thread_and_are_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock that stands still leaves only the counter to tell ids apart.
    monkeypatch.setattr("outbox_kernel.kernel.clock.time.time_ns", lambda: 1_700_000_000_000_000_000)
    monkeypatch.setattr("outbox_kernel.kernel.clock.max", _slow_max, raising=False)
    clock, made = SystemClock(), [list[UUID]() for _ in range(4)]

    def make(into: list[UUID]) -> None:
        into.extend(clock.new_id() for _ in range(300))

    threads = [Thread(target=make, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(ids == sorted(ids) for ids in made)
    ticks = [each.int >> 64 for ids in made for each in ids]
    assert len(set(ticks)) == len(ticks)


def _slow_max(one: int, other: int) -> int:
    # Reading and writing the counter, with room for another thread in between.
    os.sched_yield()
    return max(other, one)


def test_an_id_tells_the_moment_it_was_made() -> None:
    before = datetime.now(UTC)
    milliseconds = SystemClock().new_id().int >> 80
    made = datetime.fromtimestamp(milliseconds / 1000, UTC)
    assert before - timedelta(milliseconds=1) <= made <= datetime.now(UTC)


def test_a_uuid7_is_laid_out_as_the_rfc_says() -> None:
    found = uuid7_of(tick=(0x0123456789AB << 12) | 0xCDE, entropy=2**64 - 1)
    assert str(found) == "01234567-89ab-7cde-bfff-ffffffffffff"


def test_an_event_without_decorator_says_so_when_it_is_made() -> None:
    class Forgotten(DomainEvent):
        amount: int

    @event
    class Paid(DomainEvent):
        amount: int

    class Derived(Paid):
        currency: str

    made: list[Any] = [Forgotten, Derived]
    for cls, arguments in zip(made, [(5,), (5, "EUR")], strict=True):
        with pytest.raises(
            UnknownEventType, match=rf"{cls.__name__} is no registered event.*put @event on it"
        ):
            cls(*arguments)


def test_an_undecorated_base_of_events_lends_its_fields_and_constructor() -> None:
    class Plain(DomainEvent):
        pass

    @attrs.frozen(slots=False)
    class Base(Plain):
        amount: int

    @event
    class Paid(Base):
        currency: str = "EUR"

        def __init__(self, amount: int) -> None:
            super().__init__(amount)
            object.__setattr__(self, "currency", "USD")

    paid = Paid(5)
    assert (paid.amount, paid.currency, paid.event_id.version) == (5, "USD", 7)


@pytest.mark.parametrize(
    ("field", "declared"),
    [("event_id", int), ("event_id", UUID), ("occurred_at", str), ("occurred_at", datetime)],
)
def test_what_every_event_has_is_not_declared_again(field: str, declared: type) -> None:
    body = {"__annotations__": {field: declared}, "__module__": __name__}
    with pytest.raises(
        DefinitionError, match=f"'Own' has a field named '{field}', which every event has by itself; leave it"
    ):
        event(type("Own", (DomainEvent,), body))


def test_what_every_event_has_is_no_field_of_a_mixin_either() -> None:
    @attrs.frozen(slots=False)
    class Numbered:
        event_id: int

    with pytest.raises(DefinitionError, match="'event_id', which every event has by itself"):
        event(type("Own", (Numbered, DomainEvent), {}))


@event("events.dated")
class Dated(DomainEvent):
    pass


BERLIN_SUMMER = timezone(timedelta(hours=2))


def test_the_moment_of_an_event_is_kept_in_utc() -> None:
    """K1."""
    found = Dated(occurred_at=datetime(2026, 7, 1, 2, tzinfo=BERLIN_SUMMER))
    assert (found.occurred_at, found.occurred_at.tzinfo) == (datetime(2026, 7, 1, tzinfo=UTC), UTC)


@pytest.mark.parametrize(
    ("moment", "sentence"),
    [
        (datetime(2026, 7, 1), "holds a naive datetime; give it a time zone"),  # noqa: DTZ001 - the point
        (datetime(1, 1, 1, tzinfo=BERLIN_SUMMER), "holds a moment outside the years 1 to 9999 of UTC"),
        (
            datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))),
            "holds a moment outside the years",
        ),
        ("2026-07-01", "holds str where datetime is declared"),
        (None, "holds NoneType where datetime is declared"),
    ],
)
def test_what_is_no_moment_in_utc_is_refused_when_the_event_is_made(moment: Any, sentence: str) -> None:
    """K1."""
    with pytest.raises(
        UnserializableEvent, match=f"'events.dated' cannot be stored: field 'occurred_at' {sentence}"
    ):
        Dated(occurred_at=moment)


@pytest.mark.parametrize("identity", ["x", str(uuid4()), 5, None])
def test_what_is_no_uuid_is_refused_as_an_events_id(identity: Any) -> None:
    """K1."""
    with pytest.raises(UnserializableEvent, match=r"field 'event_id' holds \w+ where UUID is declared"):
        Dated(event_id=identity)


def test_a_given_id_is_of_any_version() -> None:
    identity = uuid4()
    assert Dated(event_id=identity).event_id == identity


def test_an_expected_event_may_have_any_id_and_moment() -> None:
    """K12: what equals everything is not held against its type."""
    assert Dated(event_id=ANY, occurred_at=ANY) == Dated()


def test_a_moment_of_the_first_year_is_one_of_utc() -> None:
    first = datetime(1, 1, 1, tzinfo=UTC).astimezone(BERLIN_SUMMER)
    assert Dated(occurred_at=first).occurred_at.tzinfo is UTC


def test_a_field_of_a_base_that_is_no_attrs_class_is_refused() -> None:
    """K1: it would be no part of the event, and nobody would notice."""

    class Tenanted(DomainEvent):
        tenant: str = "main"

    class Ordered(Tenanted):
        item: str

    with pytest.raises(
        DefinitionError,
        match=r"Ordered is derived from Tenanted, whose `tenant` would not be a field of it; put @attrs.frozen on",
    ):
        event(Ordered)


def test_a_base_that_is_an_attrs_class_lends_its_fields() -> None:
    @attrs.frozen
    class Tenanted(DomainEvent):
        tenant: str = "main"

    class Named(Protocol):
        name: str

    class Marked:
        kind: ClassVar[str] = "mark"
        item: str

    @event("events.ordered")
    class Ordered(Tenanted, Marked, Named):
        item: str = ""

        @property
        def name(self) -> str:  # type: ignore[override]  # a protocol asks for it, and no field has to give it
            return self.item

    assert [field.name for field in attrs.fields(Ordered)] == ["event_id", "occurred_at", "tenant", "item"]
