"""Whatever fails between two steps of a use case, neither state nor events are left (C1, C3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import attrs
import pytest
from lagom import Container

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
from outbox_kernel.infrastructure.database import SqlAlchemyRepository
from outbox_kernel.kernel import AggregateRoot
from outbox_kernel.kernel.testing import FrozenClock, using_clock
from tests.integration.families.conftest import Home
from tests.integration.families.stepping import SteppingUnitOfWork
from tests.integration.families.test_families import BO, invite, newest_token

TABLES = ("families", "family_members", "family_member_invitations", "outbox_events")
EVERYTHING = " UNION ALL ".join(
    f"SELECT '{table}', row_to_json(found)::jsonb FROM {table} AS found" for table in TABLES
)


class PulledPlug(Exception):
    pass


@attrs.define
class Fuse:
    """Blows at one step, before it is taken."""

    blows_at: int
    taken: int = 0

    def step(self) -> None:
        self.taken += 1
        if self.taken == self.blows_at:
            raise PulledPlug


class FusedUnitOfWork(SteppingUnitOfWork):
    """Each step may be the last, with all that came before it written in the transaction."""

    def __init__(self, container: Container, fuse: Fuse) -> None:
        super().__init__(container)
        self._fuse = fuse

    async def __aenter__(self) -> FusedUnitOfWork:  # noqa: PYI034 - nothing derives from it
        self._fuse.step()
        return await super().__aenter__()

    async def before(self) -> None:
        await self.session.flush()
        self._fuse.step()


@contextmanager
def memory_in_steps(fuse: Fuse) -> Iterator[None]:
    """Let what happens in memory be steps too: an aggregate records, and a repository takes one in."""
    with pytest.MonkeyPatch.context() as patch:
        for cls, name in ((AggregateRoot, "record"), (SqlAlchemyRepository, "add")):
            patch.setattr(cls, name, stepped(getattr(cls, name), fuse))
        yield


def stepped(method: Callable[..., None], fuse: Fuse) -> Callable[..., None]:
    def step(*arguments: Any) -> None:
        fuse.step()
        method(*arguments)

    return step


async def in_steps(fuse: Fuse, container: Container, handler: Any, command: Any) -> None:
    with memory_in_steps(fuse):
        await handler(FusedUnitOfWork(container, fuse)).handle(command)


async def creating(container: Container, rows: Any, home: Home) -> tuple[Any, Any]:
    return CreateFamilyHandler, CreateFamily("The Babbages", uuid4(), "charles@example.org")


async def inviting(container: Container, rows: Any, home: Home) -> tuple[Any, Any]:
    return InviteFamilyMemberByEmailHandler, InviteFamilyMemberByEmail(home.family_id, BO, home.owner)


async def inviting_again(container: Container, rows: Any, home: Home) -> tuple[Any, Any]:
    await invite(container, home)
    return await inviting(container, rows, home)


async def resending(container: Container, rows: Any, home: Home) -> tuple[Any, Any]:
    command = ResendFamilyMemberInvitation(await invite(container, home), home.owner)
    return ResendFamilyMemberInvitationHandler, command


async def revoking(container: Container, rows: Any, home: Home) -> tuple[Any, Any]:
    command = RevokeFamilyMemberInvitation(await invite(container, home), home.owner)
    return RevokeFamilyMemberInvitationHandler, command


async def accepting(container: Container, rows: Any, home: Home) -> tuple[Any, Any]:
    token = await newest_token(container, await invite(container, home))
    return AcceptFamilyMemberInvitationHandler, AcceptFamilyMemberInvitation(token, uuid4())


async def expiring(container: Container, rows: Any, home: Home) -> tuple[Any, Any]:
    with using_clock(FrozenClock()):  # long ago
        command = ExpireFamilyMemberInvitation(await invite(container, home))
    return ExpireFamilyMemberInvitationHandler, command


@pytest.mark.parametrize(
    ("prepare", "steps"),
    [
        (creating, 5),
        (inviting, 7),
        (inviting_again, 6),
        (resending, 6),
        (revoking, 5),
        (accepting, 6),
        (expiring, 4),
    ],
)
async def test_a_failure_at_any_step_leaves_nothing(
    container: Container, rows: Any, home: Home, prepare: Any, steps: int
) -> None:
    handler, command = await prepare(container, rows, home)
    before = sorted(map(repr, await rows(EVERYTHING)))
    for number in range(1, steps + 1):
        with pytest.raises(PulledPlug):
            await in_steps(Fuse(blows_at=number), container, handler, command)
        assert sorted(map(repr, await rows(EVERYTHING))) == before
    # When the fuse outlasts the steps it runs to its end, and only then does anything change.
    outlasting = Fuse(blows_at=steps + 1)
    await in_steps(outlasting, container, handler, command)
    assert outlasting.taken == steps
    assert sorted(map(repr, await rows(EVERYTHING))) != before
