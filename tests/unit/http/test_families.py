"""Families by GraphQL: each thing that can be asked or done, by the user whom the token names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from lagom import Container

from contexts.families.domain import FamilyMemberInvitation, InvitationStatus
from contexts.families.events import FamilyMemberInvited, InvitationId
from contexts.families.use_cases import FamiliesUnitOfWork
from outbox_kernel.infrastructure.http import BearerTokens, create_app
from outbox_kernel.infrastructure.http.problems import KIND_PREFIX
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel.testing import InMemoryStore
from tests.asking import KEY, asking, bearer
from tests.unit.families.in_memory import InMemoryFamiliesUnitOfWork

OWNER, GUEST, STRANGER = (str(uuid4()) for _ in range(3))

CREATE = """
mutation ($name: String!) {
  it: createFamily(input: {name: $name, ownerEmail: "ada@example.org"}) { id name members { userId role email } }
}
"""
INVITE = """
mutation ($family: UUID!) {
  it: inviteFamilyMemberByEmail(input: {familyId: $family, email: "bo@example.org"}) {
    invitationId expiresAt isResend
  }
}
"""
RESEND = "mutation ($id: UUID!) { it: resendFamilyMemberInvitation(invitationId: $id) { isResend } }"
REVOKE = "mutation ($id: UUID!) { it: revokeFamilyMemberInvitation(invitationId: $id) }"
ACCEPT = "mutation ($token: String!) { it: acceptFamilyMemberInvitation(token: $token) { members { userId role } } }"
FAMILY = "query ($id: UUID!) { it: family(id: $id) { name members { email joinedAt } } }"
INVITATION = """
query ($id: UUID!) { it: familyMemberInvitation(id: $id) { id familyId email role status expiresAt } }
"""


class Api:
    """The API, asked by one user or another."""

    def __init__(self, client: httpx.AsyncClient, store: InMemoryStore) -> None:
        self.client, self.store = client, store

    async def ask(self, operation: str, user: str = OWNER, **variables: str) -> Any:
        """What the operation gives, or the kind of refusal."""
        body = {"query": operation, "variables": variables}
        told = (await self.client.post("/graphql", json=body, headers=bearer(user))).json()
        if "errors" not in told:
            return told["data"]["it"]
        (error,) = told["errors"]
        # A refusal takes nothing else with it.
        assert told["data"] == {"it": None}
        return error["extensions"]["type"].removeprefix(KIND_PREFIX)

    async def family(self) -> str:
        """A family of OWNER's, by its id."""
        made = await self.ask(CREATE, name="Lovelace")
        return str(made["id"])

    async def invitation(self) -> str:
        """An invitation to such a family, by its id."""
        sent = await self.ask(INVITE, family=await self.family())
        return str(sent["invitationId"])

    @property
    def token(self) -> str:
        """The token that was mailed last."""
        sent = [event for event in self.store.events if isinstance(event, FamilyMemberInvited)]
        return sent[-1].token.value


@pytest.fixture
async def api(store: InMemoryStore) -> AsyncIterator[Api]:
    container = Container()
    container[Settings] = Settings(contexts=("contexts.families",))
    container[FamiliesUnitOfWork] = lambda: InMemoryFamiliesUnitOfWork(store)  # type: ignore[type-abstract]
    async with asking(create_app(container, BearerTokens(KEY))) as client:
        yield Api(client, store)


async def test_who_creates_a_family_owns_it(api: Api) -> None:
    made = await api.ask(CREATE, name="Lovelace")
    assert made["name"] == "Lovelace"
    assert made["members"] == [{"userId": OWNER, "role": "OWNER", "email": "ada@example.org"}]


async def test_a_family_is_seen_by_its_members(api: Api) -> None:
    family = await api.family()
    assert (await api.ask(FAMILY, id=family))["name"] == "Lovelace"
    assert await api.ask(FAMILY, user=STRANGER, id=family) == "family_not_found"
    assert await api.ask(FAMILY, id=str(uuid4())) == "family_not_found"


async def test_an_invitation_is_seen_by_those_who_decide(api: Api) -> None:
    invitation = await api.invitation()
    seen = await api.ask(INVITATION, id=invitation)
    assert (seen["id"], seen["email"], seen["role"], seen["status"]) == (
        invitation,
        "bo@example.org",
        "MEMBER",
        "OPEN",
    )
    assert await api.ask(INVITATION, user=STRANGER, id=invitation) == "invitation_not_found"
    assert await api.ask(INVITATION, id=str(uuid4())) == "invitation_not_found"


async def test_to_invite_again_is_to_send_again(api: Api) -> None:
    family = await api.family()
    first, second = await api.ask(INVITE, family=family), await api.ask(INVITE, family=family)
    assert (first["isResend"], second["isResend"]) == (False, True)
    assert first["invitationId"] == second["invitationId"]
    assert (await api.ask(RESEND, id=first["invitationId"])) == {"isResend": True}


async def test_only_those_who_decide_invite_send_again_and_revoke(api: Api) -> None:
    family = await api.family()
    assert await api.ask(INVITE, user=STRANGER, family=family) == "family_not_found"
    invitation = (await api.ask(INVITE, family=family))["invitationId"]
    assert await api.ask(RESEND, user=STRANGER, id=invitation) == "invitation_not_found"
    assert await api.ask(REVOKE, user=STRANGER, id=invitation) == "invitation_not_found"


async def test_who_accepts_belongs_to_the_family(api: Api) -> None:
    await api.invitation()
    joined = await api.ask(ACCEPT, user=GUEST, token=api.token)
    assert joined["members"] == [{"userId": OWNER, "role": "OWNER"}, {"userId": GUEST, "role": "MEMBER"}]
    assert await api.ask(ACCEPT, user=STRANGER, token=api.token) == "invitation_not_open"
    assert await api.ask(ACCEPT, user=STRANGER, token="no token") == "invalid_token"


@pytest.mark.parametrize(
    ("email", "role", "status"),
    [("ada@example.org", "MEMBER", 409), ("bo@example.org", "OWNER", 422)],
    ids=["already_member", "owner_not_invitable"],
)
async def test_what_has_become_of_a_family_conflicts_and_what_is_never_in_order_breaks_a_rule(
    api: Api, email: str, role: str, status: int
) -> None:
    """Conflicts are 409, rules 422 (X)."""
    invite = INVITE.replace("bo@example.org", email).replace(f'"{email}"', f'"{email}", role: {role}')
    body = {"query": invite, "variables": {"family": await api.family()}}
    (error,) = (await api.client.post("/graphql", json=body, headers=bearer(OWNER))).json()["errors"]
    assert error["extensions"]["status"] == status


async def test_what_is_revoked_opens_nothing(api: Api) -> None:
    invitation = await api.invitation()
    assert await api.ask(REVOKE, id=invitation) == invitation
    assert await api.ask(ACCEPT, user=GUEST, token=api.token) == "invitation_not_open"
    found = api.store.get(FamilyMemberInvitation, InvitationId(UUID(invitation)))
    assert found is not None
    assert found.status is InvitationStatus.REVOKED


async def test_a_user_is_known_by_a_uuid(api: Api) -> None:
    assert await api.ask(CREATE, user="ada", name="Lovelace") == "not_one_of_our_users"
