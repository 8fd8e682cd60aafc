"""Events of one field, made on the fly, and what becomes of a value on its way to JSON and back."""

from __future__ import annotations

import json
from typing import Any, Literal

from outbox_kernel.kernel import DomainEvent, deserialize_event, event, serialize_event
from outbox_kernel.kernel.catalogue import event_type_of

Layout = Literal["snake", "camel"]


def probe(declared: Any, layout: Layout = "snake", name: str = "probe", version: int = 1) -> type[Any]:
    """Define an event with the one field `value` of this type."""
    body = {"__annotations__": {"value": declared}, "__module__": __name__}
    return event(name, version=version, layout=layout)(type("Probe", (DomainEvent,), body))


def sent(found: DomainEvent) -> Any:
    """What an event's `value` is in the payload."""
    return json.loads(serialize_event(found))["value"]


def received(declared: type[Any], raw: Any) -> Any:
    """What a payload's `value` is in the event."""
    kind = event_type_of(declared)
    template = json.loads(
        '{"event_id": "01890000-0000-7000-8000-000000000001", "occurred_at": "2026-01-02T03:04:05+00:00"}'
    )
    if kind.layout == "camel":
        template = {"eventId": template["event_id"], "occurredOn": template["occurred_at"]}
    return deserialize_event(kind.name, {**template, "value": raw}).value  # type: ignore[attr-defined]


def restored(found: DomainEvent) -> Any:
    """The event after its way through text as jsonb would give it back."""
    kind = event_type_of(type(found))
    text = json.dumps(json.loads(serialize_event(found)), sort_keys=True)
    return deserialize_event(kind.name, text, kind.version)
