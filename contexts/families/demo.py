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
from infrastructure.demo import Scene, Stage
from infrastructure.outbox.tables import outbox_events_in
from infrastructure.settings import Settings


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
    refusal = await _refusal(stage, AcceptFamilyMemberInvitation(old, guest))
    stage.say(f"Whoever follows the link of the first mail is told: {refusal}.")
    await stage.container[AcceptFamilyMemberInvitationHandler].handle(
        AcceptFamilyMemberInvitation(new, guest)
    )
    stage.say(
        "With that of the second they join. The events have address and token; what is shown is masked:"
    )
    rows = await stage.show_events()
    _check(stage, rows, resent=first.invitation_id == again.invitation_id and old != new)
    stage.check("the old token was refused, and nothing was stored of the attempt", holds=refusal is not None)


def _check(stage: Stage, rows: list[dict[str, Any]], *, resent: bool) -> None:
    invited = [row["payload"] for row in rows if row["event_type"] == "FamilyMemberInvited"]
    flags = [payload["isResend"] for payload in invited]
    stage.check(
        "the same invitation with a new token, and only the second says isResend",
        holds=resent and flags == [False, True],
    )
    shown = {payload[field] for payload in invited for field in ("email", "token")}
    stage.check("no address and no token is shown", holds=shown == {"***"})
    stage.check(
        "founded, joined, invited, invited again, accepted, joined: each event once",
        holds=sorted(row["event_type"] for row in rows) == sorted(_EXPECTED),
    )


_EXPECTED = (
    "FamilyCreated",
    "FamilyMemberJoined",
    "FamilyMemberInvited",
    "FamilyMemberInvited",
    "FamilyMemberInvitationAccepted",
    "FamilyMemberJoined",
)


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


async def _refusal(stage: Stage, answer: AcceptFamilyMemberInvitation) -> TokenUnknown | None:
    try:
        await stage.container[AcceptFamilyMemberInvitationHandler].handle(answer)
    except TokenUnknown as error:
        return error
    return None


SCENES: tuple[Scene, ...] = (an_invitation_is_sent_again,)
