"""K12: given, when, then, and differences that a person can read."""

from dataclasses import dataclass
from typing import Annotated, Any
from unittest import mock
from uuid import UUID, uuid4

import attrs
import pytest
from pydantic import BaseModel

from outbox_kernel.kernel import AggregateRoot, DomainEvent, EventBus, aggregate, applies, event, sensitive
from outbox_kernel.kernel.testing import (
    ANY,
    FrozenClock,
    InMemoryStore,
    InMemoryUnitOfWork,
    assert_recorded,
    exactly,
    given,
    using_clock,
    when,
)


@attrs.frozen
class Email:
    value: str


@event("kit.opened")
class Opened(DomainEvent):
    owner: str
    email: Email = Email("a@b")
    token: str = sensitive(default="s3cret")


@event("kit.closed")
class Closed(DomainEvent):
    reason: str


@event("kit.audited")
class Audited(DomainEvent):
    pass


@aggregate("kit.account")
class Account(AggregateRoot):
    id: UUID
    closed: bool = False

    @classmethod
    def open(cls, owner: str) -> "Account":
        account = cls(uuid4())
        account.record(Opened(owner))
        return account

    def close(self, reason: str) -> None:
        if self.closed:
            raise ValueError("the account is closed already")
        self.closed = True
        self.record(Closed(reason))

    def split(self) -> "Account":
        self.record(Audited())
        return Account.open("other")


@aggregate("kit.sourced")
class Sourced(AggregateRoot):
    id: UUID
    reason: str = ""

    @applies(Opened)
    def _opened(self, opened: Opened) -> None:
        self.id = UUID(opened.owner)

    @applies(Closed)
    def _closed(self, closed: Closed) -> None:
        self.reason = closed.reason


def failure(*expected: Any, found: list[DomainEvent]) -> list[str]:
    with pytest.raises(AssertionError) as refused:
        assert_recorded(found, *expected)
    return str(refused.value).splitlines()


def test_a_behaviour_reads_as_a_sentence() -> None:
    given(Account.open("ada")).when(lambda account: account.close("asked")).then(Closed("asked"))
    when(lambda: Account.open("ada")).then(Opened("ada"))


def test_what_led_to_the_start_is_not_part_of_the_outcome() -> None:
    account = Account.open("ada")
    given(account).when(lambda _: None).then_nothing()
    assert account.version == 1
    given(account).when(lambda _: account.close("asked")).then(Closed("asked"))
    assert account.recorded_events[0].aggregate_version == 2


def test_an_aggregate_may_start_from_its_history() -> None:
    history = Opened(str(uuid4())), Closed("asked")
    start = given(Sourced, *history)
    assert start.aggregate.reason == "asked"
    start.when(lambda account: account.record(Closed("again"))).then(Closed("again"))
    with pytest.raises(TypeError, match="a history with a class"):
        given(Account.open("ada"), *history)


def test_a_refusal_reads_as_a_sentence() -> None:
    account = Account.open("ada")
    account.close("asked")
    given(account).when(lambda account: account.close("again")).then_raises(
        ValueError, match="closed already"
    )


def test_an_expected_refusal_that_does_not_come_says_what_came_instead() -> None:
    outcome = given(Account.open("ada")).when(lambda account: account.close("asked"))
    with pytest.raises(AssertionError, match=r"ValueError was expected.*recorded: Closed\(reason='asked'\)"):
        outcome.then_raises(ValueError)
    with pytest.raises(AssertionError, match="recorded: nothing"):
        when(lambda: None).then_raises(ValueError)


def test_a_refusal_with_other_words_shows_both() -> None:
    outcome = when(lambda: int("x"))
    with pytest.raises(AssertionError, match="ValueError was raised as expected, but 'y' is not found in"):
        outcome.then_raises(ValueError, match="y")


