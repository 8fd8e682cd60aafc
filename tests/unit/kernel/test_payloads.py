"""K8: durations, bytes, dataclasses, pydantic models and free JSON come back as they were, alone and in each other."""

import json
from dataclasses import KW_ONLY, InitVar, dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID

import attrs
import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, field_validator
from pydantic.dataclasses import dataclass as checked_dataclass

from outbox_kernel.errors import DefinitionError, MalformedPayload, UnserializableEvent
from outbox_kernel.kernel import deserialize_event, serialize_event
from outbox_kernel.kernel.catalogue import event_type_of
from outbox_kernel.kernel.testing.copying import same_state
from outbox_kernel.kernel.wire import blame
from tests.unit.kernel.probes import Layout, probe, received, restored, sent

T = TypeVar("T")
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
UUID_1 = UUID("01890000-0000-7000-8000-000000000001")

layouts = pytest.mark.parametrize("layout", ["snake", "camel"])


class Colour(Enum):
    RED = "red"


@attrs.frozen
class Email:
    value: str


@dataclass(frozen=True)
class Weight:
    grams: int


@dataclass
class Parcel:
    weight: Weight
    sent_at: datetime | None = None
    _: KW_ONLY
    labels: list[str] = field(default_factory=list)
    cost: Decimal = Decimal("1.50")
    opened: int = field(default=0, compare=False, init=False)


@dataclass(slots=True, frozen=True)
class Slotted:
    parts: "tuple[Slotted, ...]" = ()
    name: str = ""


@checked_dataclass
class Checked:
    count: int
    names: list[str]


class Place(BaseModel):
    street_name: str
    lived_at: timedelta = timedelta(days=1)


class Person(BaseModel):
    first_name: str = Field(alias="firstName", min_length=1)
    photo: bytes = b""
    colour: Colour = Colour.RED
    home: Place | None = None
    friends: "list[Person]" = []
    notes: dict[str, Any] = {}
    parcel: Parcel | None = None


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    number: int
    text: str = ""


class Tags(RootModel[list[str]]):
    pass


class PersonId(RootModel[UUID]):
    model_config = ConfigDict(frozen=True)


class Page(BaseModel, Generic[T]):
    items: list[T]
    number: int = 1


@attrs.frozen
class Mixture:
    person: Person
    parcel: Parcel
    anything: Any = None


FREE: dict[str, Any] = {"": None, "a b": [True, 0, -1.5, "ü", {"deep": [[], {}]}], "big": 2**200}
PERSON = Person(
    firstName="ada",
    photo=b"\xff\0",
    home=Place(street_name="Main", lived_at=timedelta(-3, 1, 2)),
    friends=[Person(firstName="brian")],
    notes=FREE,
    parcel=Parcel(Weight(5), MOMENT, labels=["a"]),
)


@layouts
@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (timedelta, timedelta(0)),
        (timedelta, timedelta(days=-1, microseconds=1)),
        (timedelta, timedelta.max),
        (timedelta, timedelta.min),
        (list[timedelta | None], [timedelta(hours=26, minutes=1, microseconds=10), None]),
        (bytes, b""),
        (bytes, bytes(range(256))),
        (set[bytes], {b"a", b"\xfe"}),
        (Weight, Weight(5)),
        (Weight | None, None),
        (Parcel, Parcel(Weight(5), MOMENT, labels=["a"], cost=Decimal("2.00"))),
        (Slotted, Slotted((Slotted(name="a"),))),
        (dict[Weight, Weight], {Weight(1): Weight(2)}),
        (set[Slotted], {Slotted(name="a")}),
        (Checked, Checked(1, ["a"])),
        (Person, PERSON),
        (Person | None, None),
        (list[Person], [PERSON, PERSON]),
        (set[Frozen], {Frozen(number=1)}),
        (dict[PersonId, Frozen], {PersonId(UUID_1): Frozen(number=1)}),
        (Tags, Tags(["a", "b"])),
        (Page[Place], Page[Place](items=[Place(street_name="Main")])),
        (Mixture, Mixture(PERSON, Parcel(Weight(1)), FREE)),
        (tuple[Mixture, ...], (Mixture(PERSON, Parcel(Weight(1))),)),
        (Any, None),
        (Any, FREE),
        (object, [1, "a"]),
        (Any | None, {"a": None}),
        (dict[str, Any], FREE),
        (dict[str, object], FREE),
        (dict[UUID, Any], {UUID_1: [1.0]}),
        (list[dict[str, Any]], [{}, FREE]),
        (tuple[Any, Email], ([{"a": 1}], Email("a@b"))),
        (Annotated[dict[str, Any], "settings"], FREE),
    ],
    ids=ascii,
)
def test_what_people_have_comes_back_equal_and_of_its_own_type(
    declared: Any, value: Any, layout: Layout
) -> None:
    found = probe(declared, layout)(value)
    back = restored(found)
    assert back == found
    assert same_state(back, found)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(0), "PT0S"),
        (timedelta(days=2), "P2D"),
        (timedelta(hours=1, minutes=30), "PT1H30M"),
        (timedelta(days=1, seconds=2, microseconds=500_000), "P1DT2.5S"),
        (timedelta(microseconds=-1), "-PT0.000001S"),
    ],
)
def test_a_duration_is_written_as_iso_8601_says(value: timedelta, text: str) -> None:
    assert sent(probe(timedelta)(value)) == text


