"""What families publish stays readable: the payloads of today are held against those of the first day (X5).

A published camel body is exactly the payload, so these are the bodies that other services read.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from contexts.families.events import (
    Email,
    FamilyCreated,
    FamilyId,
    FamilyMemberInvitationAccepted,
    FamilyMemberInvitationExpired,
    FamilyMemberInvitationRevoked,
    FamilyMemberInvited,
    FamilyMemberJoined,
    FamilyName,
    InvitationId,
    InvitationToken,
    Role,
    RoleName,
    UserId,
)
from outbox_kernel import DomainEvent, deserialize_event, serialize_event
from outbox_kernel.kernel import masked_payload
from outbox_kernel.kernel.catalogue import event_type_of, event_types
from outbox_kernel.kernel.published import published_body

GOLDEN = Path(__file__).parent / "golden"

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
HEAD: dict[str, Any] = {"event_id": UUID("01890000-0000-7000-8000-000000000001"), "occurred_at": MOMENT}
FAMILY = FamilyId(UUID("01890000-0000-7000-8000-0000000000aa"))
INVITATION = InvitationId(UUID("01890000-0000-7000-8000-0000000000bb"))
USER = UserId(UUID("01890000-0000-7000-8000-0000000000cc"))
TOKEN = InvitationToken("Zm9yLW9uZS1yZWFkZXItYW5kLWZvci1ub2JvZHktZWx")

INVITED = FamilyMemberInvited(
    INVITATION,
    FAMILY,
    Email("bo@example.org"),
    Role(RoleName.MEMBER),
    TOKEN,
    MOMENT + timedelta(days=14),
    USER,
    is_resend=False,
    **HEAD,
)
EVENTS = [
    FamilyCreated(FAMILY, FamilyName("The Lovelaces"), USER, **HEAD),
    FamilyMemberJoined(FAMILY, USER, Role(RoleName.OWNER), **HEAD),
    INVITED,
    FamilyMemberInvitationAccepted(INVITATION, FAMILY, USER, **HEAD),
    FamilyMemberInvitationRevoked(INVITATION, FAMILY, USER, **HEAD),
    FamilyMemberInvitationExpired(INVITATION, FAMILY, **HEAD),
]
every_event = pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)


def golden(event: DomainEvent) -> str:
    return (GOLDEN / f"{type(event).__name__}.json").read_text()


def test_every_event_of_this_context_is_among_them() -> None:
    ours = [each.cls for each in event_types() if each.cls.__module__.startswith("contexts.families.")]
    assert {type(event) for event in EVENTS} == set(ours)


@every_event
def test_the_payload_is_as_it_was(event: DomainEvent) -> None:
    # Byte for byte in the order of the file, since a published body is this.
    assert json.dumps(json.loads(serialize_event(event)), indent=2) + "\n" == golden(event)


@every_event
def test_what_is_published_is_exactly_the_payload(event: DomainEvent) -> None:
    body = published_body(
        json.loads(serialize_event(event)),
        {"user_id": "ada", "request_id": "request-1"},
        event_type=type(event).__name__,
        aggregate_type="family",
        aggregate_id=FAMILY.value,
        occurred_at=MOMENT,
    )
    assert json.dumps(body, indent=2) + "\n" == golden(event)


@every_event
def test_the_payload_of_old_restores_the_event(event: DomainEvent) -> None:
    assert deserialize_event(type(event).__name__, golden(event), version=1) == event


@every_event
def test_every_event_is_of_version_1_and_in_camel_case(event: DomainEvent) -> None:
    assert (event_type_of(type(event)).version, event_type_of(type(event)).layout) == (1, "camel")


def test_an_invitation_is_published_with_exactly_these_fields() -> None:
    assert list(json.loads(serialize_event(INVITED))) == [
        "eventId",
        "occurredOn",
        "eventVersion",
        "invitationId",
        "familyId",
        "email",
        "role",
        "token",
        "expiresAt",
        "invitedByUserId",
        "isResend",
    ]


def test_what_a_publisher_of_members_selects_is_all_but_the_family() -> None:
    names = {event_type_of(type(event)).name for event in EVENTS}
    assert {name for name in names if not name.startswith("FamilyMember")} == {"FamilyCreated"}


def test_the_address_and_the_token_are_masked_for_people() -> None:
    shown = masked_payload("FamilyMemberInvited", json.loads(golden(INVITED)))
    assert (shown["email"], shown["token"]) == ("***", "***")
    assert shown["invitationId"] == {"value": str(INVITATION.value)}
    assert "bo@" not in repr(INVITED)
    assert TOKEN.value not in repr(INVITED)
