"""O6: what a class says of its sealed fields, and what is refused when it is defined."""

import json
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any
from uuid import UUID, uuid4

import attrs
import pytest
from pydantic import BaseModel

from outbox_kernel.errors import DefinitionError
from outbox_kernel.kernel import (
    AggregateRoot,
    DomainEvent,
    aggregate,
    deserialize_event,
    event,
    masked_payload,
    sensitive,
    serialize_event,
)
from outbox_kernel.kernel.catalogue import sealed_fields_of
from outbox_kernel.kernel.wire.masking import reduced_payload
from outbox_kernel.kernel.wire.subjects import SealedField, subject_in


@attrs.frozen
class UserId:
    value: UUID


@attrs.frozen
class Person:
    id: UserId


@attrs.frozen
class Email:
    value: str = attrs.field(validator=attrs.validators.min_len(3))


def grown(text: str) -> str:
    return f"{text}!"


@attrs.frozen
class Growing:
    """A value object that no reading gives back as it was."""

    value: str = attrs.field(converter=grown)


def test_a_sealed_field_is_clear_in_the_kernel_and_shown_to_nobody() -> None:
    @event("sealed.told")
    class Told(DomainEvent):
        user_id: UUID
        address: str = sensitive(subject="user_id")

    told = Told(uuid4(), "12 Byron Row")
    assert "Byron" not in repr(told)
    payload = json.loads(serialize_event(told))
    assert payload["address"] == "12 Byron Row"
    assert deserialize_event("sealed.told", payload) == told
    assert masked_payload("sealed.told", payload)["address"] == "***"


@pytest.mark.parametrize(
    ("layout", "key", "subject"), [("snake", "home_address", "user_id"), ("camel", "homeAddress", "userId")]
)
def test_a_class_says_which_fields_are_sealed_for_whom(layout: Any, key: str, subject: str) -> None:
    @event("sealed.told", layout=layout)
    class Told(DomainEvent):
        user_id: UserId
        home_address: str = sensitive(subject="user_id")
        age: int = sensitive()

    assert sealed_fields_of("sealed.told", 1) == (SealedField("home_address", key, subject, ""),)
    assert sealed_fields_of("sealed.told", 7) == sealed_fields_of("sealed.told", 1)
    assert sealed_fields_of("sealed.unknown", 1) == ()
    user = UserId(uuid4())
    payload = json.loads(serialize_event(Told(user, "12 Byron Row", 36)))
    assert subject_in(payload, *sealed_fields_of("sealed.told", 1)) == str(user.value)


def test_each_version_says_it_for_itself() -> None:
    @event("sealed.told")
    class Old(DomainEvent):
        user_id: UUID
        address: str

    @event("sealed.told", version=2)
    class New(DomainEvent):
        user_id: UUID
        address: str = sensitive(subject="user_id")

    assert sealed_fields_of("sealed.told", 1) == ()
    assert [field.name for field in sealed_fields_of("sealed.told", 2)] == ["address"]