@pytest.mark.parametrize("check", ["then_nothing", "then", "then_raises"])
def test_an_error_that_nobody_expected_comes_out(check: str) -> None:
    outcome = when(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        getattr(outcome, check)(*([KeyError] if check == "then_raises" else []))


def test_the_result_of_the_action_is_at_hand() -> None:
    assert when(lambda: 5).then_nothing().result == 5


def test_the_events_of_both_the_aggregate_and_the_one_it_made_count() -> None:
    given(Account.open("ada")).when(Account.split).then(Audited(), Opened("other"))


def test_an_action_that_has_to_be_awaited_is_refused() -> None:
    async def later() -> None: ...

    waiting = later()
    with pytest.raises(TypeError, match=r"await a use case and assert_recorded\(uow"):
        when(lambda: waiting)
    waiting.close()


async def test_every_source_can_be_asked() -> None:
    account, uow, bus = Account.open("ada"), InMemoryUnitOfWork(), EventBus()
    assert_recorded(account, Opened("ada"))
    async with uow:
        uow.repository(Account).add(account)
        await uow.commit()
    assert_recorded(uow, Opened("ada"))
    assert_recorded(uow.store, Opened("ada"))
    assert_recorded(InMemoryStore())
    bus.emit(Audited())
    assert_recorded(bus.collect(), Audited())
    assert_recorded(iter([Audited()]), Audited())


def test_id_and_moment_are_not_compared_unless_they_are_asked_for() -> None:
    found = Closed("asked")
    assert_recorded([found], Closed("asked"))
    assert_recorded([found], exactly(found))
    assert_recorded([found], exactly(Closed("asked", event_id=ANY, occurred_at=found.occurred_at)))
    lines = failure(exactly(Closed("asked", occurred_at=found.occurred_at)), found=[found])
    assert [line.partition(":")[0].strip() for line in lines[3:]] == ["event 1, Closed.event_id"]
    with using_clock(FrozenClock()):
        one = Closed("asked")
    with using_clock(FrozenClock()):
        assert_recorded([one], exactly(Closed("asked")))


def test_any_stands_for_any_value() -> None:
    assert ANY is mock.ANY
    assert_recorded([Opened("ada", Email("x"))], Opened(ANY, Email(ANY), token=ANY))


def test_a_class_stands_for_any_event_of_it() -> None:
    assert_recorded([Closed("asked"), Audited()], Closed, Audited)
    assert failure(Closed, found=[Audited()])[-2:] == [
        "  missing: Closed(…), expected as event 1",
        "  not expected: event 1, Audited()",
    ]


def test_a_difference_names_event_field_and_both_values() -> None:
    assert failure(Audited(), Closed("fraud"), found=[Audited(), Closed("asked")]) == [
        "these events were recorded:",
        "  1. Audited()",
        "  2. Closed(reason='asked')",
        "they differ from the expected ones:",
        "  event 2, Closed.reason: expected 'fraud', found 'asked'",
    ]


def test_a_missing_event_does_not_make_the_following_ones_wrong() -> None:
    lines = failure(Opened("a"), Audited(), Closed("b"), found=[Opened("a"), Closed("b")])
    assert lines[4:] == ["  missing: Audited(), expected as event 2"]


def test_an_event_too_many_is_named() -> None:
    lines = failure(Closed("b"), found=[Audited(), Closed("b")])
    assert lines[4:] == ["  not expected: event 1, Audited()"]


def test_nothing_recorded_is_said_in_words() -> None:
    assert failure(Audited(), found=[]) == [
        "no events were recorded:",
        "  missing: Audited(), expected as event 1",
    ]


def test_no_secret_is_in_a_difference() -> None:
    text = "\n".join(failure(Opened("ada", token="0ther"), found=[Opened("ada")]))
    assert "event 1, Opened.token: differs (masked)" in text
    assert "s3cret" not in text
    assert "0ther" not in text


@attrs.frozen
class Crate:
    items: list[int]
    code: str = sensitive(default="")


@dataclass
class Box:
    items: list[int]


class Sheet(BaseModel):
    items: list[int]
    code: Annotated[str, sensitive()] = ""


class Shape:
    """It shows nothing of what it holds."""

    def __init__(self, corners: int) -> None:
        self.corners = corners

    def __repr__(self) -> str:
        return "a shape"


class Rounded(Shape):
    """And shows itself as the other does."""


@attrs.frozen(eq=False)
class Token:
    """It equals none but itself, whatever it holds."""

    number: int = 1


# Not under @event, since what it holds is only compared here.
@attrs.frozen
class Packed(DomainEvent):
    value: object


@pytest.mark.parametrize(
    ("wanted", "found", "line"),
    [
        ([*range(9), 99], [*range(9), 9], "[9]: expected 99, found 9"),
        ([*range(9)], [*range(8)], "[8:]: expected [8], found []"),
        (tuple(range(9)), (*range(8), -8), "[8]: expected 8, found -8"),
        ([[*range(9)]], [[*range(8), 0]], "[0][8]: expected 8, found 0"),
        ("x" * 200 + "A" + "y" * 200, "x" * 200 + "B" + "y" * 200, "[200:]: expected 'Ayy"),
        ("x" * 400, "x" * 399, None),
        (dict.fromkeys(range(9), 1), dict.fromkeys(range(9), 1) | {8: 2}, "[8]: expected 1, found 2"),
        (dict.fromkeys(range(9)), dict.fromkeys([*range(8), 9]), ".keys(): expected [8], found [9]"),
        (set(range(9)), {*range(8), 9}, " alone: expected {8}, found {9}"),
        (Crate([*range(60)]), Crate([*range(30), 0, *range(31, 60)]), ".items[30]: expected 30, found 0"),
        (Crate([], "a"), Crate([], "b"), ".code: differs, and both are shown as ***"),
        (Box([*range(60)]), Box([*range(30), 0, *range(31, 60)]), ".items[30]: expected 30, found 0"),
        (
            Sheet(items=[*range(60)]),
            Sheet(items=[*range(30), 0, *range(31, 60)]),
            ".items[30]: expected 30, found 0",
        ),
        ([[1]], [(1,)], ": expected [[1]], found [(1,)]"),
        (Shape(3), Shape(4), ": differs, and both are shown as a shape"),
        (Token(), Token(), ": differs, and both are shown as Token(number=1)"),
        ([Shape(3)], [Rounded(3)], "[0]: differs, and both are shown as a shape"),
    ],
    ids=str,
)
def test_a_difference_in_a_long_value_is_shown_where_it_is(wanted: Any, found: Any, line: str | None) -> None:
    """K12."""
    (shown,) = failure(Packed(wanted), found=[Packed(found)])[3:]
    before, _, after = shown.partition("Packed.value")
    assert before == "  event 1, "
    assert after.startswith(line or "[399:]: expected 'x', found ''")


def test_each_when_starts_from_what_was_given() -> None:
    """K12."""
    account = Account.open("ada")
    start = given(account)
    start.when(lambda account: account.close("asked")).then(Closed("asked"))
    start.when(lambda account: account.close("fraud")).then(Closed("fraud"))
    assert (account.closed, account.version) == (True, 2)


def test_a_long_value_is_shortened() -> None:
    lines = failure(Closed("x" * 5_000), found=[Closed("y" * 5_000)])
    assert max(map(len, lines)) < 400


@pytest.mark.parametrize("expected", [ANY, "kit.closed", 5, None, Account])
def test_what_can_be_no_event_is_not_expected(expected: Any) -> None:
    """K12: and the sentence says what can."""
    for expect in (
        lambda: assert_recorded([Closed("asked")], expected),
        lambda: given(Account(uuid4())).when(lambda account: account.close("asked")).then(expected),
    ):
        with pytest.raises(
            TypeError, match=r"an expected event is an event, an event class .*ANY stands for"
        ):
            expect()


@pytest.mark.parametrize("source", [5, "kit.closed", None, ["kit.closed"], Account])
def test_what_holds_no_events_is_not_asked_for_them(source: Any) -> None:
    """K12."""
    with pytest.raises(
        TypeError, match="assert_recorded takes an aggregate, an in-memory unit of work, its store"
    ):
        assert_recorded(source, Closed("asked"))


@pytest.mark.parametrize("start", [5, "kit.account", Closed, Closed("asked")])
def test_only_an_aggregate_is_given(start: Any) -> None:
    """K12."""
    with pytest.raises(
        TypeError, match=r"given.* takes an aggregate, or an aggregate's class with its history"
    ):
        given(start)