def test_bytes_are_base64() -> None:
    assert sent(probe(bytes)(b"\xff\xfe?")) == "//4/"


def test_a_dataclass_of_one_field_is_a_value_object() -> None:
    assert sent(probe(Weight)(Weight(5))) == 5
    assert sent(probe(Weight, "camel", "other")(Weight(5))) == {"value": 5}


def test_a_model_is_an_object_and_only_a_root_model_is_a_value_object() -> None:
    class City(BaseModel):
        name: str

    assert sent(probe(City)(City(name="Bonn"))) == {"name": "Bonn"}
    assert sent(probe(Tags, name="tags")(Tags(["a"]))) == ["a"]
    assert sent(probe(Tags, "camel", "camel")(Tags(["a"]))) == {"value": ["a"]}


def test_keys_of_dataclasses_and_models_follow_the_layout_and_no_alias() -> None:
    assert sent(probe(Person)(PERSON))["home"] == {"street_name": "Main", "lived_at": "-P2DT23H59M58.999998S"}
    camel = sent(probe(Person, "camel", "other")(PERSON))
    assert camel["firstName"] == "ada"
    assert camel["home"].keys() == {"streetName", "livedAt"}
    assert camel["parcel"].keys() == {"weight", "sentAt", "labels", "cost"}


def test_keys_of_free_json_are_as_they_were_given() -> None:
    assert sent(probe(dict[str, Any], "camel")({"snake_key": {"inner_key": 1}})) == {
        "snake_key": {"inner_key": 1}
    }


@pytest.mark.parametrize("value", [1e16, -1e16, 1e23, 1.7976931348623157e308])
def test_a_float_that_jsonb_writes_out_is_stored_as_the_integer_that_it_equals(value: float) -> None:
    """1e23 would come back as 10**23, which it is not."""
    back = restored(probe(dict[str, Any])({"a": value})).value["a"]
    assert back == value
    assert type(back) is int


def test_what_comes_later_to_a_dataclass_or_a_model_takes_its_default() -> None:
    assert received(probe(Parcel), {"weight": 5}) == Parcel(Weight(5))
    assert received(probe(Place, name="place"), {"street_name": "Main"}) == Place(street_name="Main")


NAN, INFINITY = float("nan"), float("inf")


@dataclass
class Loose:
    inner: Any
    number: float = 0.0


class Lax(BaseModel):
    text: str = ""
    number: float = 0.0
    anything: Any = None


class Word(str, Enum):  # noqa: UP042 - the older spelling is met more often
    A = "a"


