"""The scenes of this context for `outbox demo`."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from contexts.families.domain import TokenUnknown
from contexts.families.events import FamilyMemberInvited
from contexts.families.use_cases import (
    AcceptFamilyMemberInvitation,
    AcceptFamilyMemberInvitationHandler,
    CreateFamily,
    CreateFamilyHandler,
    InviteFamilyMemberByEmail,
    InviteFamilyMemberByEmailHandler,
)
from outbox_kernel.infrastructure.demo import Scene, Stage


async def an_invitation_is_sent_again(stage: Stage) -> None:
    """An address is invited twice: one invitation, and only its newest token lets somebody in."""
    owner, guest = uuid4(), uuid4()
    family_id = await stage.container[CreateFamilyHandler].handle(
        CreateFamily("Lovelace", owner, "ada@example.org")
    )
    invite = InviteFamilyMemberByEmail(family_id, "byron@example.org", owner)
    first = await stage.container[InviteFamilyMemberByEmailHandler].handle(invite)
    again = await stage.container[InviteFamilyMemberByEmailHandler].handle(invite)
    old, new = await _mailed_tokens(stage)
    join = stage.container[AcceptFamilyMemberInvitationHandler]
    refused: list[str] = []
    try:
        await join.handle(AcceptFamilyMemberInvitation(old, guest))
    except TokenUnknown as error:
        refused.append(str(error))
    for sentence in refused:
        stage.say(f"The link of the first mail is refused: {sentence}.")
    await join.handle(AcceptFamilyMemberInvitation(new, guest))
    stage.say("That of the second lets them in. The events carry address and token; shown, both are masked:")
    rows = await stage.show_events()
    _check_invited(stage, rows, resent=first.invitation_id == again.invitation_id and old != new)
    stage.check("the old token was refused, the new one accepted", holds=len(refused) == 1)
    stage.check("each event once, in order, and none of what was refused", holds=_names(rows) == _EXPECTED)


def _check_invited(stage: Stage, rows: list[dict[str, Any]], *, resent: bool) -> None:
    invited = [row["payload"] for row in rows if row["event_type"] == "FamilyMemberInvited"]
    stage.check(
        "the same invitation with a new token, and only the second time isResend",
        holds=resent and [payload["isResend"] for payload in invited] == [False, True],
    )
    shown = {payload[field] for payload in invited for field in ("email", "token")}
    stage.check("no address and no token is shown", holds=shown == {"***"})


def _names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["event_type"] for row in rows]


_EXPECTED = [
    "FamilyCreated",
    "FamilyMemberJoined",
    "FamilyMemberInvited",
    "FamilyMemberInvited",
    "FamilyMemberInvitationAccepted",
    "FamilyMemberJoined",
]


async def _mailed_tokens(stage: Stage) -> list[str]:
    """Take them as whoever sends the mails does: its own row has a digest, and the outbox has them sealed."""
    told = await stage.told("FamilyMemberInvited")
    return [event.token.value for event in told if isinstance(event, FamilyMemberInvited)]


SCENES: tuple[Scene, ...] = (an_invitation_is_sent_again,)
