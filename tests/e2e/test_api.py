"""The API as its users have it: over the wire, from a server process, with a relay process beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest

from tests import servers
from tests.asking import KEY, bearer, problem
from tests.migrated import migrated_database
from tests.opening import tokens_sent
from tests.processes import Serving
from tests.waiting import until

EVENTS = """
SELECT event_type, aggregate_version, event_id, status, headers, payload
FROM outbox_events JOIN outbox_status USING (event_id) WHERE aggregate_id = $1 ORDER BY position
"""
# What handlers record carries no user, but the correlation of the request that began it all.
LEFT = """
SELECT event_id FROM outbox_events WHERE headers->>'correlation_id' IN (
    SELECT headers->>'correlation_id' FROM outbox_events WHERE headers->>'user_id' = ANY($1)
)
"""
PASSED_OVER = "UPDATE scheduled_messages SET next_trigger_at = clock_timestamp() WHERE id = $1"


@pytest.fixture(scope="module")
def database(postgres_server: servers.Server) -> Iterator[str]:
    with migrated_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="module")
def api(database: str) -> Iterator[str]:
    """The URL of a server that serves all contexts, with a relay that delivers."""
    settings = {"DATABASE_URL": database, "OUTBOX_API_TOKEN_KEY": KEY, "OUTBOX_POLL_INTERVAL": "0.2"}
    with Serving("api", "--port", "0", **settings) as server, Serving("relay", **settings) as relay:
        url = server.wait_for("API starts")["url"]
        relay.wait_for("relay starts")
        yield url
        assert relay.stop() == 0
        assert server.stop() == 0


class Caller:
    """Somebody who asks, another in each test, and can look into the database at what came of it."""

    def __init__(self, client: httpx.AsyncClient, connection: asyncpg.Connection, user: str) -> None:
        self.http = client
        self.database = connection
        self.user = user

    async def did_no_more_than(self, *events: dict[str, Any], users: tuple[str, ...] = ()) -> None:
        """Check that what these users asked for has left these events, and no other anywhere."""
        found = await self.database.fetch(LEFT, [self.user, *users])
        assert {row["event_id"] for row in found} == {event["event_id"] for event in events}

    async def mutate(self, mutation: str, user: str, **variables: Any) -> Any:
        """Run a mutation as a user, and return what it gives."""
        answer = await self.http.post(
            "/graphql", json={"query": mutation, "variables": variables}, headers=bearer(user)
        )
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert "errors" not in told, told
        (given,) = told["data"].values()
        return given

    async def events(self, aggregate_id: str | UUID) -> list[dict[str, Any]]:
        """All that happened to an aggregate, in order, numbered without gaps."""
        rows = [dict(row) for row in await self.database.fetch(EVENTS, UUID(str(aggregate_id)))]
        assert [row["aggregate_version"] for row in rows] == list(range(1, len(rows) + 1))
        return [
            {**row, "headers": json.loads(row["headers"]), "payload": json.loads(row["payload"])}
            for row in rows
        ]

    async def settled(self, aggregate_id: str | UUID, events: int) -> list[dict[str, Any]]:
        """The events of an aggregate when so many are there, and delivered."""
        found: list[dict[str, Any]] = []

        async def are_delivered() -> bool:
            found[:] = await self.events(aggregate_id)
            return len(found) >= events and all(each["status"] == "delivered" for each in found)

        await until(are_delivered)
        assert len(found) == events
        return found


@pytest.fixture
async def caller(api: str, database: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(database)
    user = str(uuid4())
    async with httpx.AsyncClient(base_url=api, headers=bearer(user)) as client:
        yield Caller(client, connection, user)
    await connection.close()


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["event_type"] for event in events]


def origins(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Whose request each event comes from; it begins a chain, which has the request's id and no cause."""
    for event in events:
        assert event["headers"].keys() == {"request_id", "user_id", "correlation_id"}
        assert event["headers"]["correlation_id"] == event["headers"]["request_id"]
    return [(event["headers"]["request_id"], event["headers"]["user_id"]) for event in events]


# --- accounts and profiles -------------------------------------------------------------------------------


