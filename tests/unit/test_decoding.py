"""K8, K9: the fast way of a payload into its event, and where it leaves the word to the kernel."""

from __future__ import annotations

import copy
import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import attrs
import pytest

from contexts.accounts.events import AccountCreated, AccountRole
from outbox_kernel.errors import MalformedPayload, UnknownEventType, UnknownEventVersion
from outbox_kernel.infrastructure.outbox import decoding
from outbox_kernel.infrastructure.outbox.decoding import decoder_for
from outbox_kernel.kernel import DomainEvent, deserialize_event, event, sensitive, serialize_event, upcasts
from outbox_kernel.kernel.catalogue import event_type_of
from outbox_kernel.kernel.clock import new_id
from outbox_kernel.kernel.events import stamp_event
from outbox_kernel.kernel.testing import isolated_definitions
from outbox_kernel.kernel.testing.copying import same_state

HEAD = {"event_id": "01890000-0000-7000-8000-000000000001", "occurred_at": "2026-01-02T03:04:05+00:00"}


@pytest.fixture(autouse=True)
def isolated() -> Iterator[None]:
    with isolated_definitions():
        yield


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The events of which the kernel was asked."""
    names: list[str] = []

    def ask(name: str, *given: Any) -> DomainEvent:
        names.append(name)
        return deserialize_event(name, *given)

    monkeypatch.setattr(decoding, "deserialize_event", ask)
    return names


def payload(**fields: Any) -> str:
    return json.dumps({**HEAD, **fields})


def decoded(cls: type[Any], text: str) -> Any:
    """What is decoded, which is what the kernel would give."""
    kind = event_type_of(cls)
    found = decoder_for(kind.name, kind.version)(text)
    assert same_state(found, deserialize_event(kind.name, text, kind.version))
    return found


def test_an_event_comes_back_as_it_was_without_the_kernel(asked: list[str]) -> None:
    found = AccountCreated(new_id(), "ada@example.com", AccountRole.MEMBER)
    back = decoded(AccountCreated, serialize_event(found))
    assert asked == []
    assert back == found
    assert (hash(back), repr(back)) == (hash(found), repr(found))
    for twin in (copy.copy(back), copy.deepcopy(back), pickle.loads(pickle.dumps(back)), attrs.evolve(back)):  # noqa: S301
        assert twin == found
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        back.email = "eve@example.com"
    stamp_event(back, "account", found.account_id, 1)
    assert back.aggregate_version == 1


def test_what_a_payload_leaves_out_has_its_default(asked: list[str]) -> None:
    @event("moved")
    class Moved(DomainEvent):
        street: str
        city: str = "?"
        floors: list[int] = attrs.field(factory=list)
        sign: str = attrs.field(default=attrs.Factory(lambda self: self.street[:1], takes_self=True))

    there = decoded(Moved, payload(street="Elm"))
    assert (there.city, there.floors, there.sign) == ("?", [], "E")
    assert decoded(Moved, payload(street="Elm", floors=[1], city="Ulm", sign="x")).floors == [1]
    assert asked == []


def test_an_event_without_id_or_moment_is_left_to_the_kernel(asked: list[str]) -> None:
    @event("moved")
    class Moved(DomainEvent):
        pass

    assert decoder_for("moved", 1)("{}").occurred_at.tzinfo is UTC
    assert asked == ["moved"]


def test_a_key_that_nobody_knows_is_ignored_as_the_kernel_does(asked: list[str]) -> None:
    @event("moved")
    class Moved(DomainEvent):
        street: str

    assert decoded(Moved, payload(street="Elm", colour=[1])).street == "Elm"
    assert asked == ["moved"]


def test_a_version_in_the_payload_is_no_field() -> None:
    @event("moved", layout="camel", version=2)
    class Moved(DomainEvent):
        next_street: str

    head = {"eventId": HEAD["event_id"], "occurredOn": HEAD["occurred_at"], "nextStreet": "Elm"}
    for said in ({}, {"eventVersion": 2}, {"eventVersion": 1}, {"eventVersion": "two"}):
        assert decoded(Moved, json.dumps({**head, **said})).next_street == "Elm"


def test_a_moment_is_cut_off_where_python_cuts_it_off() -> None:
    @event("moved")
    class Moved(DomainEvent):
        at: datetime

    there = decoded(Moved, payload(at="2026-01-02T03:04:05.9999999+02:00"))
    assert there.at == datetime(2026, 1, 2, 3, 4, 5, 999_999, timezone(timedelta(hours=2)))


def test_the_moment_of_an_event_is_in_utc_wherever_it_was_written() -> None:
    @event("moved")
    class Moved(DomainEvent):
        pass

    there = decoded(Moved, payload(occurred_at="2026-01-02T03:04:05+02:00"))
    assert there.occurred_at == datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)
    assert there.occurred_at.tzinfo is UTC


def test_a_constructor_that_does_more_than_to_fill_is_called(asked: list[str]) -> None:
    @event("counted")
    class Counted(DomainEvent):
        number: int = attrs.field(validator=attrs.validators.ge(1))

    @event("named")
    class Named(DomainEvent):
        name: str = attrs.field(converter=str.upper)

    @event("doubled")
    class Doubled(DomainEvent):
        number: int
        seen: list[int] = attrs.field(init=False, eq=False, factory=list)

        def __attrs_post_init__(self) -> None:
            self.seen.append(self.number * 2)

    @event("written")
    class Written(DomainEvent):
        number: int

        def __init__(self, number: int, **head: Any) -> None:
            self.__attrs_init__(number + 1, **head)  # type: ignore[attr-defined]

    @event("made")
    class Made(DomainEvent):
        number: int

        def __new__(cls, *_: Any, **__: Any) -> Any:
            made = super().__new__(cls)
            made.__dict__["made"] = True
            return made

    assert decoded(Counted, payload(number=1)).number == 1
    assert decoded(Named, payload(name="ada")).name == "ADA"
    assert decoded(Doubled, payload(number=2)).seen == [4]
    assert asked == []
    # Of these the kernel alone knows how it calls them.
    assert decoded(Written, payload(number=1)).number == 2
    assert vars(decoded(Made, payload(number=1)))["made"]
    assert asked == ["written", "made"]
    with pytest.raises(MalformedPayload):
        decoder_for("counted", 1)(payload(number=0))


def test_a_slot_of_a_base_is_filled() -> None:
    @attrs.frozen
    class Slotted:
        street: str

    @event("moved")
    class Moved(Slotted, DomainEvent):
        pass

    there = decoded(Moved, payload(street="Elm"))
    assert there.street == "Elm"


def test_a_class_that_cannot_be_made_is_told_as_the_kernel_tells_it() -> None:
    @event("moved")
    class Moved(DomainEvent, ABC):
        street: str

        @abstractmethod
        def anything(self) -> None: ...

    with pytest.raises(MalformedPayload, match="abstract"):
        decoder_for("moved", 1)(payload(street="Elm"))


@attrs.define
class Basket:
    fruits: list[str]
    copies: int = attrs.field(default=0, eq=False)

    def __copy__(self) -> Basket:
        return Basket(self.fruits, self.copies + 1)


def test_an_object_that_could_be_changed_is_copied_as_the_constructor_does(asked: list[str]) -> None:
    @event("packed")
    class Packed(DomainEvent):
        basket: Basket
        baskets: dict[str, Basket]

    there = decoded(Packed, payload(basket={"fruits": ["fig"]}, baskets={"a": {"fruits": []}}))
    assert (there.basket.copies, there.baskets["a"].copies) == (1, 1)
    assert asked == []


@attrs.frozen(init=False)
class Turned:
    first: str
    second: str

    def __init__(self, second: str, first: str) -> None:
        self.__attrs_init__(first, second)


def test_a_constructor_in_another_order_is_called_as_the_kernel_calls_it() -> None:
    @event("turned")
    class TurnedRound(DomainEvent):
        turned: Turned

    assert decoded(TurnedRound, payload(turned={"first": "a", "second": "b"})).turned.first == "b"


def test_an_older_version_is_lifted_and_one_not_known_is_refused(asked: list[str]) -> None:
    @event("moved", version=2)
    class Moved(DomainEvent):
        street: str

    upcasts("moved", from_version=1)(lambda body: {**HEAD, "street": body["road"]})
    assert decoder_for("moved", 1)('{"road": "Elm"}') == decoder_for("moved", 2)(payload(street="Elm"))
    assert asked == ["moved"]
    with pytest.raises(UnknownEventVersion):
        decoder_for("moved", 3)(payload(street="Elm"))


def test_an_event_of_no_class_is_refused_when_it_comes_and_known_once_it_is_defined() -> None:
    with pytest.raises(UnknownEventType):
        decoder_for("moved", 1)(payload(street="Elm"))

    @event("moved")
    class Moved(DomainEvent):
        street: str

    assert isinstance(decoder_for("moved", 1)(payload(street="Elm")), Moved)


def test_an_error_is_the_kernels_and_quotes_no_secret() -> None:
    @event("invited")
    class Invited(DomainEvent):
        token: int = sensitive()

    text = payload(token="the secret")
    with pytest.raises(MalformedPayload) as fast:
        decoder_for("invited", 1)(text)
    with pytest.raises(MalformedPayload) as slow:
        deserialize_event("invited", text, 1)
    assert str(fast.value) == str(slow.value)
    shown = [fast.value, fast.value.__cause__, fast.value.__context__]
    assert all("secret" not in str(error) for error in shown)
    assert "***" in repr(decoded(Invited, payload(token=1)))
