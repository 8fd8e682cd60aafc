"""What the contexts bring is found by name, documented as it is, and served as one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from graphql import get_introspection_query
from lagom import Container

from outbox_kernel.infrastructure.errors import BadContext
from outbox_kernel.infrastructure.http import BearerTokens, create_app
from outbox_kernel.infrastructure.http.discovery import apis_of
from outbox_kernel.infrastructure.http.example import curl_line
from outbox_kernel.infrastructure.settings import Settings
from tests.asking import KEY, USER, asking, problem

Write = Callable[[str], str]


def written(folder: Path, name: str, api: str) -> str:
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    (folder / name / "api.py").write_text(api)
    return name


@pytest.fixture
def context(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """A context of this test alone with such an `api` module; Python keeps what it imported, so its name is new."""

    def write(api: str) -> str:
        name = f"serving_{abs(hash(request.node.name))}_{len(list(tmp_path.iterdir()))}"
        return written(tmp_path, name, api)

    monkeypatch.syspath_prepend(tmp_path)
    return write


def test_a_context_without_an_api_serves_nothing() -> None:
    assert apis_of(["tests.integration"]) == []


@pytest.mark.parametrize(
    ("api", "sentence"),
    [
        ("import nothing_of_that_name", r"cannot be imported \(ModuleNotFoundError"),
        ("", "serves nothing: give it `router`"),
        ("router = 7", "serves nothing: give it `router`"),
    ],
)
def test_an_api_that_serves_nothing_is_a_sentence(context: Write, api: str, sentence: str) -> None:
    with pytest.raises(BadContext, match=sentence):
        apis_of([context(api)])


# --- the document ----------------------------------------------------------------------------------------


def operations(app: FastAPI) -> dict[str, Any]:
    return {
        f"{method.upper()} {path}": operation
        for path, item in app.openapi()["paths"].items()
        for method, operation in item.items()
    }


def test_every_operation_says_how_it_refuses(app: FastAPI) -> None:
    for name, operation in operations(app).items():
        answers = operation["responses"]
        problems = {
            status
            for status, answer in answers.items()
            if "application/problem+json" in answer.get("content", {})
        }
        if "health" in name:
            assert problems == {"503"}
        else:
            assert {"400", "401", "413", "415", "422", "500", "503"} <= problems


def test_only_health_is_open_to_everybody(app: FastAPI) -> None:
    assert app.openapi()["security"] == [{"token": []}]
    assert {name for name, each in operations(app).items() if each.get("security") == []} == {
        "GET /health/live",
        "GET /health/ready",
    }


def test_every_body_has_an_example_that_is_accepted(app: FastAPI) -> None:
    schemas = app.openapi()["components"]["schemas"]
    for name in ("SignUpBody", "ChangeEmailBody"):
        for part in schemas[name]["properties"].values():
            assert part["examples"]


async def test_the_line_to_try_it_with_works(app: FastAPI) -> None:
    line = curl_line(app.openapi(), "http://api", "TOKEN")
    assert line.startswith("curl -i http://api/accounts -H 'Authorization: Bearer TOKEN' -H ")
    body = json.loads(line.partition(" -d ")[2].strip("'"))
    async with asking(app) as client:
        assert (await client.post("/accounts", json=body)).status_code == 201


@pytest.mark.parametrize(
    "paths",
    [
        {},
        {"/a": {"get": {}}},
        {"/a": {"post": {}}},
        {"/a": {"post": {"requestBody": {"content": {}}}}},
        {
            "/a/{id}": {
                "post": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/x/B"}}}}}
            }
        },
        {"/a": {"post": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/x/C"}}}}}}},
    ],
)
def test_where_no_example_suffices_the_line_looks_at_the_document(paths: dict[str, Any]) -> None:
    schemas = {
        "B": {"properties": {"a": {"examples": [1]}}, "required": ["a"]},
        "C": {"properties": {"a": {}}, "required": ["a"]},
    }
    line = curl_line({"paths": paths, "components": {"schemas": schemas}}, "http://api", "T")
    assert line == "curl -i http://api/openapi.json -H 'Authorization: Bearer T'"


# --- GraphQL ---------------------------------------------------------------------------------------------

GRAPHQL = """
from uuid import UUID

