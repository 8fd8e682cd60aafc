"""K1: an event never changes, so what could be changed in it is its own copy."""

import inspect
from collections import OrderedDict, defaultdict
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import attrs
import pytest
from pydantic import BaseModel, ConfigDict, RootModel

from outbox_kernel.errors import UnserializableEvent
from outbox_kernel.kernel import AggregateRoot, DomainEvent, aggregate, event, sensitive, serialize_event
from outbox_kernel.kernel.wire.owning import is_fixed
from outbox_kernel.kernel.wire.types import fields_of
from tests.unit.kernel.probes import Layout, probe, restored, sent


@attrs.frozen
class Bag:
    items: list[str]
    label: str = ""


@attrs.define
class Point:
    x: int
    y: int = 0


@attrs.frozen
class Leaf:
    name: str
    twigs: "list[Leaf]" = attrs.Factory(list)


@attrs.frozen
class Email:
    value: str


@dataclass
class Count:
    number: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Sealed:
    items: list[str]
    counts: list[Count] = field(default_factory=list)


class Profile(BaseModel):
    name: str
    tags: list[str] = []
    count: Count | None = None


class Fixed(BaseModel):
    model_config = ConfigDict(frozen=True)
    name: str
    extra: dict[str, Any] = {}


class Names(RootModel[list[str]]):
    pass


class Still(BaseModel):
    model_config = ConfigDict(frozen=True)
    name: str
    number: int = 0


@dataclass(frozen=True)
class Coin:
    cents: int
    currency: str = "EUR"


def append(values: Any) -> None:
    values.append("later")


@pytest.mark.parametrize("layout", ["snake", "camel"])
@pytest.mark.parametrize(
    ("declared", "value", "change"),
    [
        (list[str], ["a"], append),
        (Annotated[list[str], "letters"], ["a"], append),
        (list[str] | None, ["a"], append),
        (set[str], {"a"}, lambda value: value.add("later")),
        (dict[str, int], {"a": 1}, lambda value: value.update(later=2)),
        (dict[str, list[str]], {"a": ["b"]}, lambda value: append(value["a"])),
        (list[list[str]], [["a"]], lambda value: append(value[0])),
        (tuple[list[str], ...], (["a"],), lambda value: append(value[0])),
        (tuple[int, list[str]], (1, ["a"]), lambda value: append(value[1])),
        (Bag, Bag(["a"]), lambda value: append(value.items)),
        (dict[str, Bag], {"a": Bag(["b"])}, lambda value: append(value["a"].items)),
        (Leaf, Leaf("a", [Leaf("b")]), lambda value: value.twigs[0].twigs.append(Leaf("later"))),
        (Point, Point(1), lambda value: setattr(value, "x", 2)),
        (list[Point], [Point(1)], lambda value: setattr(value[0], "x", 2)),
        (Count, Count(1), lambda value: setattr(value, "number", 2)),
        (Sealed, Sealed(["a"]), lambda value: append(value.items)),
        (Sealed, Sealed(["a"], [Count(1)]), lambda value: setattr(value.counts[0], "number", 2)),
        (Profile, Profile(name="a"), lambda value: setattr(value, "name", "b")),
        (Profile, Profile(name="a", tags=["b"]), lambda value: append(value.tags)),
        (
            list[Profile],
            [Profile(name="a", count=Count(1))],
            lambda value: setattr(value[0].count, "number", 2),
        ),
        (Fixed, Fixed(name="a", extra={"b": []}), lambda value: append(value.extra["b"])),
        (Names, Names(["a"]), lambda value: append(value.root)),
        (dict[str, Any], {"a": 1}, lambda value: value.update(later=2)),
        (dict[str, Any], {"a": [{"b": ["c"]}]}, lambda value: append(value["a"][0]["b"])),
        (Any, [["a"]], lambda value: append(value[0])),
        (object, {"a": {}}, lambda value: value["a"].update(later=2)),
    ],
    ids=repr,
)
def test_what_its_author_changes_later_is_not_in_the_event(
    declared: Any, value: Any, change: Any, layout: Layout
) -> None:
    value = deepcopy(value)
    found = probe(declared, layout)(value)
    before = sent(found)
    change(value)
    assert sent(found) == before
    assert found.value != value
    assert restored(found) == found


