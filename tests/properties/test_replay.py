"""K3: the outbox's history of an invitation rebuilds the row that is stored of it, whatever was asked of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from contexts.families.domain import FamilyMemberInvitation
from contexts.families.events import FamiliesError, InvitationId, RoleName
from contexts.families.persistence import SqlFamiliesUnitOfWork
from contexts.families.use_cases import (
    AcceptFamilyMemberInvitation,
    AcceptFamilyMemberInvitationHandler,
    CreateFamily,
    CreateFamilyHandler,
    ExpireFamilyMemberInvitation,
    ExpireFamilyMemberInvitationHandler,
    InviteFamilyMemberByEmail,
    InviteFamilyMemberByEmailHandler,
    ResendFamilyMemberInvitation,
    ResendFamilyMemberInvitationHandler,
    RevokeFamilyMemberInvitation,
    RevokeFamilyMemberInvitationHandler,
)
from outbox_kernel.infrastructure.database import session_factory
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import AggregateRoot, DomainEvent, deserialize_event
from outbox_kernel.kernel.testing import FrozenClock, using_clock
from outbox_kernel.kernel.wire.types import fields_of
from tests import servers
from tests.bank import engine_of
from tests.opening import events_told, tokens_sent

HISTORY = """
SELECT event_id, event_type, payload::text, event_version FROM outbox_events WHERE aggregate_id = :id
ORDER BY aggregate_version
"""
INVITED = "FamilyMemberInvited"


@attrs.define
class Correspondence:
    """A family, an address or two, and all that is asked about them; what breaks a rule changes nothing."""

    engine: AsyncEngine
    sessions: async_sessionmaker[AsyncSession]
    clock: FrozenClock
    owner: UUID = attrs.Factory(uuid4)
    family_id: UUID = attrs.field(init=False)
    invitations: list[UUID] = attrs.Factory(list)

    async def begin(self) -> None:
        command = CreateFamily("The Lovelaces", self.owner, "ada@example.org")
        self.family_id = await CreateFamilyHandler(self.uow()).handle(command)

    @property
    def url(self) -> str:
        return self.engine.url.render_as_string(hide_password=False)

    def uow(self) -> SqlFamiliesUnitOfWork:
        return SqlFamiliesUnitOfWork(self.sessions)

    async def invite(self, which: int) -> None:
        role = list(RoleName)[1 + which % 2]
        command = InviteFamilyMemberByEmail(self.family_id, f"bo{which % 2}@example.org", self.owner, role)
        sent = await InviteFamilyMemberByEmailHandler(self.uow()).handle(command)
        if not sent.is_resend:
            self.invitations.append(sent.invitation_id)

    async def resend(self, which: int) -> None:
        command = ResendFamilyMemberInvitation(self._one(which), self.owner)
        await ResendFamilyMemberInvitationHandler(self.uow()).handle(command)

    async def accept(self, which: int) -> None:
        tokens = await tokens_sent(self.url, self.family_id)
        command = AcceptFamilyMemberInvitation(tokens[-1 - which % len(tokens)] if tokens else "", uuid4())
        await AcceptFamilyMemberInvitationHandler(self.uow()).handle(command)

    async def revoke(self, which: int) -> None:
        command = RevokeFamilyMemberInvitation(self._one(which), self.owner)
        await RevokeFamilyMemberInvitationHandler(self.uow()).handle(command)

    async def expire(self, which: int) -> None:
        await ExpireFamilyMemberInvitationHandler(self.uow()).handle(
            ExpireFamilyMemberInvitation(self._one(which))
        )

    async def wait(self, which: int) -> None:
        self.clock.advance(timedelta(days=(1, 14)[which % 2], microseconds=which))

    async def ask(self, query: str, **values: object) -> list[Any]:
        async with self.engine.connect() as connection:
            return list(await connection.execute(text(query), values))

    async def replayed_and_stored(
        self, invitation_id: UUID
    ) -> tuple[FamilyMemberInvitation, FamilyMemberInvitation]:
        # What is sealed in them is opened as for a handler.
        invited = {event.event_id: event for event in await events_told(self.url, INVITED)}
        history: list[DomainEvent] = [
            invited.get(event_id) or deserialize_event(*stored)
            for event_id, *stored in await self.ask(HISTORY, id=invitation_id)
        ]
        async with self.uow() as uow:
            stored = await uow.invitations.get(InvitationId(invitation_id))
        assert stored is not None
        return FamilyMemberInvitation.replay(history), stored

    def _one(self, which: int) -> UUID:
        return self.invitations[which % len(self.invitations)] if self.invitations else uuid4()


@attrs.frozen
class Place:
    """Where all of it happens: one loop, one database, and one clock: beginning anew, it would repeat its ids."""

    runner: asyncio.Runner
    engine: AsyncEngine
    clock: FrozenClock

    def correspond(self, steps: list[tuple[str, int]]) -> None:
        with using_clock(self.clock):
            self.runner.run(self._correspond(steps))

    async def _correspond(self, steps: list[tuple[str, int]]) -> None:
        letters = Correspondence(self.engine, session_factory(self.engine, wake_up=False), self.clock)
        await letters.begin()
        for action, which in steps:
            with suppress(FamiliesError):
                await getattr(letters, action)(which)
        for invitation_id in letters.invitations:
            replayed, stored = await letters.replayed_and_stored(invitation_id)
            assert state_of(replayed) == state_of(stored)


def state_of(aggregate: AggregateRoot) -> dict[str, object]:
    return {field.name: getattr(aggregate, field.name) for field in fields_of(type(aggregate))}


@pytest.fixture(scope="module")
def place(postgres_server: servers.Server) -> Iterator[Place]:
    with (
        servers.fresh_database(postgres_server) as url,
        asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner,
    ):
        engine = engine_of(url)
        runner.run(migrate(engine, Settings(database_url=url, contexts=("contexts.families",))))
        yield Place(runner, engine, FrozenClock())
        runner.run(engine.dispose())


# Weighted, so that most are about something that is there.
ACTIONS = ["invite"] * 4 + ["resend"] * 2 + ["accept", "revoke", "expire", "wait"]
steps = st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3))


@settings(max_examples=settings().max_examples // 4)
@given(history=st.lists(steps, max_size=12))
@example(history=[("invite", 0), ("wait", 1), ("invite", 1), ("resend", 0), ("accept", 0)])
@example(history=[("invite", 0), ("wait", 1), ("expire", 0), ("invite", 0), ("revoke", 1)])
def test_the_history_of_an_invitation_rebuilds_its_row(place: Place, history: list[tuple[str, int]]) -> None:
    place.correspond(history)