import strawberry
from strawberry.types import Info

from outbox_kernel.infrastructure.http.graphql import GraphQLContext, provided
from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.http import Principal
from outbox_kernel.kernel import Conflict


class Taken(Conflict):
    kind = "taken"


@strawberry.type
class Node:
    @strawberry.field
    def next(self) -> "Node":
        return self


@strawberry.type
class Query:
    @strawberry.field
    def first(self) -> Node:
        return Node()

    @strawberry.field
    def who(self, info: Info[GraphQLContext, None]) -> str:
        return provided(info, Principal).user_id

    @strawberry.field
    def echo(self, text: str) -> str:
        return text

    @strawberry.field
    def by_id(self, id: UUID) -> UUID:
        return id

    @strawberry.field
    def taken(self) -> int | None:
        raise Taken("somebody has it")

    @strawberry.field
    def away(self) -> int | None:
        raise DatabaseUnreachable("host 10.0.0.7\\nis away")


@strawberry.type
class Mutation:
    @strawberry.mutation
    def take(self) -> int:
        raise Taken("somebody has it")

    @strawberry.mutation
    def stumble(self) -> int:
        raise RuntimeError("hunter2")
"""
OTHER = """
import strawberry


@strawberry.type
class Query:
    @strawberry.field
    def answer(self) -> int:
        return 42
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """It keeps nothing from one request to the next, and takes long to make."""
    folder = tmp_path_factory.mktemp("graph")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        container = Container()
        container[Settings] = Settings(
            contexts=(written(folder, "graph_1", GRAPHQL), written(folder, "graph_2", OTHER))
        )
        return create_app(container, BearerTokens(KEY))


LAST = "fragment f12 on Query { __typename }"
EACH_OTHER = " ".join(f"...f{n}" for n in range(6))


async def told(client: httpx.AsyncClient, query: str, **variables: Any) -> Any:
    answer = await client.post("/graphql", json={"query": query, "variables": variables})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_types_of_all_contexts_are_one_schema(graph: FastAPI) -> None:
    async with asking(graph) as client:
        assert await told(client, "{ who answer }") == {"data": {"who": USER, "answer": 42}}


async def test_a_refusal_of_the_domain_is_told_in_its_own_words_there_too(graph: FastAPI) -> None:
    async with asking(graph) as client:
        (error,) = (await told(client, "mutation { take }"))["errors"]
    assert error["message"] == "somebody has it"
    assert error["path"] == ["take"]
    assert (error["extensions"]["type"], error["extensions"]["status"]) == ("urn:problem:taken", 409)
    assert error["extensions"]["request_id"]


