"""Whatever is sent to GraphQL over the wire, it gives data or says what is wrong: no 5xx, and nothing unthought of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from graphql import build_client_schema, get_introspection_query, print_schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis_graphql import from_schema, nodes

from tests import servers
from tests.asking import KEY, bearer, problem
from tests.e2e.test_api import ACCEPT, CREATE, INVITE, RESEND
from tests.migrated import migrated_database
from tests.opening import tokens_sent
from tests.processes import Serving

REVOKE = "mutation ($id: UUID!) { revokeFamilyMemberInvitation(invitationId: $id) }"
FAMILY = "query ($id: UUID!) { family(id: $id) { name members { email role joinedAt } } }"
INVITATION = (
    "query ($id: UUID!) { familyMemberInvitation(id: $id) { id familyId email role status expiresAt } }"
)


@pytest.fixture(scope="module")
def database(postgres_server: servers.Server) -> Iterator[str]:
    with migrated_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="module")
def api(database: str) -> Iterator[str]:
    """The URL of a server that serves all contexts."""
    with Serving("api", "--port", "0", DATABASE_URL=database, OUTBOX_API_TOKEN_KEY=KEY) as server:
        yield server.wait_for("API starts")["url"]
        assert server.stop() == 0


def run(client: httpx.Client, query: str, **variables: Any) -> Any:
    answer = client.post("/graphql", json={"query": query, "variables": variables})
    assert answer.status_code == 200, answer.text
    return answer.json()


def is_explained(answer: httpx.Response) -> bool:
    """Whether it gives data, a refusal or a problem of the request's own, and nothing that nobody has thought of."""
    if answer.status_code != 200:
        return bool(problem(answer, answer.status_code)) and answer.status_code < 500
    errors = answer.json().get("errors", ())
    return all(error.get("extensions", {}).get("status", 400) < 500 for error in errors)


@pytest.fixture(scope="module")
def known(api: str, database: str) -> dict[str, list[str]]:
    """What there is: a family, its invitations, and their tokens."""
    with httpx.Client(base_url=api, headers=bearer()) as client:
        family = run(client, CREATE, input={"name": "Byron", "ownerEmail": "ada@example.org"})
        family_id = family["data"]["createFamily"]["id"]
        sent = [
            run(client, INVITE, input={"familyId": family_id, "email": f"bo{number}@example.org"})
            for number in range(3)
        ]
    invitations = [each["data"]["inviteFamilyMemberByEmail"]["invitationId"] for each in sent]
    tokens = servers.run(tokens_sent(database, family_id))
    return {"families": [family_id], "invitations": invitations, "tokens": tokens}


def test_whatever_operation_is_run_is_answered_by_graphql(api: str, known: dict[str, list[str]]) -> None:
    """Valid operations of every shape, also on what is there."""
    with httpx.Client(base_url=api, headers=bearer()) as client:
        found = run(client, get_introspection_query(descriptions=False))
        schema = print_schema(build_client_schema(found["data"]))
        ids = st.sampled_from([*known["families"], *known["invitations"]]) | st.uuids().map(str)

        @settings(max_examples=80, suppress_health_check=list(HealthCheck))
        @given(from_schema(schema, custom_scalars={"UUID": ids.map(nodes.String)}))
        def holds(query: str) -> None:
            answer = client.post("/graphql", json={"query": query})
            assert answer.status_code == 200
            assert is_explained(answer), answer.text

        holds()


def test_whatever_variables_come_with_it_graphql_answers(api: str, known: dict[str, list[str]]) -> None:
    """Operations as clients keep them, with variables that fit, that nearly do and that do not."""
    families, invitations, tokens = (st.sampled_from(known[kind]) for kind in known)
    emails = st.sampled_from(["ada@example.org", "bo1@example.org", "new@example.org", "no address"])
    names = st.text(max_size=5)
    roles = st.sampled_from(["ADMIN", "MEMBER", "OWNER", "owner"])
    fitting: dict[str, dict[str, Any]] = {
        CREATE: {"input": {"name": names, "ownerEmail": emails}},
        INVITE: {"input": {"familyId": families, "email": emails, "role": roles}},
        RESEND: {"id": invitations},
        ACCEPT: {"token": tokens},
        REVOKE: {"id": invitations},
        FAMILY: {"id": families},
        INVITATION: {"id": invitations},
    }
    anything = st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text()
        | st.sampled_from([*known["families"], *known["invitations"], *known["tokens"]]),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
        max_leaves=5,
    )

    def drawn(data: st.DataObject, wanted: Any) -> Any:
        if data.draw(st.integers(0, 5)) == 0:
            return data.draw(anything)
        if isinstance(wanted, dict):
            return {name: drawn(data, each) for name, each in wanted.items()}
        return data.draw(wanted)

    reached: set[str] = set()
    with httpx.Client(base_url=api, headers=bearer()) as client:

        @settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
        @given(st.sampled_from(list(fitting)), st.data())
        def holds(query: str, data: st.DataObject) -> None:
            body = json.dumps({"query": query, "variables": drawn(data, fitting[query])})
            answer = client.post("/graphql", content=body, headers={"content-type": "application/json"})
            assert is_explained(answer), answer.text
            if answer.status_code == 200:
                reached.update(name for name, value in (answer.json().get("data") or {}).items() if value)

        holds()
    # It came through to what is there, and was not turned away at the door every time.
    assert reached & {"family", "familyMemberInvitation"}


def test_whatever_is_broken_in_it_graphql_says_so(api: str) -> None:
    """Operations with a piece cut out and another put in, which mostly are none any more."""
    pieces = st.sampled_from(["", "{", "}", "$", '"', "...", "@x", "fragment a on Query { ...a }", "\\u0000"])
    with httpx.Client(base_url=api, headers=bearer()) as client:

        @settings(max_examples=100, suppress_health_check=list(HealthCheck), deadline=None)
        @given(st.sampled_from([CREATE, INVITE, ACCEPT, FAMILY]), st.data(), pieces | st.text(max_size=5))
        def holds(query: str, data: st.DataObject, piece: str) -> None:
            begin = data.draw(st.integers(0, len(query)))
            broken = query[:begin] + piece + query[data.draw(st.integers(begin, len(query))) :]
            body = json.dumps({"query": broken, "variables": {}})
            answer = client.post("/graphql", content=body, headers={"content-type": "application/json"})
            assert is_explained(answer), answer.text

        holds()