def test_a_list_that_goes_on_growing_is_recorded_as_it_was() -> None:
    @event
    class Packed(DomainEvent):
        items: list[str]

    @aggregate
    class Crate(AggregateRoot):
        id: Any
        items: list[str] = attrs.Factory(list)

        def pack(self, item: str) -> None:
            self.items.append(item)
            self.record(Packed(self.items))

    crate = Crate(DomainEvent().event_id)
    crate.pack("a")
    crate.pack("b")
    assert [each.items for each in crate.recorded_events] == [["a"], ["a", "b"]]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (str, "a" * 50),
        (Email, Email("a")),
        (Email | None, Email("b")),
        (tuple[int, ...], (1, 2)),
        (frozenset[int], frozenset({1})),
        (timedelta, timedelta(1)),
        (bytes, b"a" * 50),
        (Coin, Coin(5)),
        (Still, Still(name="a")),
    ],
    ids=repr,
)
def test_what_cannot_change_is_not_copied(declared: Any, value: Any) -> None:
    cls = probe(declared)
    assert cls(value).value is value
    assert [field.converter for field in fields_of(cls) if field.name == "value"] == [None]


NEW_YORK = ZoneInfo("America/New_York")


@attrs.frozen
class Meeting:
    at: datetime
    title: str = ""


@attrs.frozen
class Agenda:
    meeting: Meeting


REPEATED, SKIPPED = (
    datetime(2025, 11, 2, 1, 30, tzinfo=NEW_YORK),
    datetime(2025, 3, 9, 2, 30, tzinfo=NEW_YORK),
)