@pytest.mark.parametrize(
    ("declared", "value", "reason"),
    [
        (timedelta, 5, "holds int where timedelta"),
        (bytes, "a", "holds str where bytes"),
        (bytes, bytearray(b"a"), "holds bytearray where bytes"),
        (Weight, 5, "holds int where Weight"),
        (Weight, Weight("5"), "holds str where int"),  # type: ignore[arg-type]
        (Parcel, Slotted(), "holds Slotted where Parcel"),
        (Loose, Loose(1, NAN), "holds nan, which JSON cannot carry"),
        (Loose, Loose([{"a": INFINITY}]), "holds inf, which JSON cannot carry"),
        (Person, Place(street_name="a"), "holds Place where Person"),
        (Lax, Lax(text="a\0"), "holds a NUL character"),
        (Lax, Lax.model_construct(text="\ud800"), "holds a lone surrogate"),
        (Lax, Lax(number=NAN), "holds nan"),
        (Lax, Lax(anything={"a": (1,)}), "holds tuple in free JSON"),
        (Lax, Lax.model_construct(text=5), "holds int where str"),
        (Any, {"a": [{"b": NAN}]}, "holds nan, which JSON cannot carry"),
        (Any, 1e400, "holds inf, which JSON cannot carry"),
        (Any, -INFINITY, "holds -inf, which JSON cannot carry"),
        (dict[str, Any], {"a": ["b\0"]}, "holds a NUL character"),
        (dict[str, Any], {"a": {"b\0": 1}}, "holds a NUL character"),
        (dict[str, Any], {"a": {"\udc00": 1}}, "holds a lone surrogate"),
        (dict[str, Any], {"a": "\udc00"}, "holds a lone surrogate"),
        pytest.param(
            dict[str, Any],
            {"a": 10**5000},
            "holds an int of over 4,300 digits, which nobody reads back",
            id="huge",
        ),
        (dict[str, Any], {"a": {1: 2}}, "holds a key of type int in free JSON, where keys are str"),
        (dict[str, Any], {"a": {None: 2}}, "holds a key of type NoneType in free JSON"),
        (dict[str, Any], {"a": {Word.A: 2}}, "holds a key of type Word in free JSON"),
        (dict[str, Any], {"a": (1, 2)}, "holds tuple in free JSON, where it would not come back equal"),
        (dict[str, Any], {"a": {1}}, "holds set in free JSON"),
        (dict[str, Any], {"a": Word.A}, "holds Word in free JSON"),
        (dict[str, Any], {"a": UUID_1}, "holds UUID in free JSON"),
        (dict[str, Any], {"a": MOMENT}, "holds datetime in free JSON"),
        (dict[str, Any], {"a": b"b"}, "holds bytes in free JSON"),
        (dict[str, Any], {"a": Decimal(1)}, "holds Decimal in free JSON"),
        (dict[str, Any], [("a", 1)], "holds list where dict"),
        (object, object(), "holds object in free JSON"),
    ],
    ids=ascii,
)
def test_what_would_not_come_back_equal_is_refused_with_event_and_field(
    declared: Any, value: Any, reason: str
) -> None:
    """C7."""
    with pytest.raises(
        UnserializableEvent, match=f"event 'probe' cannot be stored: field 'value' {reason}"
    ) as refused:
        serialize_event(probe(declared)(value))
    assert (refused.value.event_type, refused.value.field) == ("probe", "value")


def test_free_json_over_the_limit_is_refused() -> None:
    with pytest.raises(UnserializableEvent, match="field 'value' takes 2,000,011 bytes"):
        serialize_event(probe(dict[str, Any])({"note": "x" * 2_000_000}))


def test_free_json_that_holds_itself_or_is_nested_too_deeply_is_refused() -> None:
    circle: dict[str, Any] = {}
    circle["again"] = [circle]
    with pytest.raises(UnserializableEvent, match="field 'value' is nested too deeply; flatten it"):
        probe(Any)(circle)
    found = probe(Any, name="deep")([json.loads("[" * 99 + "]" * 99)])
    assert restored(found) == found
    found.value[0].append(circle)
    with pytest.raises(
        UnserializableEvent, match="field 'value' holds free JSON of more than 100 levels; flatten"
    ):
        serialize_event(found)


def test_an_error_that_no_field_shows_again_comes_out_as_it_is() -> None:
    """K8: rather than that a field is blamed for it."""
    error, found = TypeError("once"), probe(int)(1)
    with pytest.raises(TypeError) as raised:
        blame.unserializable(event_type_of(type(found)), found, json.dumps, error)
    assert raised.value is error


