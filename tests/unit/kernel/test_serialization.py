"""K8: what is written comes back equal, type for type, in both layouts; what would not is refused."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from threading import Barrier, Thread
from typing import Any, Literal, NewType
from uuid import UUID, uuid4

import attrs
import pytest

from outbox_kernel.errors import MalformedPayload, UnserializableEvent
from outbox_kernel.kernel import DomainEvent, deserialize_event, event, serialize_event
from outbox_kernel.kernel.limits import PAYLOAD_BYTES_MAX
from outbox_kernel.kernel.testing.copying import same_state
from outbox_kernel.kernel.wire.converter import converter_for
from tests.unit.kernel.probes import Layout, probe, received, restored, sent

UserId = NewType("UserId", UUID)
HAIR = timezone(timedelta(microseconds=1))
UUID_1 = UUID("01890000-0000-7000-8000-000000000001")

layouts = pytest.mark.parametrize("layout", ["snake", "camel"])


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Number(IntEnum):
    ONE = 1
    MINUS = -1


class Text(str, Enum):  # noqa: UP042 - the older spelling is met more often
    A = "a"


class Right(Flag):
    READ = 1
    WRITE = 2


@attrs.frozen
class Amount:
    value: Decimal


@attrs.frozen
class Email:
    address: str


@attrs.frozen
class Wrapped:
    email: Email


@attrs.frozen
class Line:
    unit_price: Amount
    sold_to: Email | None = None


@attrs.define
class Tree:
    children: list["Tree"]


@attrs.frozen
class Chain:
    number: int
    rest: "Chain | None" = None


@attrs.define
class Node:
    node_name: str
    child_nodes: list["Node"]
    next_node: "Node | None" = None


@attrs.frozen
class Private:
    _hidden: int
    shown: int


@layouts
@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (str, 'naïve 🐍 \u2028 " \\ \n'),
        (int, -(2**70)),
        (float, 0.1),
        (float, 1e300),
        (float, 5e-324),
        (float, -0.0),
        (bool, True),
        (UUID, UUID_1),
        (UserId, UUID_1),
        (datetime, datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)),
        (datetime, datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
        (datetime, datetime.min.replace(tzinfo=UTC)),
        (date, date(2026, 1, 2)),
        (Decimal, Decimal("1.50")),
        (Decimal, Decimal("-1E+30")),
        (Colour, Colour.BLUE),
        (Number, Number.MINUS),
        (Text, Text.A),
        (Right, Right.READ | Right.WRITE),
        (Right, Right(0)),
        (Literal["a", 1, True], True),
        (Literal["a", 1, True], 1),
        (Amount, Amount(Decimal("2.00"))),
        (Wrapped, Wrapped(Email("a@b"))),
        (Line, Line(Amount(Decimal(1)), Email("a@b"))),
        (Line, Line(Amount(Decimal(1)))),
        (Private, Private(1, 2)),
        (Tree, Tree([Tree([]), Tree([Tree([])])])),
        (Node, Node("a", [Node("b", [])], Node("c", []))),
        (Email | None, None),
        (Email | None, Email("a@b")),
        (list[Email | None], [None, Email("a@b")]),
        (list[int] | None, []),
        (set[Email], {Email("a"), Email("b")}),
        (frozenset[Number], frozenset({Number.ONE})),
        (tuple[int, str, Email], (1, "a", Email("b"))),
        (tuple[Text, ...], (Text.A, Text.A)),
        (tuple[int, ...], ()),
        (dict[str, int], {"": 1, "b c": 2}),
        (dict[int, str], {-1: "a", 2: "b"}),
        (dict[UUID, list[Amount]], {UUID_1: [Amount(Decimal(1))]}),
        (dict[UserId, int], {UUID_1: 1}),
        (dict[Colour, Colour], {Colour.RED: Colour.BLUE}),
        (dict[Number, int], {Number.MINUS: 1}),
        (dict[Right, int], {Right.READ | Right.WRITE: 1}),
        (dict[Email, Email], {Email("a"): Email("b")}),
        (dict[Wrapped, int], {Wrapped(Email("a")): 1}),
    ],
    ids=repr,
)
def test_every_value_comes_back_equal_and_of_its_own_type(declared: Any, value: Any, layout: Layout) -> None:
    found = probe(declared, layout)(value)
    back = restored(found)
    assert back == found
    assert same_state(back, found)


def test_id_and_moment_come_back_too() -> None:
    found = probe(int)(1)
    back = restored(found)
    assert (back.event_id, back.occurred_at) == (found.event_id, found.occurred_at)


@attrs.frozen
class Veiled:
    _first_name: str
    shown: int


def test_a_private_field_is_camel_cased_by_its_words() -> None:
    """K8."""
    found = probe(Veiled, "camel")(Veiled("ada", 1))
    assert sent(found) == {"firstName": "ada", "shown": 1}
    assert restored(found) == found


def test_a_value_object_is_bare_in_snake_and_wrapped_in_camel() -> None:
    assert sent(probe(Email)(Email("a@b"))) == "a@b"
    assert sent(probe(Email, "camel", "other")(Email("a@b"))) == {"value": "a@b"}
    assert sent(probe(dict[Email, Email], "camel", "keys")({Email("a"): Email("b")})) == {"a": {"value": "b"}}


def test_keys_follow_the_layout_all_the_way_down() -> None:
    line = Line(Amount(Decimal(1)))
    assert sent(probe(Line)(line)) == {"unit_price": "1", "sold_to": None}
    assert sent(probe(Line, "camel", "other")(line)) == {"unitPrice": {"value": "1"}, "soldTo": None}


def test_a_payload_may_be_a_dict_or_text() -> None:
    found = probe(int)(1)
    text = serialize_event(found)
    import json

    assert deserialize_event("probe", text) == deserialize_event("probe", json.loads(text)) == found


def test_text_may_have_blanks_around_it() -> None:
    found = probe(int)(5)
    assert all(
        same_state(deserialize_event("probe", text), found)
        for text in (f" {serialize_event(found)}", f"{serialize_event(found)}\n")
    )


def test_what_stands_in_the_payload_and_no_field_is_ignored() -> None:
    assert received(probe(Line), {"unit_price": "1", "sold_to": None, "later": 5}) == Line(Amount(Decimal(1)))


def test_a_missing_key_takes_the_fields_default() -> None:
    assert received(probe(Line), {"unit_price": "1"}) == Line(Amount(Decimal(1)))


@pytest.mark.parametrize(
    ("declared", "value", "reason"),
    [
        (str, 5, "holds int where str is declared"),
        (str, "a\0b", "holds a NUL character, which PostgreSQL cannot store"),
        (str, "\ud800", "holds a lone surrogate"),
        (str, None, "holds NoneType where str"),
        (int, True, "holds bool where int"),
        (int, 1.0, "holds float where int"),
        (float, float("nan"), "holds nan, which JSON cannot carry"),
        (float, float("inf"), "holds inf, which JSON cannot carry"),
        (float, 2**53 + 1, "holds an int that no float equals"),
        (float, 10**400, "holds an int that no float equals"),
        (float, True, "holds bool where float"),
        (bool, 1, "holds int where bool"),
        (UUID, str(UUID_1), "holds str where UUID"),
        (datetime, datetime(2026, 1, 2), "holds a naive datetime; give it a time zone"),  # noqa: DTZ001
        (datetime, datetime(2026, 1, 2, tzinfo=HAIR), "holds an offset from UTC with a fraction of a second"),
        (datetime, date(2026, 1, 2), "holds date where datetime"),
        (date, datetime(2026, 1, 2, tzinfo=UTC), "holds datetime where date"),
        (date, "2026-01-02", "holds str where date"),
        (Decimal, 1, "holds int where Decimal"),
        (Decimal, Decimal("NaN"), "holds the Decimal NaN"),
        (Decimal, Decimal("Infinity"), "holds the Decimal Infinity"),
        (Colour, "red", "holds str where Colour"),
        (Text, "a", "holds str where Text"),
        (Number, 1, "holds int where Number"),
        (Text | None, "a", "holds str where Text"),
        (list[Text], ["a"], "holds str where Text"),
        (Literal["a", 1], True, "holds True, which its Literal does not list"),
        (Amount, Decimal(1), "holds Decimal where Amount"),
        (Amount, Amount(1), "holds int where Decimal"),  # type: ignore[arg-type]
        (Line, Amount(Decimal(1)), "holds Amount where Line"),
        (Email | None, "a@b", "holds str where Email"),
        (list[int], (1,), "holds tuple where list"),
        (list[int], ["1"], "holds str where int"),
        (set[int], [1], "holds list where set"),
        (tuple[int, str], (1,), "holds 1 members where 2 are declared"),
        (tuple[int, str], [1, "a"], "holds list where tuple"),
        (dict[str, int], [("a", 1)], "holds list where dict"),
        (dict[str, int], {1: 1}, "holds int where str"),
        (dict[str, int], {"a\0": 1}, "holds a NUL"),
    ],
    ids=repr,
)
def test_a_value_of_another_type_is_refused_with_event_field_and_reason(
    declared: Any, value: Any, reason: str
) -> None:
    with pytest.raises(
        UnserializableEvent, match=f"event 'probe' cannot be stored: field 'value' {reason}"
    ) as refused:
        serialize_event(probe(declared)(value))
    assert (refused.value.event_type, refused.value.field) == ("probe", "value")


@pytest.mark.parametrize("declared", [int, str, UUID])
def test_a_missing_value_is_refused_with_what_to_do_also_if_it_is_an_id_that_the_row_makes(
    declared: Any,
) -> None:
    """C7, C10: the mistake is `self.record(Opened(self.id))` on what has no id yet."""
    name = "uuid.UUID" if declared is UUID else declared.__name__
    with pytest.raises(UnserializableEvent) as refused:
        serialize_event(probe(declared)(None))
    assert str(refused.value) == (
        f"event 'probe' cannot be stored: field 'value' holds NoneType where {declared.__name__} is declared: give it "
        f"a value, or declare it `{name} | None`; an id that the row makes is in `event.aggregate_key`, so that the "
        "event need not hold it"
    )


@pytest.mark.parametrize("declared", [Decimal, list[int]])
def test_a_missing_value_that_can_be_no_id_is_refused_without_a_word_of_ids(declared: Any) -> None:
    """C7."""
    with pytest.raises(UnserializableEvent, match=r"give it a value, or declare it `[\w.\[\]]+ \| None`$"):
        serialize_event(probe(declared)(None))


def test_an_event_without_a_zone_is_refused() -> None:
    with pytest.raises(UnserializableEvent, match="field 'occurred_at' holds a naive datetime"):
        serialize_event(probe(int)(1, occurred_at=datetime(2026, 1, 2)))  # noqa: DTZ001


def test_an_int_counts_as_the_float_it_equals() -> None:
    assert restored(probe(float)(5)).value == 5.0


def test_a_payload_over_the_limit_is_refused_by_its_largest_field() -> None:
    @event("large")
    class Large(DomainEvent):
        small: str
        content: str

    with pytest.raises(
        UnserializableEvent, match="field 'content' takes 2,000,002 bytes, and 1,048,576 are"
    ) as refused:
        serialize_event(Large("x" * 1000, "x" * 2_000_000))
    assert refused.value.field == "content"


def test_the_limit_is_in_bytes_not_in_characters() -> None:
    frame = len(serialize_event(probe(str)("")))
    fits = (PAYLOAD_BYTES_MAX - frame) // 4
    assert len(serialize_event(probe(str, name="fits")("🐍" * fits))) < PAYLOAD_BYTES_MAX
    with pytest.raises(UnserializableEvent, match="are the limit for a payload"):
        serialize_event(probe(str, name="large")("🐍" * (fits + 1)))


def test_a_structure_too_deep_to_walk_is_refused() -> None:
    chain = Chain(0)
    for number in range(2_000):
        chain = Chain(number, chain)
    with pytest.raises(UnserializableEvent, match="field 'value' is nested too deeply; flatten it"):
        serialize_event(probe(Chain)(chain))


@pytest.mark.parametrize(
    ("declared", "raw", "reason"),
    [
        (str, 5, "holds int where str is declared"),
        (int, True, "holds bool where int"),
        (int, 1.0, "holds float where int"),
        (float, "1", "holds str where float"),
        (float, True, "holds bool where float"),
        (bool, 1, "holds int where bool"),
        (UUID, "no uuid", "badly formed"),
        (UUID, 5, "holds int where UUID"),
        (datetime, "2026-01-02T03:04:05", "holds a moment without its offset"),
        (datetime, "yesterday", "Invalid isoformat string"),
        (date, "2026-01-02T03:04:05", "Invalid isoformat string"),
        (Decimal, "NaN", "holds a Decimal that is no number"),
        (Decimal, 1.5, "holds float where Decimal"),
        (Colour, "green", "'green' is not a valid Colour"),
        (Number, True, "holds bool where int"),
        (Right, True, "holds bool where Right"),
        (Text, "b", "'b' is not a valid"),
        (Literal["a", 1], True, "holds True, which its Literal"),
        (Email, None, "holds NoneType where str"),
        (Line, [1], "list indices must be"),
        (list[str], "abc", "holds str where list"),
        (list[str], {"a": 1}, "holds dict where list"),
        (set[str], "abc", "holds str where list"),
        (tuple[int, str], [1], "holds 1 members where 2 are declared"),
        (tuple[int, ...], "12", "holds str where list"),
        (dict[str, int], [1], "holds list where dict"),
        (dict[int, int], {"x": 1}, "invalid literal for int"),
        (dict[Colour, int], {"green": 1}, "'green' is not a valid Colour"),
    ],
    ids=repr,
)
def test_a_stored_value_of_another_type_is_refused_by_its_key(declared: Any, raw: Any, reason: str) -> None:
    sentence = f"stored payload of event 'probe' does not fit version 1: key 'value' .*{reason}"
    with pytest.raises(MalformedPayload, match=sentence):
        received(probe(declared), raw)


def test_a_stored_payload_without_a_needed_key_is_refused_by_that_key() -> None:
    found = probe(int, "camel")
    with pytest.raises(MalformedPayload, match="key 'value' holds NoneType"):
        received(found, None)
    with pytest.raises(MalformedPayload, match="key 'value' is missing"):
        deserialize_event("probe", {"eventId": str(UUID_1), "occurredOn": "2026-01-02T00:00:00+00:00"})


@pytest.mark.parametrize("payload", ["no json", "", '{"a": NaN}', "[" * 100_000, None, 5, b"\xff"])
def test_what_is_no_json_is_refused(payload: Any) -> None:
    probe(int)
    with pytest.raises(MalformedPayload, match="the stored payload of event 'probe' is not JSON"):
        deserialize_event("probe", payload)


def test_a_key_with_a_default_may_be_missing_beside_one_that_does_not_fit() -> None:
    @event("partial")
    class Partial(DomainEvent):
        note: str = ""
        amount: int = 0

    head = {"event_id": str(UUID_1), "occurred_at": "2026-01-02T00:00:00+00:00"}
    assert deserialize_event("partial", head) == Partial(
        event_id=UUID_1, occurred_at=datetime(2026, 1, 2, tzinfo=UTC)
    )
    with pytest.raises(MalformedPayload, match="key 'amount' holds str where int"):
        deserialize_event("partial", {**head, "amount": "5"})


def test_a_rule_of_the_class_itself_is_quoted() -> None:
    @event("ruled")
    class Ruled(DomainEvent):
        least: int
        most: int

        def __attrs_post_init__(self) -> None:
            if self.least > self.most:
                raise ValueError("the least is more than the most")

    stored = serialize_event(Ruled(1, 2)).replace('"most":2', '"most":0')
    with pytest.raises(MalformedPayload, match="version 1: ValueError: the least is more than the most"):
        deserialize_event("ruled", stored)


@pytest.mark.parametrize("payload", ["[]", '"text"', "5", "null"])
def test_a_payload_that_is_no_object_is_refused(payload: str) -> None:
    probe(int)
    with pytest.raises(MalformedPayload, match="not an object"):
        deserialize_event("probe", payload)


def test_there_is_one_converter_per_layout() -> None:
    assert converter_for("snake") is converter_for("snake")
    assert converter_for("snake") is not converter_for("camel")


def test_threads_that_meet_a_new_class_at_once_all_write_it() -> None:
    @attrs.define
    class Leaf:
        deep: list[Tree]
        flat: int

    found, together, written = probe(list[Leaf])([Leaf([Tree([])], 1)]), Barrier(4), list[str]()

    def write() -> None:
        together.wait()
        written.append(serialize_event(found))

    threads = [Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(written) == 4
    assert len(set(written)) == 1


def test_a_hook_that_could_not_be_built_is_built_when_it_is_asked_for_again() -> None:
    from outbox_kernel.kernel.wire.converter import _once_per_class

    answers: list[Any] = [ZeroDivisionError(), len]

    def build(_: type[Any]) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    hook_for = _once_per_class(build)
    with pytest.raises(ZeroDivisionError):
        hook_for(str)
    assert hook_for(str) is hook_for(str) is len


def test_the_id_of_an_event_is_text() -> None:
    event_id = uuid4()
    assert f'"event_id":"{event_id}"' in serialize_event(probe(int)(1, event_id=event_id))
