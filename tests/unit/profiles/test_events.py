"""What profiles publish stays readable: the payload of today is held against that of the first day."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from contexts.profiles.events import ProfileCreated
from outbox_kernel import deserialize_event, serialize_event
from outbox_kernel.kernel.catalogue import event_types
from outbox_kernel.kernel.published import published_body

GOLDEN = Path(__file__).parent / "golden" / "ProfileCreated.json"

PROFILE = UUID("01890000-0000-7000-8000-0000000000bb")
EVENT = ProfileCreated(
    PROFILE,
    UUID("01890000-0000-7000-8000-0000000000aa"),
    event_id=UUID("01890000-0000-7000-8000-000000000001"),
    occurred_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
)


def test_it_is_the_one_event_of_the_context() -> None:
    ours = [each.cls for each in event_types() if each.cls.__module__.startswith("contexts.profiles.")]
    assert ours == [ProfileCreated]


def test_the_payload_is_as_it_was() -> None:
    assert json.loads(serialize_event(EVENT)) == json.loads(GOLDEN.read_text())


def test_the_payload_of_old_restores_the_event() -> None:
    assert deserialize_event("ProfileCreated", GOLDEN.read_text(), version=1) == EVENT


def test_the_body_for_others_is_as_it_was() -> None:
    """X5: the payload, the envelope's keys and the context's; a handler records it, so it has a cause and no user."""
    body = published_body(
        json.loads(serialize_event(EVENT)),
        {"correlation_id": "request-1", "causation_id": "01890000-0000-7000-8000-0000000000cc"},
        event_type="ProfileCreated",
        aggregate_type="profile",
        aggregate_id=PROFILE,
        occurred_at=EVENT.occurred_at,
    )
    assert body == json.loads(GOLDEN.with_suffix(".published.json").read_text())