async def test_who_signs_up_gets_a_profile(caller: Caller) -> None:
    answer = await caller.http.post(
        "/accounts", json={"email": "ada@example.org"}, headers={"x-request-id": "sign-up-1"}
    )
    assert answer.status_code == 201
    account_id = answer.json()["id"]
    (created,) = await caller.settled(account_id, 1)
    assert created["event_type"] == "AccountCreated"
    assert origins([created]) == [("sign-up-1", caller.user)]
    made = await profile_made(caller, account_id)
    assert made["headers"] == {"correlation_id": "sign-up-1", "causation_id": str(created["event_id"])}
    await caller.did_no_more_than(created, made)


async def profile_made(caller: Caller, account_id: str) -> dict[str, Any]:
    """The one event of the account's profile, once its creation is delivered."""
    profile_id = await caller.database.fetchval(
        "SELECT id FROM profiles WHERE account_id = $1", UUID(account_id)
    )
    (made,) = await caller.settled(profile_id, 1)
    assert made["event_type"] == "ProfileCreated"
    return made


async def test_an_address_changes_once_and_is_read_back(caller: Caller) -> None:
    account_id = (await caller.http.post("/accounts", json={"email": "brian@example.org"})).json()["id"]
    for _ in range(2):
        changed = await caller.http.patch(
            f"/accounts/{account_id}", json={"email": "brian@home.example"}, headers=bearer(account_id)
        )
        assert changed.status_code == 204
    found = await caller.http.get(f"/accounts/{account_id}", headers=bearer(account_id))
    assert found.json()["email"] == "brian@home.example"
    events = await caller.settled(account_id, 2)
    assert types(events) == ["AccountCreated", "AccountEmailChanged"]
    assert [user for _, user in origins(events)] == [caller.user, account_id]
    await caller.did_no_more_than(*events, await profile_made(caller, account_id), users=(account_id,))


async def test_a_refusal_is_a_problem_over_the_wire_too(caller: Caller) -> None:
    problem(await caller.http.post("/accounts", json={"email": "no address"}), 422)
    problem(await caller.http.get(f"/accounts/{uuid4()}"), 404)
    problem(
        await caller.http.post("/accounts", content=b"{", headers={"content-type": "application/json"}), 400
    )
    problem(await caller.http.get("/accounts", headers={"authorization": "Bearer rubbish"}), 401)


async def test_it_lives_and_is_ready(caller: Caller) -> None:
    for path in ("/health/live", "/health/ready", "/docs"):
        assert (await caller.http.get(path)).status_code == 200


# --- families --------------------------------------------------------------------------------------------

CREATE = "mutation ($input: CreateFamilyInput!) { createFamily(input: $input) { id members { role } } }"
INVITE = """
mutation ($input: InviteFamilyMemberByEmailInput!) {
  inviteFamilyMemberByEmail(input: $input) { invitationId expiresAt isResend }
}
"""
RESEND = """
mutation ($id: UUID!) { resendFamilyMemberInvitation(invitationId: $id) { invitationId isResend } }
"""
ACCEPT = (
    "mutation ($token: String!) { acceptFamilyMemberInvitation(token: $token) { id members { email role } } }"
)


async def test_who_is_invited_joins_by_the_newest_token(caller: Caller, database: str) -> None:
    """O6: whoever may open the events sends the token; the row has it sealed."""
    owner, guest = str(uuid4()), str(uuid4())
    family = await caller.mutate(CREATE, owner, input={"name": "Lovelace", "ownerEmail": "ada@example.org"})
    invitation = {"familyId": family["id"], "email": "bo@example.org", "role": "ADMIN"}
    sent = await caller.mutate(INVITE, owner, input=invitation)
    assert sent["isResend"] is False
    again = await caller.mutate(RESEND, owner, id=sent["invitationId"])
    assert again == {"invitationId": sent["invitationId"], "isResend": True}

    first, second = await caller.events(sent["invitationId"])
    assert first["payload"]["isResend"] is False
    assert [second["payload"].get(field) for field in ("email", "token")] == [None, None]
    _, token = await tokens_sent(database, sent["invitationId"])
    joined = await caller.mutate(ACCEPT, guest, token=token)
    assert joined["members"] == [
        {"email": "ada@example.org", "role": "OWNER"},
        {"email": "bo@example.org", "role": "ADMIN"},
    ]

    asked = await caller.settled(sent["invitationId"], 3)
    assert types(asked) == ["FamilyMemberInvited", "FamilyMemberInvited", "FamilyMemberInvitationAccepted"]
    assert [user for _, user in origins(asked)] == [owner, owner, guest]
    members = await caller.settled(family["id"], 3)
    assert types(members) == ["FamilyCreated", "FamilyMemberJoined", "FamilyMemberJoined"]
    # What one request did carries one id, in whichever aggregate.
    assert origins(members)[-1] == origins(asked)[-1]
    assert len({request for request, _ in origins([*asked, *members])}) == 4
    await caller.did_no_more_than(*asked, *members, users=(owner, guest))


