"""K8: the relay's decoder gives what the kernel gives, of every event and of every payload, good or bad."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox_kernel.infrastructure.outbox import decoding
from outbox_kernel.infrastructure.outbox.decoding import decoder_for
from outbox_kernel.kernel import DomainEvent, serialize_event
from outbox_kernel.kernel.catalogue import event_type_of
from outbox_kernel.kernel.testing import isolated_definitions
from outbox_kernel.kernel.testing.copying import same_state
from tests.properties.catalogue import CATALOGUE, Anything
from tests.properties.decoders import LITERALS, assert_alike, spoilt
from tests.properties.event_classes import stored_events
from tests.properties.test_round_trip import EVENTS, PART, SHARE, as_jsonb, name_of
from tests.properties.wire_values import events


def _unasked(*given: Any) -> DomainEvent:
    raise AssertionError(f"the kernel was asked about {given}")


@pytest.mark.parametrize("cls", EVENTS, ids=name_of)
@PART
@given(data=st.data())
def test_every_event_comes_back_equal_without_the_kernel(cls: type[DomainEvent], data: st.DataObject) -> None:
    found, kind = data.draw(events(cls)), event_type_of(cls)
    text = serialize_event(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "deserialize_event", _unasked)
        for payload in (text, as_jsonb(text)):
            back = decoder_for(kind.name, kind.version)(payload)
            assert back == found
            assert same_state(back, found)


@pytest.mark.parametrize("cls", [*EVENTS, Anything], ids=name_of)
@PART
@given(data=st.data())
def test_a_payload_that_is_spoilt_is_judged_as_the_kernel_judges_it(
    cls: type[DomainEvent], data: st.DataObject
) -> None:
    text = as_jsonb(serialize_event(data.draw(events(cls))))
    assert_alike(event_type_of(cls), data.draw(spoilt(text)))


# All fields of scalars and of choices, in both layouts.
@pytest.mark.parametrize("cls", CATALOGUE[:4], ids=name_of)
@settings(PART, max_examples=2)
@given(data=st.data())
def test_every_literal_in_every_field_is_judged_as_the_kernel_judges_it(
    cls: type[DomainEvent], data: st.DataObject
) -> None:
    body = json.loads(serialize_event(data.draw(events(cls))))
    for key in body:
        before, _, after = json.dumps({**body, key: "here it stands"}).partition('"here it stands"')
        for literal in LITERALS:
            assert_alike(event_type_of(cls), f"{before}{literal}{after}")


@SHARE
@given(data=st.data())
def test_whatever_a_class_is_made_of_it_is_decoded_as_the_kernel_does(data: st.DataObject) -> None:
    with isolated_definitions():
        cls, text = data.draw(stored_events())
        assert_alike(event_type_of(cls), as_jsonb(text))
        assert_alike(event_type_of(cls), data.draw(spoilt(text)))
