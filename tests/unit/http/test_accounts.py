"""Accounts over HTTP: each command and its refusals."""

from __future__ import annotations

from uuid import UUID, uuid4

import httpx

from contexts.accounts.domain import Account, EmailAddress
from contexts.accounts.events import AccountCreated, AccountEmailChanged, AccountRole
from outbox_kernel.kernel.testing import InMemoryStore, assert_recorded
from tests.asking import bearer, problem


async def signed_up(client: httpx.AsyncClient, email: str = "ada@example.org") -> UUID:
    answer = await client.post("/accounts", json={"email": email})
    assert answer.status_code == 201, answer.text
    return UUID(answer.json()["id"])


async def test_signing_up_answers_with_the_account_and_where_it_is(
    client: httpx.AsyncClient, store: InMemoryStore
) -> None:
    answer = await client.post("/accounts", json={"email": "Ada@Example.org"})
    account_id = UUID(answer.json()["id"])
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/accounts/{account_id}"
    assert_recorded(store, AccountCreated(account_id, "ada@example.org", AccountRole.MEMBER))
    found = await client.get(answer.headers["location"], headers=bearer(str(account_id)))
    assert found.json() == {"id": str(account_id), "email": "ada@example.org", "role": "member"}


async def test_nobody_makes_an_admin_of_themselves(client: httpx.AsyncClient, store: InMemoryStore) -> None:
    answer = await client.post("/accounts", json={"email": "ada@example.org", "role": "admin"})
    assert [each["pointer"] for each in problem(answer, 422)["errors"]] == ["#/role"]
    assert_recorded(store)


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
    answer = await client.patch(
        f"/accounts/{account_id}", json={"email": "ada@home.example"}, headers=bearer(str(account_id))
    )
    assert (answer.status_code, answer.content) == (204, b"")
    account = store.get(Account, account_id)
    assert account is not None
    assert account.email == EmailAddress("ada@home.example")
    assert_recorded(store, AccountCreated, AccountEmailChanged(account_id, "ada@home.example"))


async def asked_for(client: httpx.AsyncClient, account_id: UUID, user: str) -> list[httpx.Response]:
    return [
        await client.get(f"/accounts/{account_id}", headers=bearer(user)),
        await client.patch(
            f"/accounts/{account_id}", json={"email": "eve@example.org"}, headers=bearer(user)
        ),
    ]


async def test_an_account_is_there_for_its_holder_alone(
    client: httpx.AsyncClient, store: InMemoryStore
) -> None:
    """Whose it is, another cannot tell from one that is not there (X1)."""
    account_id, nobody = await signed_up(client), uuid4()
    others = await asked_for(client, account_id, str(uuid4()))
    missing = await asked_for(client, nobody, str(nobody))
    told = [problem(answer, 404) for answer in (*others, *missing)]
    assert {each["type"] for each in told} == {"account_not_found"}
    details = {each["detail"].replace(str(account_id), "ID").replace(str(nobody), "ID") for each in told}
    assert len(details) == 1
    assert_recorded(store, AccountCreated)


async def test_whoever_has_no_id_of_ours_is_told_so(client: httpx.AsyncClient) -> None:
    for answer in await asked_for(client, await signed_up(client), "no uuid"):
        assert problem(answer, 403)["type"] == "not_one_of_our_users"


async def test_what_is_no_id_is_told_where_it_stands(client: httpx.AsyncClient) -> None:
    refused = problem(await client.get("/accounts/7"), 422)
    assert [each["pointer"] for each in refused["errors"]] == ["path/account_id"]