async def test_an_old_token_and_a_strangers_wish_are_refused_by_graphql(caller: Caller) -> None:
    owner = str(uuid4())
    family = await caller.mutate(
        CREATE, owner, input={"name": "Babbage", "ownerEmail": "charles@example.org"}
    )
    invitation = {"familyId": family["id"], "email": "bo@example.org"}
    body = {"query": INVITE, "variables": {"input": invitation}}
    told = (await caller.http.post("/graphql", json=body)).json()
    (error,) = told["errors"]
    assert (error["extensions"]["type"], error["extensions"]["status"]) == (
        "urn:problem:family_not_found",
        404,
    )
    events = await caller.settled(family["id"], 2)
    assert types(events) == ["FamilyCreated", "FamilyMemberJoined"]
    await caller.did_no_more_than(*events, users=(owner,))


# --- messages --------------------------------------------------------------------------------------------

CHANNEL, GROUP = str(uuid4()), str(uuid4())


async def created(caller: Caller, path: str, **body: Any) -> str:
    answer = await caller.http.post(path, json={"channel_id": CHANNEL, "body": "The choir meets.", **body})
    assert answer.status_code == 201, answer.text
    assert (await caller.http.get(answer.headers["location"])).json() == answer.json()
    return str(answer.headers["location"])


async def test_a_group_message_is_created_queued_and_cancelled(caller: Caller) -> None:
    place = await created(caller, "/group-messages", contact_group_ids=[GROUP], total_recipients=12)
    for status in ("queued", "queued", "cancelled"):
        changed = await caller.http.patch(place, json={"status": status})
        assert (changed.status_code, changed.json()["status"]) == (200, status)
    refused = problem(await caller.http.patch(place, json={"status": "queued"}), 409)
    assert refused["type"] == "illegal_transition"

    events = await caller.settled(place.rpartition("/")[2], 3)
    assert types(events) == ["group_message.created", "group_message.queued", "group_message.cancelled"]
    assert [event["payload"]["status"] for event in events] == ["draft", "queued", "cancelled"]
    assert [event["payload"].get("previous_status") for event in events] == [None, "draft", "queued"]
    assert {user for _, user in origins(events)} == {caller.user}
    assert len({request for request, _ in origins(events)}) == 3
    await caller.did_no_more_than(*events)