@pytest.mark.parametrize(
    ("declared", "make"),
    [
        (datetime, lambda moment: moment),
        (Annotated[datetime, "start"], lambda moment: moment),
        (datetime | None, lambda moment: moment),
        (list[datetime], lambda moment: [moment]),
        (tuple[str, datetime], lambda moment: ("a", moment)),
        (frozenset[datetime], lambda moment: frozenset([moment])),
        (dict[str, datetime], lambda moment: {"a": moment}),
        (Meeting, Meeting),
        (Agenda, lambda moment: Agenda(Meeting(moment))),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "moment", [REPEATED, REPEATED.replace(fold=1), SKIPPED, SKIPPED.replace(fold=1)], ids=str
)
def test_a_moment_that_its_zone_repeats_or_skips_comes_back_equal(
    declared: Any, make: Any, moment: datetime
) -> None:
    """K8: PEP 495 lets it equal no moment of another zone, so an event has its offset."""
    found = probe(declared)(make(moment))
    assert restored(found) == found
    assert f'"{moment.isoformat()}"' in serialize_event(found)


def test_what_is_copied_of_free_json_is_plain() -> None:
    """K8: a subclass of dict or list would come back as a dict or list."""
    found = probe(Any)(OrderedDict(a=defaultdict(int, b=1)))
    assert restored(found) == found
    assert type(found.value) is type(found.value["a"]) is dict


def test_a_moment_with_its_offset_is_not_copied() -> None:
    meeting = Meeting(datetime(2025, 1, 1, tzinfo=timezone(timedelta(hours=1))))
    assert probe(Meeting)(meeting).value is meeting
    assert probe(datetime, name="moment")(meeting.at).value is meeting.at


class Nowhere(tzinfo):
    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


@pytest.mark.parametrize("moment", [datetime(2025, 1, 1), datetime(2025, 1, 1, tzinfo=Nowhere())])  # noqa: DTZ001 - the point
def test_a_moment_without_an_offset_is_refused_as_before(moment: datetime) -> None:
    with pytest.raises(UnserializableEvent, match="'value' holds a naive datetime"):
        serialize_event(probe(datetime)(moment))


def test_a_converter_of_its_own_comes_first() -> None:
    @event
    class Sorted(DomainEvent):
        items: list[str] = attrs.field(converter=sorted)
        more: list[str] = attrs.field(factory=list, converter=attrs.converters.optional(list))

    given = ["b", "a"]
    found = Sorted(given, tuple(given))  # type: ignore[arg-type]
    assert (found.items, found.more) == (["a", "b"], ["b", "a"])

    shared: list[str] = []

    @event
    class Shared(DomainEvent):
        items: list[str] = attrs.field(converter=lambda _: shared)

    kept = Shared(["a"])
    shared.append("later")
    assert kept.items == []


def test_a_default_that_is_shared_is_copied_too() -> None:
    @event
    class Tagged(DomainEvent):
        tags: list[str] = ["a"]  # noqa: RUF012 - the slip

    one, other = Tagged(), Tagged()
    one.tags.append("b")
    assert other.tags == ["a"]


def test_what_its_class_has_not_set_yet_is_no_obstacle() -> None:
    @attrs.define(slots=False)
    class Lazy:
        items: list[str]
        longest: list[str] = attrs.field(init=False, eq=False)

    lazy = Lazy(["a"])
    found = probe(Lazy)(lazy)
    lazy.items.clear()
    assert restored(found).value == Lazy(["a"])


def test_a_subclass_copies_what_it_inherits_and_what_it_adds() -> None:
    @event
    class Packed(DomainEvent):
        items: list[str]

    @event
    class Repacked(Packed):
        extra: list[str] = sensitive(factory=list, metadata={"unit": "none"})

    items, extra = ["a"], ["b"]
    found = Repacked(items, extra)
    append(items)
    append(extra)
    assert (found.items, found.extra) == (["a"], ["b"])
    assert "extra=***" in repr(found)
    converters = {field.name: field.converter for field in fields_of(Repacked)}
    assert converters["items"] is {field.name: field.converter for field in fields_of(Packed)}["items"]
    assert {field.name: field.metadata for field in fields_of(Repacked)}["extra"]["unit"] == "none"


def test_the_constructor_shows_the_declared_types() -> None:
    @event
    class Packed(DomainEvent):
        items: list[str]

    assert inspect.signature(Packed).parameters["items"].annotation == list[str]


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (list[str], ("a",)),
        (list[list[str]], [("a",)]),
        (set[int], [1]),
        (Bag, Point(1)),
        (tuple[int, list[int]], (1,)),
        (tuple[list[int], ...], [[1]]),
        (dict[str, int], []),
        (dict[str, list[int]], []),
    ],
    ids=repr,
)
def test_a_value_of_another_type_is_refused_as_before(declared: Any, value: Any) -> None:
    with pytest.raises(UnserializableEvent, match="field 'value' holds"):
        serialize_event(probe(declared)(value))


def test_what_is_nested_too_deeply_to_be_copied_is_refused() -> None:
    leaf = Leaf("a")
    for _ in range(2_000):
        leaf = Leaf("a", [leaf])
    with pytest.raises(
        UnserializableEvent, match=r"event 'probe'.*field 'value' is nested too deeply; flatten it"
    ):
        probe(Leaf)(leaf)


@pytest.mark.parametrize(
    "declared",
    [int, str | None, datetime, tuple[datetime, ...], Email, tuple[Email, int], frozenset[int]],
    ids=repr,
)
def test_an_event_in_which_nothing_can_change_may_be_had_by_many(declared: Any) -> None:
    assert is_fixed(probe(declared))


@pytest.mark.parametrize(
    "declared", [list[int], dict[str, int], tuple[list[int], ...], Bag, Point, Leaf, dict[str, Any]], ids=repr
)
def test_one_in_which_something_can_change_may_not(declared: Any) -> None:
    assert not is_fixed(probe(declared))
