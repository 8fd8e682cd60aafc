"""K11: a field marked sensitive is masked wherever a person or a log may see it."""

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType
from uuid import uuid4

import attrs
import pytest
from pydantic import BaseModel, ConfigDict, RootModel, field_validator

from outbox_kernel.errors import DefinitionError, MalformedPayload, UnserializableEvent
from outbox_kernel.kernel import (
    DomainEvent,
    deserialize_event,
    event,
    masked_payload,
    sensitive,
    serialize_event,
    upcasts,
)
from outbox_kernel.kernel.testing.comparison import differences
from outbox_kernel.kernel.wire.types import fields_of
from tests.unit.kernel.probes import Layout, probe, restored

layouts = pytest.mark.parametrize("layout", ["snake", "camel"])


@attrs.frozen
class Email:
    value: str = sensitive()


@attrs.frozen
class Contact:
    name: str
    email_address: Email
    others: "list[Contact]" = attrs.Factory(list)


Token = Annotated[str, sensitive()]


@dataclass
class Login:
    user_name: str
    token: Token


class Card(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    bank_name: str
    number: Annotated[str, sensitive()]
    owner: Contact | None = None
    logins: list[Login] = []
    spare: Token | None = None


class Key(RootModel[Annotated[str, sensitive()]]):
    pass


@dataclass
class Wallet:
    cards: dict[str, Card]
    extra: dict[str, Any]


def masked(found: DomainEvent) -> dict[str, Any]:
    return masked_payload("probe", json.loads(serialize_event(found)))


def test_a_sensitive_field_is_masked_in_the_repr_and_stored_as_it_is() -> None:
    @event("invited")
    class Invited(DomainEvent):
        name: str
        token: str = sensitive(default="t0p", metadata={"unit": "none"})

    invited = Invited("ada", token="s3cret")
    assert "s3cret" not in repr(invited)
    assert "token=***" in repr(invited)
    stored = json.loads(serialize_event(invited))
    assert stored["token"] == "s3cret"
    assert masked_payload("invited", stored) == {**stored, "token": "***"}
    assert Invited("ada").token == "t0p"
    assert {field.name: field for field in fields_of(Invited)}["token"].metadata["unit"] == "none"


@layouts
def test_names_follow_the_layout_and_the_rest_stays_readable(layout: Layout) -> None:
    @event("invited", layout=layout)
    class Invited(DomainEvent):
        is_resend: bool
        invite_token: str = sensitive()

    stored = json.loads(serialize_event(Invited(is_resend=True, invite_token="s3cret")))
    shown = masked_payload("invited", stored)
    assert shown.keys() == stored.keys()
    assert [key for key in stored if shown[key] != stored[key]] == [
        "invite_token" if layout == "snake" else "inviteToken"
    ]


@layouts
@pytest.mark.parametrize(
    ("declared", "value", "shown"),
    [
        (Email, Email("secret"), "***"),
        (Email | None, Email("secret"), "***"),
        (Email | None, None, None),
        (list[Email], [Email("secret"), Email("secret")], ["***", "***"]),
        (tuple[str, Email], ("plain", Email("secret")), ["plain", "***"]),
        (tuple[Email, ...], (Email("secret"),), ["***"]),
        (dict[str, Email], {"plain": Email("secret")}, {"plain": "***"}),
        (dict[Email, str], {Email("secret"): "plain"}, "***"),
        (dict[str, str], {"plain": "plain"}, {"plain": "plain"}),
        (list[str], ["plain"], ["plain"]),
        (Token, "secret", "***"),
        (NewType("Named", Token), "secret", "***"),
        (list[Token], ["secret"], ["***"]),
        (Token | None, None, None),
        (dict[str, Token], {"plain": "secret"}, {"plain": "***"}),
        (Key, Key("secret"), "***"),
        (list[Login], [Login("plain", "secret")], None),
        (
            Card,
            Card(bank_name="plain", number="secret", logins=[Login("plain", "secret")], spare="secret"),
            None,
        ),
        (Wallet, Wallet({"plain": Card(bank_name="plain", number="secret")}, {"plain": ["plain"]}), None),
        (
            Wallet,
            Wallet(
                {"plain": Card(bank_name="plain", number="", owner=Contact("plain", Email("secret")))}, {}
            ),
            None,
        ),
    ],
    ids=repr,
)
def test_a_secret_inside_a_value_is_masked_at_its_place(
    declared: Any, value: Any, shown: Any, layout: Layout
) -> None:
    written = probe(declared, layout)(value)
    found = masked(written)
    if shown is None and value is not None:
        assert "plain" in json.dumps(found)
    else:
        assert found["value"] == shown
    assert "secret" not in json.dumps(found)
    assert "secret" not in repr(written)
    assert restored(written) == written


@layouts
def test_a_secret_in_a_nested_class_is_masked_at_its_place(layout: Layout) -> None:
    contact = Contact("ada", Email("secret"), [Contact("brian", Email("secret"))])
    shown = masked(probe(Contact, layout)(contact))["value"]
    assert "secret" not in json.dumps(shown)
    assert shown["name"] == "ada"
    assert shown["others"][0]["name"] == "brian"


def test_free_json_under_a_sensitive_field_is_masked_as_a_whole() -> None:
    body = {"__annotations__": {"notes": dict[str, Any]}, "notes": sensitive(), "__module__": __name__}
    cls: Any = event("noted")(type("Noted", (DomainEvent,), body))
    found = cls({"a": ["secret"]})
    assert masked_payload("noted", json.loads(serialize_event(found)))["notes"] == "***"
    assert "secret" not in repr(found)


def test_a_difference_shows_no_secret_of_a_class_that_would_show_it() -> None:
    cls = probe(Login)
    found = differences([cls(Login("ada", "secret"))], [cls(Login("ada", "s3cret"))])
    assert found == ["event 1, Probe.value: differs (masked)"]


def test_what_the_newest_class_does_not_know_is_masked() -> None:
    probe(int)
    assert masked_payload("probe", {"value": 5, "mail": "secret"}) == {"value": 5, "mail": "***"}


def test_a_payload_that_does_not_fit_shows_no_secret() -> None:
    probe(Contact)
    assert masked_payload("probe", {"value": "secret"}) == {"value": "***"}
    assert masked_payload("probe", {"value": {"name": "a", "email_address": ["secret"]}})["value"] == {
        "name": "a",
        "email_address": "***",
    }


def test_no_error_quotes_a_secret() -> None:
    @event("invited")
    class Invited(DomainEvent):
        token: Literal["one", "other"] = sensitive()

    stored = {"event_id": str(uuid4()), "occurred_at": "2026-01-02T00:00:00+00:00", "token": "s3cret"}
    with pytest.raises(MalformedPayload, match="key 'token' holds a value, not shown here") as unreadable:
        deserialize_event("invited", stored)
    with pytest.raises(UnserializableEvent, match="'token' holds a value, not shown here") as refused:
        serialize_event(Invited("s3cret"))  # type: ignore[arg-type]
    for found in (unreadable, refused):
        assert "s3cret" not in "".join(map(str, _chain(found.value)))


@pytest.mark.parametrize(
    ("declared", "value", "reason"),
    [
        (str, "s3cret\0", "holds a NUL character, which PostgreSQL cannot store; remove it"),
        (str, "s3cret\ud800", "holds a lone surrogate, which is no Unicode text; decode the input properly"),
        (Email, Email("s3cret\0"), "holds a NUL character"),
        (dict[str, str], {"s3cret\0": ""}, "holds a NUL character"),
        (str, 53, "holds int where str is declared"),
        (float, float("nan"), "holds nan, which JSON cannot carry"),
        (Decimal, Decimal("-sNaN53"), "holds the Decimal NaN, which equals nothing"),
        (Decimal, Decimal("-Infinity"), "holds the Decimal Infinity"),
        (datetime, datetime(1953, 1, 2), "holds a naive datetime"),  # noqa: DTZ001 - the point
        (tuple[int, int], (53,), "holds 1 members where 2 are declared"),
    ],
    ids=ascii,
)
def test_why_a_secret_is_refused_is_said_without_it(declared: Any, value: Any, reason: str) -> None:
    body = {"__annotations__": {"token": declared}, "token": sensitive(), "__module__": __name__}
    cls: Any = event("invited")(type("Invited", (DomainEvent,), body))
    with pytest.raises(UnserializableEvent) as refused:
        serialize_event(cls(value))
    assert str(refused.value).startswith(f"event 'invited' cannot be stored: field 'token' {reason}")
    said = "".join(map(str, _chain(refused.value)))
    assert "s3cret" not in said
    assert "53" not in said


def test_why_a_stored_secret_does_not_fit_is_said_without_it() -> None:
    body = {"__annotations__": {"token": str}, "token": sensitive(), "__module__": __name__}
    event("invited")(type("Invited", (DomainEvent,), body))
    stored = {"event_id": str(uuid4()), "occurred_at": "2026-01-02T00:00:00+00:00", "token": 53}
    with pytest.raises(MalformedPayload, match="key 'token' holds int where str is declared") as refused:
        deserialize_event("invited", stored)
    assert refused.value.__cause__ is None


def test_how_a_secret_is_shown_is_not_for_its_author_to_say() -> None:
    """K11."""
    with pytest.raises(DefinitionError, match=r"sensitive\(\) takes no repr="):
        sensitive(repr=str)


def stored_token(token: str) -> dict[str, str]:
    return {"event_id": str(uuid4()), "occurred_at": "2026-01-02T00:00:00+00:00", "token": token}


def test_what_an_upcaster_says_of_a_secret_is_not_said() -> None:
    """K11."""

    @event("invited", version=2)
    class Invited(DomainEvent):
        email: Email

    @upcasts("invited", from_version=1)
    def number(payload: dict[str, Any]) -> dict[str, Any]:
        return {**payload, "email": int(payload["token"])}

    with pytest.raises(
        MalformedPayload,
        match=r"number, which lifts event 'invited' from version 1, failed on a payload: ValueError",
    ) as refused:
        deserialize_event("invited", stored_token("s3cret"), 1)
    assert "s3cret" not in "".join(map(str, _chain(refused.value)))


def test_what_a_model_says_of_its_secret_is_not_said() -> None:
    """K11."""

    class Pin(BaseModel):
        code: Token
        name: str = ""

        @field_validator("code")
        @classmethod
        def long_enough(cls, code: str) -> str:
            if len(code) < 9:
                raise ValueError(f"{code} is too short")
            return code

    cls = probe(Pin)
    with pytest.raises(UnserializableEvent, match="'value' holds a value, not shown here") as refused:
        serialize_event(cls(Pin.model_construct(code="s3cret")))
    stored = json.loads(serialize_event(cls(Pin(code="s3cret_and_long"))))
    with pytest.raises(MalformedPayload, match="key 'value' holds a value, not shown here") as unreadable:
        deserialize_event("probe", {**stored, "value": {"code": "s3cret"}})
    for found in (unreadable, refused):
        assert "s3cret" not in "".join(map(str, _chain(found.value)))


def test_what_a_class_says_of_its_secret_is_not_said() -> None:
    """K11."""

    @event("invited")
    class Invited(DomainEvent):
        token: str = sensitive()

        def __attrs_post_init__(self) -> None:
            raise ValueError(f"the token {self.token} is too short")

    with pytest.raises(MalformedPayload, match="does not fit version 1: ValueError") as refused:
        deserialize_event("invited", stored_token("s3cret"))
    assert "s3cret" not in "".join(map(str, _chain(refused.value)))


def test_what_a_class_without_secrets_says_is_said() -> None:
    @event("counted", version=2)
    class Counted(DomainEvent):
        token: str

        def __attrs_post_init__(self) -> None:
            raise ValueError(f"the token {self.token} is too short")

    @upcasts("counted", from_version=1)
    def number(payload: dict[str, Any]) -> dict[str, Any]:
        return {**payload, "token": int(payload["token"])}

    with pytest.raises(MalformedPayload, match="ValueError: the token abc is too short"):
        deserialize_event("counted", stored_token("abc"))
    with pytest.raises(MalformedPayload, match=r"invalid literal for int.*'abc'") as refused:
        deserialize_event("counted", stored_token("abc"), 1)
    assert isinstance(refused.value.__cause__, ValueError)


def _chain(error: BaseException | None) -> list[BaseException]:
    if error is None:
        return []
    return [error, *_chain(error.__cause__ or (None if error.__suppress_context__ else error.__context__))]