async def test_what_breaks_there_tells_nothing_and_is_logged(
    graph: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(graph) as client:
        answer = await told(client, "mutation { stumble }")
    assert "hunter2" not in str(answer)
    assert answer["errors"][0]["extensions"]["type"] == "urn:problem:unexpected"
    (failure,) = (each for each in caplog.records if each.levelname == "ERROR")
    assert failure.exc_info
    assert "hunter2" in str(failure.exc_info[1])


@pytest.mark.parametrize(
    "query",
    [
        "{",
        "{ nothing }",
        '{ echo(text: "a\\u0000") }',
        '{ echo(text: "\\uD800") }',
        '{ byId(id: "7") }',
        "query ($id: UUID!) { byId(id: $id) }",
        "{ " + " ".join(f"a{number}: answer" for number in range(20)) + " }",
        "{ " + "who " * 3_000 + "}",
        "{ first " + "{ next " * 15 + "{ __typename } " + "} " * 15 + "}",
        "mutation { take",
        "subscription { answer }",
        "{ ...f } fragment f on Query { ...f }",
        "{a" * 900 + "}" * 900,
        # A few lines that are very many fields, and some that have no end.
        "{ ...f0 }"
        + "".join(f"fragment f{n} on Query {{ ...f{n + 1} ...f{n + 1} }}" for n in range(12))
        + LAST,
        "{ ...f0 }" + "".join(f"fragment f{n} on Query {{ {EACH_OTHER} }}" for n in range(6)),
        "{ ...f0 }" + "".join(f"fragment f{n} on Query {{ ...f{n + 1} }}" for n in range(300)),
    ],
)
async def test_an_operation_that_cannot_be_run_is_told_and_not_run(graph: FastAPI, query: str) -> None:
    async with asking(graph) as client:
        answer = await told(client, query)
    assert answer["data"] is None
    assert answer["errors"]
    for error in answer["errors"]:
        assert error["message"]


@pytest.mark.parametrize(
    "query",
    [
        "{ " + " ".join(f"whoo{number}" for number in range(300)) + " }",
        "query (" + " ".join(f"$v{number}: Int" for number in range(300)) + ") { who }",
    ],
    ids=["unknown fields", "unused variables"],
)
async def test_only_the_first_of_what_is_wrong_with_an_operation_is_told(graph: FastAPI, query: str) -> None:
    async with asking(graph) as client:
        answer = await told(client, query)
    assert len(answer["errors"]) == 1


async def test_what_has_become_of_each_field_is_told(graph: FastAPI) -> None:
    async with asking(graph) as client:
        answer = await told(client, "{ one: taken two: taken }")
    assert [error["path"] for error in answer["errors"]] == [["one"], ["two"]]


async def test_what_passes_is_told_as_such_and_logged_in_a_line(
    graph: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(graph) as client:
        answer = await told(client, "{ away }")
    (error,) = answer["errors"]
    assert error["extensions"]["status"] == 503
    assert "10.0.0.7" not in json.dumps(answer)
    (warned,) = (each for each in caplog.records if each.levelname == "WARNING")
    assert warned.getMessage() == "a GraphQL operation cannot be served now: host 10.0.0.7"
    assert warned.exc_info is None


async def test_an_operation_has_a_limit_of_its_own(graph: FastAPI) -> None:
    body = {"query": "{ who }", "variables": {"unused": "x" * 200_000}}
    async with asking(graph) as client:
        assert problem(await client.post("/graphql", json=body), 413)["type"] == "too_large"
        longer = {"query": "{ who }" + " " * 20_000}
        assert problem(await client.post("/graphql", json=longer), 422)["errors"][0]["pointer"] == "#/query"


async def test_fragments_are_for_use(graph: FastAPI) -> None:
    query = "{ ...once first { ...both } } fragment once on Query { who }"
    fragments = "fragment both on Node { ...kind next { ...kind } } fragment kind on Node { __typename }"
    async with asking(graph) as client:
        answer = await told(client, f"{query} {fragments}")
    node = {"__typename": "Node"}
    assert answer == {"data": {"who": USER, "first": {**node, "next": node}}}


async def test_the_whole_schema_can_be_asked_for(graph: FastAPI) -> None:
    async with asking(graph) as client:
        assert (await told(client, get_introspection_query()))["data"]["__schema"]


@pytest.mark.parametrize(
    "body",
    [{}, {"query": ""}, {"query": 7}, {"query": "{ who }", "variables": []}, [], {"queries": "{ who }"}],
)
async def test_what_is_no_operation_is_a_problem(graph: FastAPI, body: Any) -> None:
    async with asking(graph) as client:
        answer = await client.post("/graphql", json=body)
    assert answer.status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        {"query": "{ who }", "operationName": "b"},
        {"query": "fragment f on Query { who }"},
    ],
)
async def test_which_operation_to_run_must_be_clear(graph: FastAPI, body: Any) -> None:
    async with asking(graph) as client:
        assert problem(await client.post("/graphql", json=body), 400)["type"] == "which_operation"


async def test_graphql_is_no_way_around_the_token(graph: FastAPI) -> None:
    async with asking(graph, {}) as stranger:
        assert (await stranger.post("/graphql", json={"query": "{ who }"})).status_code == 401
        assert (await stranger.get("/graphql?query={who}")).status_code == 401
    async with asking(graph) as client:
        assert (await client.get("/graphql?query={who}")).status_code == 405
