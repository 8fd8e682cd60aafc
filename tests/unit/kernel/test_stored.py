"""K5: an event as it is stored, for whoever need not know its class."""

from __future__ import annotations

from uuid import UUID, uuid4

import attrs
import pytest

from outbox_kernel.kernel import AggregateRoot, DomainEvent, StoredEvent, aggregate, event
from outbox_kernel.kernel.events import sensitive


@event("stored.invited", version=3, first_version=3)
class Invited(DomainEvent):
    email: str = sensitive()


@aggregate("stored.family")
class Family(AggregateRoot):
    id: UUID


def test_it_is_the_event_as_its_row_would_be() -> None:
    family, invited = Family(uuid4()), Invited("ada@example.org")
    family.record(invited)
    stored = StoredEvent.of(invited, position=7, headers={"user_id": "u-1"})
    assert (stored.event_type, stored.event_version, stored.event_id) == (
        "stored.invited",
        3,
        invited.event_id,
    )
    assert (stored.aggregate_type, stored.aggregate_id) == ("stored.family", family.id)
    assert (stored.aggregate_version, stored.position, stored.headers) == (1, 7, {"user_id": "u-1"})
    assert (stored.payload["email"], stored.occurred_at) == ("ada@example.org", invited.occurred_at)


def test_it_shows_no_payload_since_nobody_knows_what_of_it_is_secret() -> None:
    assert "ada@example.org" not in repr(StoredEvent.of(Invited("ada@example.org")))


def test_it_is_a_value_that_does_not_change() -> None:
    invited = Invited("ada@example.org")
    stored = StoredEvent.of(invited)
    assert {stored, StoredEvent.of(invited)} == {stored}
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        stored.position = 3  # type: ignore[misc]
