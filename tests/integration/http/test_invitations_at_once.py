"""Many who invite one address at once over HTTP: one invitation, one stream, and no answer that nobody expects."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from contexts.families.persistence import SqlFamiliesUnitOfWork
from outbox_kernel.infrastructure.cli.limits import POOL_WAIT_SECONDS_MAX
from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.http import BearerTokens, HttpSettings, create_app
from outbox_kernel.infrastructure.http.problems import KIND_PREFIX
from outbox_kernel.infrastructure.settings import Settings
from tests.asking import KEY, asking, bearer
from tests.integration.http.conftest import Ask
from tests.opening import tokens_sent

AT_ONCE = 200
# What whoever comes second is told: nobody had invited before, or somebody has just sent it again, or often enough.
CONFLICTS = {"invited_meanwhile", "concurrent_change", "too_many_mails"}

CREATE = 'mutation { it: createFamily(input: {name: "Lovelace", ownerEmail: "ada@example.org"}) { id } }'
INVITE = """
mutation ($family: UUID!) {
  it: inviteFamilyMemberByEmail(input: {familyId: $family, email: "bo@example.org"}) { invitationId isResend }
}
"""
ACCEPT = (
    "mutation ($token: String!) { it: acceptFamilyMemberInvitation(token: $token) { members { email } } }"
)

INVITATIONS = "SELECT id, version, status FROM family_member_invitations WHERE family_id = $1"
EVENTS = """
SELECT aggregate_id, event_type, aggregate_version, (payload->>'isResend')::boolean, headers->>'request_id'
FROM outbox_events WHERE payload->'familyId'->>'value' = $1 AND aggregate_type = 'family_member_invitation'
ORDER BY position
"""


@pytest.fixture
async def client(database: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The API with as few connections as `outbox api` gives it."""
    engine: AsyncEngine = create_engine(
        database.required_database_url,
        pool_size=HttpSettings().pool_size,
        max_overflow=0,
        pool_timeout=POOL_WAIT_SECONDS_MAX,
    )
    async with asking(create_app(build_container(database, engine), BearerTokens(KEY))) as client:
        yield client
    await engine.dispose()


async def told(client: httpx.AsyncClient, operation: str, **variables: str) -> Any:
    """What the operation gives, or what its one error says of its kind and status."""
    answer = await client.post("/graphql", json={"query": operation, "variables": variables})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    if "errors" not in found:
        return {**found["data"]["it"], "request": answer.headers["x-request-id"]}
    (error,) = found["errors"]
    return error["extensions"]["type"].removeprefix(KIND_PREFIX), error["extensions"]["status"]


class Meeting:
    """Holds the first commit until a second one is under way, which has then not seen what the first invites."""

    def __init__(self) -> None:
        self._both, self._arrived = asyncio.Barrier(2), 0

    @contextmanager
    def arranged(self) -> Iterator[None]:
        commit = SqlFamiliesUnitOfWork.commit

        async def commit_when_met(uow: SqlFamiliesUnitOfWork) -> None:
            self._arrived += 1
            if self._arrived <= self._both.parties:
                await self._both.wait()
            await commit(uow)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SqlFamiliesUnitOfWork, "commit", commit_when_met)
            yield


async def test_of_many_who_invite_one_address_one_invites_and_each_other_resends_or_is_told(
    client: httpx.AsyncClient, ask: Ask, database: Settings
) -> None:
    family = (await told(client, CREATE))["id"]
    with Meeting().arranged():
        outcomes = await asyncio.gather(*(told(client, INVITE, family=family) for _ in range(AT_ONCE)))

    sent = [each for each in outcomes if isinstance(each, dict)]
    refused = Counter(each for each in outcomes if not isinstance(each, dict))
    # On a busy machine some find no connection in time: they are told, and nothing of theirs is there.
    assert set(refused) <= {("unavailable", 503), *((kind, 409) for kind in CONFLICTS)}
    assert len(sent) + refused.total() == AT_ONCE
    # Two of them at least were under way at once: neither had seen the other's invitation, and one was told.
    assert refused["invited_meanwhile", 409] >= 1

    ((invitation_id, version, status),) = await ask(INVITATIONS, UUID(family))
    assert (version, status) == (len(sent), "open")
    assert {each["invitationId"] for each in sent} == {str(invitation_id)}
    events = await ask(EVENTS, family)
    assert [event[:4] for event in events] == [
        (invitation_id, "FamilyMemberInvited", number, number > 1) for number in range(1, len(sent) + 1)
    ]
    # One for each who was told that it is sent, and for nobody else.
    assert {request: is_resend for *_, is_resend, request in events} == {
        each["request"]: each["isResend"] for each in sent
    }

    *old, newest = await tokens_sent(database.required_database_url, invitation_id)
    client.headers.update(bearer(str(uuid4())))
    for token in old:
        assert await told(client, ACCEPT, token=token) == ("token_unknown", 404)
    joined = await told(client, ACCEPT, token=newest)
    assert joined["members"] == [{"email": "ada@example.org"}, {"email": "bo@example.org"}]
