"""Accounts over HTTP: each command and its refusals."""

from __future__ import annotations

from uuid import UUID, uuid4

import httpx

from contexts.accounts.domain import Account, EmailAddress
from contexts.accounts.events import AccountCreated, AccountEmailChanged, AccountRole
from kernel.testing import InMemoryStore, assert_recorded
from tests.asking import problem


async def signed_up(client: httpx.AsyncClient, email: str = "ada@example.org") -> UUID:
    answer = await client.post("/accounts", json={"email": email})
    assert answer.status_code == 201, answer.text
    return UUID(answer.json()["id"])


async def test_signing_up_answers_with_the_account_and_where_it_is(
    client: httpx.AsyncClient, store: InMemoryStore
) -> None:
    answer = await client.post("/accounts", json={"email": "Ada@Example.org", "role": "admin"})
    account_id = UUID(answer.json()["id"])
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/accounts/{account_id}"
    assert_recorded(store, AccountCreated(account_id, "ada@example.org", AccountRole.ADMIN))
    found = await client.get(answer.headers["location"])
    assert found.json() == {"id": str(account_id), "email": "ada@example.org", "role": "admin"}


async def test_an_address_is_used_once(client: httpx.AsyncClient, store: InMemoryStore) -> None:
    account_id = await signed_up(client)
    refused = problem(await client.post("/accounts", json={"email": "ADA@example.org"}), 409)
    assert refused["type"] == "email_taken"
    assert_recorded(store, AccountCreated(account_id, "ada@example.org", AccountRole.MEMBER))


async def test_what_is_no_address_is_refused_in_the_rules_words(client: httpx.AsyncClient) -> None:
    refused = problem(await client.post("/accounts", json={"email": "ada"}), 422)
    assert refused["type"] == "invalid_email"
    assert refused["detail"].startswith("this is no e-mail address")


async def test_an_address_changes(client: httpx.AsyncClient, store: InMemoryStore) -> None:
    account_id = await signed_up(client)
    answer = await client.patch(f"/accounts/{account_id}", json={"email": "ada@home.example"})
    assert (answer.status_code, answer.content) == (204, b"")
    account = store.get(Account, account_id)
    assert account is not None
    assert account.email == EmailAddress("ada@home.example")
    assert_recorded(store, AccountCreated, AccountEmailChanged(account_id, "ada@home.example"))


async def test_an_account_that_is_not_there_is_not_found(client: httpx.AsyncClient) -> None:
    nobody = uuid4()
    for answer in (
        await client.get(f"/accounts/{nobody}"),
        await client.patch(f"/accounts/{nobody}", json={"email": "ada@example.org"}),
    ):
        assert problem(answer, 404)["type"] == "account_not_found"


async def test_what_is_no_id_is_told_where_it_stands(client: httpx.AsyncClient) -> None:
    refused = problem(await client.get("/accounts/7"), 422)
    assert [each["pointer"] for each in refused["errors"]] == ["path/account_id"]