def test_what_reads_as_forgotten_is_none_an_empty_text_or_what_is_given() -> None:
    @event("sealed.told", layout="camel")
    class Told(DomainEvent):
        user_id: int
        name: str = sensitive(subject="user_id")
        nickname: str | None = sensitive(subject="user_id")
        born_on: date | None = sensitive(subject="user_id", default=None)
        email: Email = sensitive(subject="user_id", forgotten=Email("gone"), kw_only=True)
        age: int = sensitive(subject="user_id", forgotten=-1, kw_only=True)
        title: str = sensitive(subject="user_id", forgotten="somebody", kw_only=True)

    assert [field.forgotten for field in sealed_fields_of("sealed.told", 1)] == [
        *("", None, None),
        *({"value": "gone"}, -1, "somebody"),
    ]


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        ("who", "who"),
        (42, "42"),
        ({"value": "who"}, "who"),
        ({"value": {"value": 42}}, "42"),
        ("w" * 500, "w" * 500),
    ],
)
def test_a_subject_is_a_text_whatever_it_is_written_as(subject: Any, text: str) -> None:
    assert subject_in({"who": subject}, SealedField("what", "what", "who", None)) == text


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        ({}, "is kept for the subject in 'who', which has none"),
        ({"who": None}, "which has none"),
        ({"who": True}, "which has none"),
        ({"who": 1.5}, "which has none"),
        ({"who": {"value": "who", "more": 1}}, "which has none"),
        ({"who": ""}, "which has 0 characters; give it one to 500"),
        ({"who": "w" * 501}, "which has 501 characters"),
    ],
)
def test_a_payload_whose_subject_is_nobody_is_refused(payload: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        subject_in(payload, SealedField("what", "what", "who", None))


def refused(fields: dict[str, tuple[Any, Any]], **options: Any) -> str:
    """What is said of an event with these fields."""
    body = {name: value for name, (_, value) in fields.items() if value is not None}
    annotations = {name: declared for name, (declared, _) in fields.items()}
    with pytest.raises(DefinitionError) as error:
        event("sealed.refused", **options)(
            type("Refused", (DomainEvent,), {**body, "__annotations__": annotations})
        )
    return str(error.value)


def test_a_subject_is_another_field_that_names_somebody() -> None:
    def told_of(subject: str, declared: Any = UUID, value: Any = None) -> str:
        return refused({"who": (declared, value), "what": (str, sensitive(subject=subject))})

    assert told_of("whom") == (
        "event 'sealed.refused', field 'what' is kept for the subject in 'whom', and the event has no such field; "
        "name one that says whose it is"
    )
    assert "kept for a subject itself and cannot be read without its key" in told_of("what")
    assert "of type float, which names nobody" in told_of("who", float)
    assert "of type bool, which names nobody" in told_of("who", bool)
    assert "uuid.UUID | None, which names nobody" in told_of("who", UUID | None)
    assert "Email | None" in told_of("who", Email | None)
    assert "kept for a subject itself" in told_of("who", str, sensitive(subject="event_id"))


def test_a_subject_may_be_a_value_object_of_a_value_object_and_sensitive_itself() -> None:
    @event("sealed.told")
    class Told(DomainEvent):
        who: Person = sensitive()
        what: str = sensitive(subject="who")

    assert [field.subject for field in sealed_fields_of("sealed.told", 1)] == ["who"]


def test_what_cannot_read_as_forgotten_is_refused() -> None:
    def told_of(declared: Any, **options: Any) -> str:
        return refused({"who": (UUID, None), "what": (declared, sensitive(subject="who", **options))})

    assert told_of(int) == (
        "event 'sealed.refused', field 'what' has no value of its own for what is forgotten, since it is neither a str "
        "nor optional; give one: sensitive(subject=…, forgotten=…)"
    )
    assert "neither a str nor optional" in told_of(Email)
    assert "cannot read as 'x' once it is forgotten" in told_of(int, forgotten="x")
    assert "cannot read as None once it is forgotten" in told_of(int, forgotten=None)
    assert "cannot read as '' once it is forgotten" in told_of(str, validator=attrs.validators.min_len(1))
    assert "cannot read as None" in told_of(str, forgotten=None)
    assert "(ValueError); give another value" in told_of(Growing, forgotten=Growing("gone"))


def test_a_validator_that_asks_for_other_fields_is_taken_on_trust() -> None:
    def check(told: Any, _: object, value: str) -> None:
        assert value != told.who

    @event("sealed.told")
    class Told(DomainEvent):
        who: str
        what: str = sensitive(subject="who", validator=check)

    assert [field.forgotten for field in sealed_fields_of("sealed.told", 1)] == [""]


def test_only_a_field_of_the_event_itself_is_sealed() -> None:
    @dataclass
    class Login:
        token: Annotated[str, sensitive(subject="who")]

    class Card(BaseModel):
        number: Annotated[str, sensitive(subject="who")]

    @attrs.frozen
    class Inner:
        what: str = sensitive(subject="who")

    for declared in (Login, list[Card], Inner, dict[str, Inner], Annotated[str, sensitive(subject="who")]):
        sentence = refused({"who": (UUID, None), "what": (declared, None)})
        assert (
            "field 'what': a part of it asks for a subject, and only a field of the event itself can"
            in sentence
        )


@attrs.frozen
class Tree:
    branches: "list[Tree]"


def test_a_class_that_contains_itself_is_looked_through_once() -> None:
    @event("sealed.told")
    class Told(DomainEvent):
        who: UUID
        tree: Tree

    assert sealed_fields_of("sealed.told", 1) == ()


def test_a_field_of_an_aggregate_is_its_tables_affair() -> None:
    with pytest.raises(DefinitionError, match="field 'email' of aggregate Account is kept for a subject"):

        @aggregate("sealed.account")
        class Account(AggregateRoot):
            id: UUID
            email: str = sensitive(subject="id")


def test_what_says_how_it_is_forgotten_says_by_whose_key() -> None:
    with pytest.raises(DefinitionError, match="name the subject, too"):
        sensitive(forgotten="")


def test_sealed_fields_of_a_stored_payload_are_masked_by_their_names() -> None:
    @event("sealed.told")
    class Told(DomainEvent):
        who: str
        what: str = sensitive(subject="who")

    payload = json.loads(serialize_event(Told("ada", "secret")))
    stored = {**payload, "$sealed": {"what": {"key": "1", "text": "x"}}}
    del stored["what"]
    assert masked_payload("sealed.told", stored) == {**payload, "what": "***"}
    assert masked_payload("sealed.told", {**payload, "$sealed": "odd"})["$sealed"] == "***"


def test_whoever_is_not_to_have_secrets_gets_a_mask_or_nothing() -> None:
    @attrs.frozen
    class Contact:
        name: str
        phone: str = sensitive()

    @event("sealed.told", version=2, layout="camel", first_version=2)
    class Told(DomainEvent):
        who: str
        what: str = sensitive(subject="who")
        contact: Contact
        others: list[Contact]
        by_name: dict[str, Annotated[str, sensitive()]]
        tokens: tuple[Annotated[str, sensitive()], ...]

    contact = Contact("ada", "1")
    payload = json.loads(serialize_event(Told("ada", "x", contact, [contact], {"a": "b"}, ("c",))))
    plain = {key: payload[key] for key in ("eventId", "occurredOn", "eventVersion", "who")}
    assert reduced_payload("sealed.told", 2, payload, omit=False) == {
        **plain,
        "what": "***",
        "contact": {"name": "ada", "phone": "***"},
        "others": [{"name": "ada", "phone": "***"}],
        "byName": {"a": "***"},
        "tokens": ["***"],
    }
    assert reduced_payload("sealed.told", 2, {**payload, "unknown": 1}, omit=True) == {
        **plain,
        "contact": {"name": "ada"},
        "others": [{"name": "ada"}],
        "byName": {},
        "tokens": [],
    }
