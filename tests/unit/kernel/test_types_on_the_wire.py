"""K8: a field of a type that cannot come back unchanged fails when its event is registered."""

# ruff: noqa: UP007, UP045, PYI061 - every spelling that a programmer may choose has to be understood

import types
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, Flag, IntEnum, auto
from fractions import Fraction
from typing import Annotated, Any, Generic, Literal, NewType, Optional, TypeVar, Union
from uuid import UUID

import attrs
import pytest

from outbox_kernel.errors import DefinitionError, MalformedPayload, UnserializableEvent
from outbox_kernel.kernel import AggregateRoot, DomainEvent, deserialize_event, event, serialize_event
from tests.unit.kernel.probes import probe, restored, sent

T = TypeVar("T")
UserId = NewType("UserId", UUID)


class Colour(Enum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


class Right(Flag):
    READ = auto()


class Mixed(Enum):
    NUMBER = 1
    TEXT = "1"


class Odd(Enum):
    PAIR = (1, 2)


class Half(Enum):
    HALF = 0.5


class Nul(Enum):
    NUL = "a\0b"


@attrs.frozen
class Email:
    value: str


@attrs.frozen
class Nickname:
    value: str | None


@attrs.frozen
class Nested:
    nickname: Nickname


@attrs.frozen
class Point:
    x: int
    y: int


@attrs.define
class Mutable:
    x: int
    y: int


@attrs.frozen
class Bag:
    x: int
    items: list[int]


@attrs.frozen
class UncountedBag:
    x: int
    items: list[int] = attrs.field(eq=False)


@attrs.frozen
class Node:
    name: str
    children: list["Node"]


@attrs.frozen
class Page(Generic[T]):
    items: list[T]
    number: int


@attrs.frozen
class IntPage(Page[int]):
    pass


@attrs.frozen
class Derived:
    x: int
    double: int = attrs.field(init=False, default=0)


@attrs.frozen
class Cached:
    x: int
    double: int = attrs.field(init=False, default=0, eq=False)


@attrs.frozen(eq=False)
class Identity:
    x: int
    y: int


@attrs.frozen
class Twins:
    a_b: int
    aB: int  # noqa: N815 - the clash is the point


@attrs.frozen
class Holder:
    x: int
    secret: time


@dataclass
class Data:
    x: int


@dataclass
class Pair:
    x: int
    y: int


@pytest.mark.parametrize(
    "declared",
    [
        str,
        int,
        float,
        bool,
        UUID,
        datetime,
        date,
        Decimal,
        Colour,
        Number,
        Right,
        Email,
        Nickname,
        Point,
        Mutable,
        Node,
        Cached,
        UserId,
        Annotated[int, "positive"],
        Optional[Email],
        int | None,
        Union[None, Point],
        list[Email],
        list[int | None],
        set[Point],
        set[UncountedBag],
        frozenset[tuple[int, ...]],
        set[frozenset[int]],
        set[int | None],
        tuple[int, str],
        tuple[Point, ...],
        dict[str, list[Point]],
        dict[UUID, Decimal],
        dict[Colour, int],
        dict[Right, int],
        dict[Email, dict[UserId, bool]],
        Literal["a", 1, True],
        Optional[Literal["a"]],
        list[list[dict[str, set[UUID]]]],
    ],
    ids=str,
)
def test_what_survives_json_is_accepted(declared: Any) -> None:
    probe(declared)


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        (list, "list does not survive JSON unchanged; use str"),
        (dict, "dict does not survive"),
        (set, "set does not survive"),
        (tuple, "tuple does not survive"),
        (tuple[()], "tuple does not survive"),
        (complex, "complex does not survive"),
        (time, "time does not survive"),
        (Fraction, "Fraction does not survive"),
        (Sequence[int], "Sequence does not survive"),
        (Mapping[str, int], "Mapping does not survive"),
        (defaultdict[str, int], "defaultdict does not survive"),
        (OrderedDict[str, int], "OrderedDict does not survive"),
        (T, "the type T is left open; declare the field with its type in a concrete class"),
        (type, "type does not survive"),
        (types.NoneType, "NoneType does not survive"),
        (Page, "Page is generic; write a concrete class"),
        (Page[int], "Page is generic; write a concrete class"),
        (IntPage, "IntPage.items: the type T is left open"),
        (int | str, "a union of several types is ambiguous"),
        (int | str | None, "a union of several types is ambiguous"),
        (Optional[Nickname], "Optional of Nickname, whose own value is Optional, leaves None ambiguous"),
        (Optional[Nested], "Optional of Nested"),
        (Odd, r"Odd.PAIR has the value \(1, 2\)"),
        (Half, "Half.HALF has the value 0.5"),
        (Nul, "Nul.NUL has the value 'a.*without NUL"),
        (Literal["\0"], "a Literal on the wire .* without NUL"),
        (Literal["\ud800"], "a Literal on the wire .* lone surrogates"),
        (Literal["a", None], "a Literal on the wire holds str, int or bool only"),
        (Literal[Colour.RED], "a Literal on the wire holds"),
        (Derived, "Derived.double is compared but is no argument of the constructor"),
        (Identity, "Identity is compared by identity"),
        (AggregateRoot, "AggregateRoot is compared by identity"),
        (Twins, "Twins: two fields would be stored under the key 'aB'"),
        (Holder, "Holder.secret: time does not survive"),
        (list[Holder], "Holder.secret: time"),
        (set[list[int]], "list cannot be hashed"),
        (set[dict[str, int]], "dict cannot be hashed"),
        (set[Mutable], "Mutable cannot be hashed"),
        (set[Bag], "Bag cannot be hashed"),
        (frozenset[tuple[list[int], ...]], "tuple cannot be hashed"),
        (dict[float, int], "a dict on the wire has str, int, UUID or Enum keys"),
        (dict[bool, int], "a dict on the wire has"),
        (dict[Point, int], "a dict on the wire has"),
        (dict[Mixed, int], "a dict on the wire has.*of one type"),
        (dict[int | None, int], "a dict on the wire has"),
    ],
    ids=str,
)
def test_what_does_not_survive_is_refused_by_event_field_and_reason(declared: Any, sentence: str) -> None:
    with pytest.raises(DefinitionError, match=rf"event 'probe', field 'value'.*{sentence}"):
        probe(declared)