def test_a_model_that_its_own_validation_would_not_restore_is_refused() -> None:
    class Growing(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def one_more(cls, number: int) -> int:
            return number + 1

    class Split(BaseModel):
        words: list[str]

        @field_validator("words", mode="before")
        @classmethod
        def split(cls, words: str) -> list[str]:
            return words.split(",")

    with pytest.raises(
        UnserializableEvent, match="holds Growing that would not come back equal, since its class"
    ):
        serialize_event(probe(Growing)(Growing(number=1)))
    with pytest.raises(AttributeError):
        Split.model_validate({"words": ["a"]})
    with pytest.raises(UnserializableEvent, match="field 'value'"):
        serialize_event(probe(Split, name="split")(Split.model_validate({"words": "a,b"})))


def test_a_model_that_was_never_validated_is_refused_by_its_own_rule() -> None:
    nameless = Person.model_construct(first_name="")
    with pytest.raises(
        UnserializableEvent,
        match=r"holds Person that its own class refuses: Person.first_name: String should have at least",
    ):
        serialize_event(probe(Person)(nameless))


def test_a_dataclass_that_its_own_class_would_not_make_again_is_refused() -> None:
    @dataclass
    class Order:
        net: int
        gross: int = 0

        def __post_init__(self) -> None:
            if self.net < 0:
                raise KeyError("no order")
            self.gross = self.net * 2

    cls, order = probe(Order), Order(1)
    assert restored(cls(order)).value == order
    order.gross = 3
    with pytest.raises(
        UnserializableEvent, match="holds Order that would not come back equal, since its class"
    ):
        serialize_event(cls(order))
    order.net = -1
    with pytest.raises(UnserializableEvent, match="holds Order that its own class refuses: 'no order'"):
        serialize_event(cls(order))
    checked = Checked(1, ["a"])
    checked.count = "one"  # type: ignore[assignment]
    with pytest.raises(UnserializableEvent, match="holds str where int"):
        serialize_event(probe(Checked, name="checked")(checked))


def test_a_model_may_refuse_in_words_of_its_own() -> None:
    class Picky(BaseModel):
        number: int

        def __init__(self, **held: Any) -> None:
            super().__init__(**held)
            if self.number < 0:
                raise ValueError("a number below zero")

    cls, picky = probe(Picky), Picky(number=1)
    assert restored(cls(picky)).value == picky
    picky.number = -1
    with pytest.raises(
        UnserializableEvent,
        match="holds Picky that its own class refuses: Picky: Value error, a number below zero",
    ):
        serialize_event(cls(picky))


def test_a_stored_model_that_breaks_a_rule_of_its_class_is_refused_by_its_key() -> None:
    stored = {**sent(probe(Person)(PERSON)), "first_name": ""}
    with pytest.raises(MalformedPayload, match=r"key 'value' Person.first_name: String should have at least"):
        deserialize_event("probe", {**json.loads(serialize_event(probe(Person)(PERSON))), "value": stored})


@pytest.mark.parametrize(
    ("declared", "raw", "reason"),
    [
        (timedelta, 5, "holds int where timedelta"),
        (timedelta, "1 day", "holds no ISO 8601 duration"),
        (timedelta, "P", "holds no ISO 8601 duration"),
        (timedelta, "P1DT", "holds no ISO 8601 duration"),
        (timedelta, "PT0.0000001S", "holds no ISO 8601 duration"),
        (timedelta, "P1000000000D", "holds a duration of more days than Python counts"),
        (bytes, 5, "holds int where bytes"),
        (bytes, "a", "holds text that is no base64"),
        (bytes, "YQ==\n", "holds text that is no base64"),
        (bytes, "ü", "holds text that is no base64"),
        (Weight, "5", "holds str where int"),
        (Person, [], "holds list where dict"),
        (Person, {"photo": ""}, "Person.first_name: Field required"),
        (Tags, "a", "holds str where list"),
        (dict[str, Any], [], "holds list where dict"),
    ],
    ids=ascii,
)
def test_a_stored_value_that_does_not_fit_is_refused_by_its_key(declared: Any, raw: Any, reason: str) -> None:
    with pytest.raises(MalformedPayload, match=f"does not fit version 1: key 'value' {reason}"):
        received(probe(declared), raw)


@dataclass
class WithInitVar:
    x: int
    seed: InitVar[int] = 0


@dataclass
class Computed:
    x: int
    double: int = field(init=False, default=0)


@dataclass(eq=False)
class Identity:
    x: int
    y: int


@dataclass
class GenericData(Generic[T]):
    x: T
    y: int


@dataclass
class Twins:
    a_b: int
    aB: int  # noqa: N815 - the clash is the point


@dataclass
class Unfit:
    x: int
    y: complex


@dataclass
class Mutable:
    x: int
    y: int


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: int


class Private(BaseModel):
    x: int
    _y: int = PrivateAttr(default=0)


class ByValue(BaseModel):
    model_config = ConfigDict(use_enum_values=True)
    colour: Colour


class Several(BaseModel):
    x: int | str


class Hidden(BaseModel):
    x: pydantic.SecretStr


class Later(BaseModel):
    x: pydantic.FutureDate


class Decoding(BaseModel):
    x: pydantic.Base64Bytes


class Parsing(BaseModel):
    x: pydantic.Json[list[int]]


class Unready(BaseModel):
    x: "Missing"  # type: ignore[name-defined]  # noqa: F821 - the point


@dataclass
class Undefined:
    x: "Missing"  # type: ignore[name-defined]  # noqa: F821 - the point
    y: int = 0


class Holding(BaseModel):
    model_config = ConfigDict(frozen=True)
    x: list[int]


@attrs.frozen
class Whatever:
    value: Any


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        (WithInitVar, "WithInitVar.seed is an InitVar, which is not kept"),
        (Computed, "Computed.double is compared but is no argument of the constructor"),
        (Identity, "Identity is compared by identity"),
        (GenericData, "GenericData is generic; write a concrete class"),
        (GenericData[int], "GenericData is generic; write a concrete class"),
        (Twins, "Twins: two fields would be stored under the key 'aB'"),
        (Unfit, "Unfit.y: complex does not survive JSON unchanged"),
        (set[Mutable], "Mutable cannot be hashed"),
        (Open, "Open allows extra fields, whose types nobody knows"),
        (Private, "Private._y is compared but is no field, so it cannot be restored"),
        (ByValue, "ByValue holds values where its fields declare an Enum"),
        (Several, "Several.x: a union of several types is ambiguous in JSON.*or Any for free JSON"),
        (Hidden, "Hidden.x: SecretStr does not survive"),
        (Later, "Later.x: FutureDate does not survive"),
        (Decoding, r"Decoding.x is decoded by pydantic \(EncodedBytes\) each time"),
        (Parsing, r"Parsing.x is decoded by pydantic \(Json\) each time"),
        (Unready, r"the annotation of a field cannot be resolved \(name 'Missing' is not defined\)"),
        (Undefined, r"the annotation of a field cannot be resolved \(name 'Missing' is not defined\)"),
        (Page, "Page is generic; write a concrete class"),
        (set[Place], "Place cannot be hashed"),
        (set[Holding], "Holding cannot be hashed"),
        (list[Several], "a union of several types"),
        (set[Any], "Any cannot be hashed"),
        (dict[Any, int], "a dict on the wire has str, int, UUID or Enum keys"),
        (Whatever | None, "Optional of Whatever, whose own value is Optional, leaves None ambiguous"),
    ],
    ids=str,
)
def test_what_cannot_come_back_is_refused_at_registration(declared: Any, sentence: str) -> None:
    with pytest.raises(DefinitionError, match=rf"event 'probe', field 'value'.*{sentence}"):
        probe(declared)


def test_an_older_pydantic_is_refused_at_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pydantic, "VERSION", "2.9.1")
    with pytest.raises(
        DefinitionError, match=r"pydantic 2.9.1 is installed, and models travel with 2.11 or newer"
    ):
        probe(Place)


def test_names_that_pydantic_gives_to_text_moments_and_addresses_are_known() -> None:
    class Visit(BaseModel):
        at: pydantic.AwareDatetime
        pages: list[pydantic.HttpUrl]

    visit = Visit(at=MOMENT, pages=[pydantic.HttpUrl("https://example.org/a?b=c")])
    found = probe(Visit)(visit)
    assert sent(found)["pages"] == ["https://example.org/a?b=c"]
    assert restored(found) == found
    assert restored(probe(list[pydantic.EmailStr], name="mails")(["a@b"])).value == ["a@b"]
    with pytest.raises(UnserializableEvent, match="holds str where HttpUrl"):
        serialize_event(probe(pydantic.HttpUrl, name="url")("https://example.org"))
    with pytest.raises(MalformedPayload, match="holds int where HttpUrl"):
        received(probe(pydantic.HttpUrl, name="url", version=2), 5)
