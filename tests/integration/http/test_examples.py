"""The examples of the documentation are requests that succeed: each is sent as it stands (X)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.asking import USER, bearer

WRITING = ("post", "patch")
ALL = {
    ("post", "/accounts"),
    ("patch", "/accounts/{account_id}"),
    ("post", "/group-messages"),
    ("patch", "/group-messages/{message_id}"),
    ("post", "/scheduled-messages"),
    ("patch", "/scheduled-messages/{message_id}"),
    ("post", "/graphql"),
}


def example(document: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    """The body that the documentation shows: the example of each member that has one, so of each that it needs."""
    body = document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]
    schema = document["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    shown = {name: part["examples"][0] for name, part in schema["properties"].items() if "examples" in part}
    assert shown.keys() >= set(schema.get("required", ()))
    return shown


def test_each_operation_that_takes_a_body_is_here(app: FastAPI) -> None:
    paths = app.openapi()["paths"]
    taking = {
        (method, path) for path, item in paths.items() for method in item if "requestBody" in item[method]
    }
    assert taking == ALL


@pytest.mark.parametrize(("method", "path"), sorted(ALL))
async def test_every_example_is_accepted(
    app: FastAPI, client: httpx.AsyncClient, method: str, path: str
) -> None:
    document, place, holder = app.openapi(), path, USER
    if "{" in path:
        # What is changed is what the documentation has made; an account is its own holder's.
        collection = path.partition("/{")[0]
        made = await client.post(
            collection, json={**example(document, "post", collection), **OTHER.get(path, {})}
        )
        place, holder = made.headers["location"], made.json().get("account_id", made.json()["id"])
    answer = await client.request(method, place, json=example(document, method, path), headers=bearer(holder))
    assert answer.is_success, answer.text
    assert "errors" not in (answer.json() if answer.content else {})


# Its example is in use once it has been sent as it stands.
OTHER = {"/accounts/{account_id}": {"email": "another@example.org"}}
