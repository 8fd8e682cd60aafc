"""K8: every event of every context, and of every shape there is, comes back equal."""

from __future__ import annotations

import json
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox_kernel.kernel import DomainEvent, deserialize_event, serialize_event, upcasts
from outbox_kernel.kernel.catalogue import EventType, event_type_of, event_types
from outbox_kernel.kernel.testing import isolated_definitions
from outbox_kernel.kernel.testing.copying import same_state
from outbox_kernel.kernel.wire.records import argument_fields, is_record
from tests.properties.catalogue import CATALOGUE
from tests.properties.wire_values import events

CONTEXTS = Path(__file__).parents[2] / "contexts"


def events_of_contexts() -> list[type[DomainEvent]]:
    """Every event that a context publishes; a new context needs no change here."""
    names = sorted(path.parent.name for path in CONTEXTS.glob("*/__init__.py"))
    for name in names:
        if find_spec(f"contexts.{name}.events") is not None:
            import_module(f"contexts.{name}.events")
    return [found.cls for found in event_types() if found.cls.__module__.startswith("contexts.")]


# There are many events, and each gets its share of what the profile grants one property.
SHARE = settings(max_examples=settings().max_examples // 4)

# What is only a part of the way there and back needs fewer.
PART = settings(max_examples=settings().max_examples // 20)

EVENTS = [*events_of_contexts(), *CATALOGUE]


def as_jsonb(text: str) -> str:
    """What PostgreSQL gives back: keys sorted, by length first, and numbers without an exponent."""
    return json.dumps(_sorted(json.loads(text, parse_float=Decimal)), ensure_ascii=False)


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=lambda key: (len(key.encode()), key))}
    if isinstance(value, list):
        return [_sorted(member) for member in value]
    if isinstance(value, Decimal):
        # jsonb keeps numbers as numeric: 1e300 comes back as an integer of 301 digits, and 1.0 as it was.
        return float(value) if "." in f"{value:f}" else int(value)
    return value


def name_of(cls: type[DomainEvent]) -> str:
    return event_type_of(cls).name


def restored(kind: EventType, payload: str) -> DomainEvent:
    return deserialize_event(kind.name, payload, kind.version)


@pytest.mark.parametrize("cls", EVENTS, ids=name_of)
@SHARE
@given(data=st.data())
def test_every_event_comes_back_equal(cls: type[DomainEvent], data: st.DataObject) -> None:
    found, kind = data.draw(events(cls)), event_type_of(cls)
    text = serialize_event(found)
    for payload in (text, as_jsonb(text)):
        back = restored(kind, payload)
        assert back == found
        # Equal is not enough: 1 equals True, and a str equals the Enum it is a value of.
        assert same_state(back, found)


@pytest.mark.parametrize("cls", CATALOGUE, ids=name_of)
@PART
@given(data=st.data())
def test_every_event_comes_back_equal_when_it_is_lifted(cls: type[DomainEvent], data: st.DataObject) -> None:
    """K9."""
    found, kind = data.draw(events(cls)), event_type_of(cls)
    with isolated_definitions():
        upcasts(kind.name, from_version=1)(lambda payload: payload["inner"])
        back = deserialize_event(kind.name, json.dumps({"inner": json.loads(serialize_event(found))}), 1)
    assert same_state(back, found)


@pytest.mark.parametrize("cls", CATALOGUE, ids=name_of)
@PART
@given(data=st.data())
def test_an_event_stays_as_it_was_whatever_becomes_of_what_it_was_made_of(
    cls: type[DomainEvent], data: st.DataObject
) -> None:
    """K1."""
    found, kind = data.draw(events(cls)), event_type_of(cls)
    before = serialize_event(found)
    fields = [field for field in argument_fields(cls) if field.name not in ("event_id", "occurred_at")]
    taken = {field.keyword: getattr(found, field.name) for field in fields}
    again = cls(**taken, event_id=found.event_id, occurred_at=found.occurred_at)
    for value in taken.values():
        emptied(value)
    # Not by its text: equal sets need not be written in one order.
    assert same_state(again, deserialize_event(kind.name, before, kind.version))


def emptied(value: Any) -> None:
    """Take away, at every depth, what can be taken away."""
    if is_record(type(value)):
        held = [getattr(value, field.name) for field in argument_fields(type(value))]
    elif isinstance(value, dict):
        held = list(value.values())
    else:
        held = list(value) if isinstance(value, list | tuple | set | frozenset) else []
    for member in held:
        emptied(member)
    if isinstance(value, list | dict | set):
        value.clear()


def test_each_context_with_events_is_among_them() -> None:
    modules = {cls.__module__.split(".")[1] for cls in EVENTS if cls.__module__.startswith("contexts.")}
    # The room may be a file or a folder.
    rooms = [*CONTEXTS.glob("*/events.py"), *CONTEXTS.glob("*/events/__init__.py")]
    assert modules == {path.relative_to(CONTEXTS).parts[0] for path in rooms}


def test_the_catalogue_is_in_both_layouts() -> None:
    assert [event_type_of(cls).layout for cls in CATALOGUE] == ["snake", "camel"] * (len(CATALOGUE) // 2)