class Word(str, Enum):  # noqa: UP042 - whose text is not its value
    RED = "red"


class Digit(int, Enum):
    ONE = 1


@pytest.mark.parametrize(
    ("declared", "value"), [(dict[str, int], {Word.RED: 1}), (dict[int, int], {Digit.ONE: 1})]
)
def test_an_enum_that_is_a_str_or_an_int_is_a_key_by_its_value(declared: Any, value: Any) -> None:
    """K8."""
    found = probe(declared)(value)
    assert sent(found) == {str(key.value): 1 for key in value}
    assert restored(found) == found


def test_a_field_that_no_constructor_takes_is_refused_if_it_is_compared() -> None:
    """K8: nothing could restore it."""
    with pytest.raises(
        DefinitionError,
        match="event 'counted', field 'number' is compared but is no argument of the constructor",
    ):

        @event("counted")
        class Counted(DomainEvent):
            number: int = attrs.field(init=False, default=1)

    @event("cached")
    class Cached(DomainEvent):
        number: int
        half: complex = attrs.field(init=False, eq=False, default=0j)

    cached = Cached(4)
    assert restored(cached) == cached
    assert "half" not in serialize_event(cached)
    with pytest.raises(UnserializableEvent, match="field 'number' holds str"):
        serialize_event(Cached("4"))  # type: ignore[arg-type]


def test_an_unannotated_attrs_field_is_refused() -> None:
    with pytest.raises(DefinitionError, match="'value': no annotation"):
        event("bare")(type("Bare", (DomainEvent,), {"value": attrs.field()}))


def test_a_nested_annotation_that_cannot_be_resolved_is_refused() -> None:
    @attrs.frozen
    class Loose:
        x: int
        y: "Missing"  # type: ignore[name-defined]  # noqa: F821 - the point

    with pytest.raises(
        DefinitionError, match=r"'value': the annotation of a field cannot be resolved.*'Missing'"
    ):
        probe(Loose)


def test_a_value_object_is_an_attrs_class_or_dataclass_of_one_field() -> None:
    from outbox_kernel.kernel.wire.records import is_value_object

    assert is_value_object(Email)
    assert is_value_object(Nested)
    assert not is_value_object(Point)
    assert is_value_object(Data)
    assert not is_value_object(Pair)
    assert not is_value_object(Email("a"))


@attrs.frozen
class Crate:
    label: str = attrs.field(kw_only=True)
    weight: int
    note: str | None = attrs.field(kw_only=True, default=None)


def test_a_field_that_is_named_may_stand_before_one_that_has_a_place() -> None:
    @event("shipped")
    class Shipped(DomainEvent):
        label: str = attrs.field(kw_only=True)
        crate: Crate
        perhaps: Crate | None

    for crate in (Crate(1, label="a"), Crate(2, label="b", note="fragile")):
        found = Shipped(crate, crate, label="by sea")
        assert restored(found) == found
    with pytest.raises(MalformedPayload, match="key 'label' is missing"):
        deserialize_event("shipped", '{"crate": null, "perhaps": null}')