async def test_a_scheduled_message_is_paused_resumed_updated_and_cancelled(caller: Caller) -> None:
    year = datetime.now(UTC).year + 2
    place = await created(
        caller,
        "/scheduled-messages",
        send_type="group",
        scheduled_at=f"{year}-01-07T09:00:00",
        timezone="Europe/Berlin",
        recurrence_rule="FREQ=DAILY",
    )
    paused = await caller.http.patch(place, json={"status": "paused"})
    assert paused.json()["status"] == "paused"
    # As after a pause in which its time came: what was kept would be told from what is found anew.
    await caller.database.execute(PASSED_OVER, UUID(place.rpartition("/")[2]))
    resumed = await caller.http.patch(place, json={"status": "pending"})
    assert resumed.json()["next_trigger_at"] == f"{year}-01-07T08:00:00Z"
    # In one request the schedule changes first, and what is resumed goes on by the new one.
    later = {"scheduled_at": f"{year}-01-08T09:00:00", "recurrence_rule": None, "status": "paused"}
    updated = await caller.http.patch(place, json=later)
    assert (updated.json()["is_recurring"], updated.json()["status"]) == (False, "paused")
    assert (await caller.http.patch(place, json={"status": "cancelled"})).json()["next_trigger_at"] is None

    events = await caller.settled(place.rpartition("/")[2], 6)
    assert types(events) == [
        f"scheduled_message.{name}"
        for name in ("created", "paused", "resumed", "updated", "paused", "cancelled")
    ]
    assert datetime.fromisoformat(events[2]["payload"]["next_trigger_at"]) == datetime(
        year, 1, 7, 8, tzinfo=UTC
    )
    assert set(events[3]["payload"]["changed_fields"]) == {
        "scheduled_at",
        "is_recurring",
        "recurrence_rule",
        "next_trigger_at",
    }
    # Both of one request.
    assert origins(events)[3] == origins(events)[4]
    assert {user for _, user in origins(events)} == {caller.user}
    assert len({request for request, _ in origins(events)}) == 5
    await caller.did_no_more_than(*events)


async def test_anothers_message_is_not_there(caller: Caller) -> None:
    place = await created(caller, "/group-messages", contact_group_ids=[GROUP], total_recipients=1)
    stranger = bearer(str(uuid4()))
    problem(await caller.http.get(place, headers=stranger), 404)
    problem(await caller.http.patch(place, json={"status": "queued"}, headers=stranger), 404)
    refused = problem(await caller.http.get(place, headers=bearer("no uuid")), 403)
    assert refused["type"] == "not_one_of_our_users"
    events = await caller.settled(place.rpartition("/")[2], 1)
    assert types(events) == ["group_message.created"]
    await caller.did_no_more_than(*events)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/group-messages", {"contact_group_ids": [], "total_recipients": 1, "body": "x"}),
        ("/group-messages", {"contact_group_ids": [GROUP], "total_recipients": "1", "body": "x"}),
        ("/group-messages", {"contact_group_ids": [GROUP], "total_recipients": 1}),
        ("/scheduled-messages", {"send_type": "group", "scheduled_at": 7, "timezone": "UTC", "body": "x"}),
        (
            "/scheduled-messages",
            {"send_type": "group", "scheduled_at": "2030-01-01", "timezone": "UTC", "body": "x"},
        ),
        (
            "/scheduled-messages",
            {"send_type": "group", "scheduled_at": "2030-01-01T09:00", "timezone": "Nowhere", "body": "x"},
        ),
    ],
)
async def test_what_is_no_message_is_refused(caller: Caller, path: str, body: dict[str, Any]) -> None:
    before = await caller.database.fetchval("SELECT count(*) FROM outbox_events")
    problem(await caller.http.post(path, json={"channel_id": CHANNEL, **body}), 422)
    assert await caller.database.fetchval("SELECT count(*) FROM outbox_events") == before


async def test_null_is_no_way_to_leave_out(caller: Caller) -> None:
    for member in ("scheduled_at", "timezone", "status"):
        answer = await caller.http.patch(f"/scheduled-messages/{uuid4()}", json={member: None})
        assert [each["pointer"] for each in problem(answer, 422)["errors"]] == [f"#/{member}"]


# --- whatever is sent ------------------------------------------------------------------------------------

# What the documentation cannot say: rules of the domain refuse what it allows, and an account is there for its holder,
# who is somebody else than the one who asks for everything here.
NOT_CHECKED = "positive_data_acceptance,ensure_resource_availability"
EXAMPLES = "15"


def test_whatever_is_sent_is_answered_as_documented(
    api: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Schemathesis, with every check that it has: no 5xx, and no answer that the OpenAPI document does not tell of."""
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("schemathesis"), "--no-color", "run", f"{api}/openapi.json"),
            *("--header", f"Authorization: {bearer()['Authorization']}", "--warnings", "off"),
            *("--checks", "all", "--exclude-checks", NOT_CHECKED, "--max-examples", EXAMPLES),
            *("--seed", str(request.config.getoption("--hypothesis-seed"))),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
