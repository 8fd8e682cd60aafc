"""K9: stored payloads of old versions are lifted step by step to the newest class."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outbox_kernel.errors import (
    DefinitionError,
    DuplicateName,
    MalformedPayload,
    MissingUpcaster,
    UnknownEventType,
    UnknownEventVersion,
)
from outbox_kernel.kernel import (
    DomainEvent,
    check_upcasters,
    deserialize_event,
    event,
    serialize_event,
    upcasts,
)
from outbox_kernel.kernel.testing import ANY

HEAD = {"event_id": "01890000-0000-7000-8000-000000000001", "occurred_at": "2026-01-02T03:04:05+00:00"}


def newest(version: int, first_version: int = 1) -> type[Any]:
    @event("moved", version=version, first_version=first_version)
    class Moved(DomainEvent):
        street: str
        city: str = "?"

    return Moved


def first_to_second(payload: dict[str, Any]) -> dict[str, Any]:
    payload["where"] = payload.pop("address")
    return payload


def second_to_third(payload: dict[str, Any]) -> dict[str, Any]:
    street, _, city = payload.pop("where").partition(", ")
    return {**payload, "street": street, "city": city}


def define_chain() -> type[Any]:
    upcasts("moved", from_version=1)(first_to_second)
    upcasts("moved", from_version=2)(second_to_third)
    return newest(3)


def test_every_old_version_becomes_the_newest_class() -> None:
    moved = define_chain()
    first = {**HEAD, "address": "Main 1, Bonn"}
    second = {**HEAD, "where": "Main 1, Bonn"}
    third = {**HEAD, "street": "Main 1", "city": "Bonn"}
    lifted = [deserialize_event("moved", body, n) for n, body in enumerate([first, second, third], start=1)]
    assert {type(each) for each in lifted} == {moved}
    assert lifted[0] == lifted[1] == lifted[2]
    assert json.loads(serialize_event(lifted[0])) == third


def test_text_is_lifted_as_well() -> None:
    define_chain()
    lifted = deserialize_event("moved", json.dumps({**HEAD, "address": "Main 1, Bonn"}), version=1)
    assert lifted.city == "Bonn"  # type: ignore[attr-defined]


def test_the_given_payload_stays_as_it_is() -> None:
    define_chain()
    stored = {**HEAD, "address": "Main 1, Bonn"}
    deserialize_event("moved", stored, 1)
    assert stored == {**HEAD, "address": "Main 1, Bonn"}


def test_without_a_version_the_payload_is_the_newest() -> None:
    define_chain()
    assert deserialize_event("moved", {**HEAD, "street": "Main 1"}).city == "?"  # type: ignore[attr-defined]


def test_a_complete_chain_passes_the_check() -> None:
    define_chain()
    check_upcasters()


def test_a_gap_in_the_chain_is_named_at_start_and_at_reading() -> None:
    upcasts("moved", from_version=1)(first_to_second)
    newest(3)
    with pytest.raises(
        MissingUpcaster, match=r"'moved' has no way from version 2 to 3.*@upcasts\('moved', from"
    ):
        check_upcasters()
    with pytest.raises(MissingUpcaster, match="from version 2 to 3"):
        deserialize_event("moved", {**HEAD, "address": "Main 1"}, 1)


def test_two_classes_without_an_upcaster_between_them_are_a_gap() -> None:
    newest(1)
    newest(2)
    with pytest.raises(MissingUpcaster, match="from version 1 to 2"):
        check_upcasters()


def test_an_older_version_of_which_nothing_is_known_is_a_gap_with_two_remedies() -> None:
    newest(3)
    with pytest.raises(MissingUpcaster) as refused:
        check_upcasters()
    assert str(refused.value) == (
        "event 'moved' has no way from version 1 to 2; write a function under @upcasts('moved', from_version=1), "
        "or, if nothing older than version 3 is stored, give @event first_version=3"
    )


def test_an_event_may_have_started_at_a_higher_version() -> None:
    newest(3, first_version=3)
    check_upcasters()


def test_from_the_version_that_an_event_started_at_the_chain_is_complete() -> None:
    newest(4, first_version=2)
    upcasts("moved", from_version=3)(second_to_third)
    with pytest.raises(MissingUpcaster, match="from version 2 to 3"):
        check_upcasters()
    upcasts("moved", from_version=2)(first_to_second)
    check_upcasters()


def test_what_is_defined_below_the_first_version_counts_all_the_same() -> None:
    upcasts("moved", from_version=1)(first_to_second)
    newest(3, first_version=3)
    with pytest.raises(MissingUpcaster, match="from version 2 to 3"):
        check_upcasters()


@pytest.mark.parametrize("first_version", [0, 4])
def test_a_first_version_is_one_that_can_have_been(first_version: int) -> None:
    with pytest.raises(
        DefinitionError, match=f"'moved' has first_version {first_version}; give one from 1 to its"
    ):
        newest(3, first_version=first_version)


@pytest.mark.parametrize("from_version", [3, 4])
def test_an_upcaster_without_a_class_to_lift_to_is_refused(from_version: int) -> None:
    define_chain()
    upcasts("moved", from_version=from_version)(second_to_third)
    with pytest.raises(MissingUpcaster, match="no class of a later version"):
        check_upcasters()


def test_an_upcaster_of_an_unknown_event_is_refused() -> None:
    upcasts("unheard_of", from_version=1)(first_to_second)
    with pytest.raises(MissingUpcaster, match="'unheard_of'"):
        check_upcasters()


def test_a_camel_payload_says_its_version_itself() -> None:
    """K8, K9."""

    @event("counted", version=2, layout="camel")
    class Counted(DomainEvent):
        number: int = 0

    @upcasts("counted", from_version=1)
    def renamed(payload: dict[str, Any]) -> dict[str, Any]:
        return {**payload, "number": payload["count"]}

    head = {"eventId": HEAD["event_id"], "occurredOn": HEAD["occurred_at"]}
    for stored, version, number in (
        ({"eventVersion": 1, "count": 7}, None, 7),
        ({"eventVersion": 2, "number": 7}, None, 7),
        ({"number": 7}, None, 7),
        ({"eventVersion": 2, "count": 7}, 1, 7),
    ):
        assert deserialize_event("counted", {**head, **stored}, version) == Counted(
            number, event_id=ANY, occurred_at=ANY
        )
    for said in ("1", True, None):
        with pytest.raises(
            MalformedPayload, match=f"has an eventVersion that is {type(said).__name__}, not an integer"
        ):
            deserialize_event("counted", {**head, "eventVersion": said})
    with pytest.raises(UnknownEventVersion):
        deserialize_event("counted", {**head, "eventVersion": 3})


@dataclass
class Parcel:
    grams: int
    label: bytes


class Address(BaseModel):
    street_name: str
    notes: dict[str, Any] = {}


@pytest.mark.parametrize("layout", ["snake", "camel"])
def test_an_older_payload_is_lifted_to_durations_bytes_dataclasses_models_and_free_json(
    layout: Literal["snake", "camel"],
) -> None:
    """K8, K9."""

    @event("sent", version=2, layout=layout)
    class Sent(DomainEvent):
        parcel: Parcel
        address: Address
        took: timedelta
        anything: Any

    @upcasts("sent", from_version=1)
    def grouped(payload: dict[str, Any]) -> dict[str, Any]:
        street = "street_name" if layout == "snake" else "streetName"
        return {
            **payload,
            "parcel": {"grams": payload["grams"], "label": "/w=="},
            "address": {street: payload["street"], "notes": payload["notes"]},
            "took": f"PT{payload['seconds']}S",
            "anything": [payload["notes"]],
        }

    head = HEAD if layout == "snake" else {"eventId": HEAD["event_id"], "occurredOn": HEAD["occurred_at"]}
    first = {**head, "grams": 5, "street": "Main 1", "notes": {"a": [1, None]}, "seconds": 90}
    lifted = deserialize_event("sent", first, 1)
    assert lifted == Sent(
        Parcel(5, b"\xff"),
        Address(street_name="Main 1", notes={"a": [1, None]}),
        timedelta(seconds=90),
        [{"a": [1, None]}],
        event_id=ANY,
        occurred_at=ANY,
    )
    assert deserialize_event("sent", serialize_event(lifted)) == lifted
    assert first["notes"] is not lifted.anything[0]


def test_a_newer_payload_than_any_class_is_refused_with_the_remedy() -> None:
    define_chain()
    with pytest.raises(UnknownEventVersion, match=r"stored in version 4.*deploy the code that knows it"):
        deserialize_event("moved", HEAD, 4)
    with pytest.raises(UnknownEventVersion):
        deserialize_event("moved", HEAD, 0)


def test_an_unknown_name_is_a_value_error() -> None:
    with pytest.raises(
        UnknownEventType, match="no event named 'unheard_of' is defined in this process"
    ) as refused:
        deserialize_event("unheard_of", "{}")
    assert isinstance(refused.value, ValueError)


def test_two_upcasters_of_one_version_are_refused_and_both_are_named() -> None:
    upcasts("moved", from_version=1)(first_to_second)
    with pytest.raises(DuplicateName, match=r"first_to_second and by .*second_to_third"):
        upcasts("moved", from_version=1)(second_to_third)


def test_an_upcaster_starts_at_version_one_or_later() -> None:
    with pytest.raises(DefinitionError, match="versions count from 1"):
        upcasts("moved", from_version=0)(first_to_second)


def test_an_upcaster_that_fails_on_a_payload_is_named() -> None:
    define_chain()
    with pytest.raises(
        MalformedPayload, match=r"first_to_second, which lifts event 'moved' from version 1, failed"
    ):
        deserialize_event("moved", HEAD, 1)


def test_an_upcaster_that_forgets_to_return_is_named() -> None:
    forgetful: Any = lambda payload: payload.clear()  # noqa: E731 - a def would be typed
    upcasts("moved", from_version=1)(forgetful)
    newest(2)
    with pytest.raises(MalformedPayload, match="returned NoneType; return the lifted payload"):
        deserialize_event("moved", HEAD, 1)
