"""The scenes of this context for `outbox demo`."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from contexts.families.domain import TokenUnknown
from contexts.families.use_cases import (
    AcceptFamilyMemberInvitation,
    AcceptFamilyMemberInvitationHandler,
    CreateFamily,
    CreateFamilyHandler,
    InviteFamilyMemberByEmail,
    InviteFamilyMemberByEmailHandler,
)
from outbox_kernel import Settings
from outbox_kernel.infrastructure.demo import Scene, Stage
from outbox_kernel.infrastructure.outbox.tables import outbox_events_in


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
    """Read them where whoever sends the mails does: the invitation's own row has a digest only."""
    events = outbox_events_in(stage.container[Settings].outbox_schema).c
    tokens = (
        select(events.payload["token"]["value"].astext)
        .where(events.event_type == "FamilyMemberInvited")
        .order_by(events.position)
    )
    async with stage.container[AsyncEngine].connect() as connection:
        return list(await connection.scalars(tokens))


SCENES: tuple[Scene, ...] = (an_invitation_is_sent_again,)
