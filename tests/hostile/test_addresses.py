"""Addresses are what a mail server would take, have one account each, and are not mailed at will (X1, X3)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lagom import Container

from contexts.accounts.domain import EmailAddress, EmailTaken, InvalidEmail
from contexts.accounts.use_cases import AccountsUnitOfWork, SignUp, SignUpHandler
from contexts.families.domain import MAILS_MAX, MAILS_PERIOD, TooManyMails, email_given
from contexts.families.events import Email
from contexts.families.events import InvalidEmail as InvalidFamilyEmail
from contexts.families.use_cases import FamiliesUnitOfWork
from outbox_kernel.infrastructure.http import BearerTokens, create_app
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.testing import FrozenClock, InMemoryStore, using_clock
from tests.asking import KEY, asking, bearer, problem
from tests.unit.accounts.in_memory import InMemoryAccountsUnitOfWork
from tests.unit.families.home import BO, Home
from tests.unit.families.in_memory import InMemoryFamiliesUnitOfWork

NO_ADDRESSES = [
    *("ada", "ada@", "@example.org", "a@b@example.org", "ada@localhost", "ada@intranet", "ada@192.0.2.1"),
    *("ada@[192.0.2.1]", "ada@x.test", "ada@x.invalid", ".ada@example.org", "ada.@example.org"),
    *("a..da@example.org", "ada@-x.org", "ada@x-.org", "ada@x_y.org", "ada@x..org", '"a b"@example.org'),
    *(
        "Ada <ada@example.org>",
        "ada@ex ample.org",
        "ada@\N{SNOWMAN}.org",
        "ada@xn--zzzzzzzz.de",
        "a,b@example.org",
    ),
    *("a\u200db@example.org", "ada@exam\u00adple.org", "ada\x1b[2J@example.org", f"{'a' * 65}@example.org"),
    *(f"ada@{'x' * 64}.org", "x" * 1_000_000, "\N{COMBINING ACUTE ACCENT}\N{COMBINING DOT BELOW}" * 300_000),
]
# The ways to write one address.
ONE = [
    "ada@m\u00fcnchen.example",
    "ADA@M\u00dcNCHEN.EXAMPLE",
    "ada@mu\u0308nchen.example",
    "ada@xn--mnchen-3ya.example",
    "ada@XN--MNCHEN-3YA.example",
    " \uff41da@m\u00fcnchen\u3002example. ",
]


def short(text: str) -> str:
    return ascii(text[:30])


@pytest.mark.parametrize("text", NO_ADDRESSES, ids=short)
def test_what_no_mail_server_takes_is_refused(text: str) -> None:
    with pytest.raises(InvalidEmail, match=r"write it like name@example|use a shorter one"):
        EmailAddress.given(text)
    with pytest.raises(InvalidFamilyEmail, match=r"write it like name@example|use a shorter one"):
        email_given(text)


@pytest.mark.parametrize("text", ONE, ids=short)
def test_an_address_is_kept_in_ascii_as_mail_servers_know_it(text: str) -> None:
    assert EmailAddress.given(text) == EmailAddress("ada@xn--mnchen-3ya.example")
    assert email_given(text) == Email("ada@xn--mnchen-3ya.example")


@given(
    st.text(st.characters(categories=["Lu", "Ll", "Nd", "Mn"]), min_size=1, max_size=8),
    st.text(st.characters(categories=["Lu", "Ll", "Nd"]), min_size=1, max_size=8),
)
def test_what_was_read_once_reads_the_same_again(name: str, host: str) -> None:
    try:
        address = EmailAddress.given(f"{name}@{host}.org")
    except InvalidEmail:
        return
    assert address.value.rpartition("@")[2].isascii()
    assert EmailAddress.given(address.value) == EmailAddress(address.value) == address
    assert email_given(address.value) == Email(address.value)


async def test_an_address_has_one_account_however_it_is_written() -> None:
    store = InMemoryStore()
    await SignUpHandler(InMemoryAccountsUnitOfWork(store)).handle(SignUp(ONE[0]))
    for text in ONE:
        with pytest.raises(EmailTaken):
            await SignUpHandler(InMemoryAccountsUnitOfWork(store)).handle(SignUp(text))


# --- over HTTP -------------------------------------------------------------------------------------------

CREATE = 'mutation ($email: String!) { it: createFamily(input: {name: "Us", ownerEmail: $email}) { id } }'
INVITE = """
mutation ($family: UUID!, $email: String!) {
  it: inviteFamilyMemberByEmail(input: {familyId: $family, email: $email}) { invitationId }
}
"""
OF_FAMILY = ("query ($id: UUID!) { it: family(id: $id) { name } }", INVITE)
OF_INVITATION = (
    "query ($id: UUID!) { it: familyMemberInvitation(id: $id) { email } }",
    "mutation ($id: UUID!) { it: resendFamilyMemberInvitation(invitationId: $id) { isResend } }",
    "mutation ($id: UUID!) { it: revokeFamilyMemberInvitation(invitationId: $id) }",
)
OWNER, STRANGER = str(uuid4()), str(uuid4())


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    store, container = InMemoryStore(), Container()
    container[Settings] = Settings(contexts=("contexts.accounts", "contexts.families"))
    container[AccountsUnitOfWork] = lambda: InMemoryAccountsUnitOfWork(store)  # type: ignore[type-abstract]
    container[FamiliesUnitOfWork] = lambda: InMemoryFamiliesUnitOfWork(store)  # type: ignore[type-abstract]
    async with asking(create_app(container, BearerTokens(KEY))) as made:
        yield made


async def told(client: httpx.AsyncClient, user: str, operation: str, **variables: str) -> Any:
    answer = await client.post(
        "/graphql", json={"query": operation, "variables": variables}, headers=bearer(user)
    )
    assert answer.status_code == 200, answer.text
    found = answer.json()
    for error in found.get("errors", ()):
        del error["extensions"]["request_id"]
    return found


async def invited(client: httpx.AsyncClient) -> tuple[str, str]:
    """A family of the owner's, and an invitation to it."""
    family = (await told(client, OWNER, CREATE, email="ada@example.org"))["data"]["it"]["id"]
    sent = await told(client, OWNER, INVITE, family=family, email=BO)
    return family, sent["data"]["it"]["invitationId"]


async def test_what_is_no_address_is_refused_at_every_door(client: httpx.AsyncClient) -> None:
    refused = await client.post("/accounts", json={"email": "ada@localhost"})
    assert problem(refused, 422)["type"] == "invalid_email"
    family, _ = await invited(client)
    for answer in (
        await told(client, OWNER, CREATE, email="ada@localhost"),
        await told(client, OWNER, INVITE, family=family, email="ada@localhost"),
    ):
        assert answer["errors"][0]["extensions"]["type"] == "urn:problem:invalid_email"


@pytest.mark.parametrize("operation", [*OF_FAMILY, *OF_INVITATION])
async def test_a_stranger_learns_nothing_of_what_there_is(client: httpx.AsyncClient, operation: str) -> None:
    """One's own, in vain, and nobody's: the same answer but for the id that was asked for."""
    family, invitation = await invited(client)
    name = "family" if operation is INVITE else "id"
    there, nowhere = family if operation in OF_FAMILY else invitation, str(uuid4())
    email = {"email": BO} if operation is INVITE else {}
    answers = [
        json.dumps(await told(client, STRANGER, operation, **{name: found}, **email)).replace(found, "…")
        for found in (there, nowhere)
    ]
    assert answers[0] == answers[1]
    assert "_not_found" in answers[0]


# --- how often an address is mailed ----------------------------------------------------------------------


@pytest.fixture
def clock() -> Any:
    clock = FrozenClock()
    with using_clock(clock):
        yield clock


async def test_an_address_is_sent_only_so_many_mails_in_a_while(clock: FrozenClock) -> None:
    home = Home()
    sent = await home.invite()
    for _ in range(MAILS_MAX - 1):
        clock.advance(timedelta(minutes=10))
        await home.resend(sent.invitation_id)
    for again in (home.invite(), home.resend(sent.invitation_id)):
        with pytest.raises(
            TooManyMails, match=r"sent 3 invitations within 60 minutes: wait 40 minutes"
        ) as refused:
            await again
        assert refused.value.time_left == timedelta(minutes=40)
    assert len(home.tokens) == MAILS_MAX
    # The first is forgotten, and makes room for one.
    clock.advance(timedelta(minutes=40))
    await home.resend(sent.invitation_id)
    with pytest.raises(TooManyMails, match="wait 10 minutes before you send the next one"):
        await home.resend(sent.invitation_id)


async def test_to_take_back_and_to_invite_anew_is_no_way_around_it(clock: FrozenClock) -> None:
    home = Home()
    for _ in range(MAILS_MAX):
        await home.revoke((await home.invite()).invitation_id)
    with pytest.raises(TooManyMails):
        await home.invite()
    clock.advance(MAILS_PERIOD)
    await home.invite()


async def test_neither_are_many_families_of_one_user(clock: FrozenClock) -> None:
    first = Home()
    families = [first, *(Home(first.store, owner=first.owner) for _ in range(MAILS_MAX))]
    for home in families[:-1]:
        await home.invite()
    with pytest.raises(TooManyMails):
        await families[-1].invite()
    # What others do is not theirs to know, nor to be hindered by.
    await Home(first.store).invite()
    await families[-1].invite("carol@example.org")
    clock.advance(MAILS_PERIOD)
    await families[-1].invite()


async def test_a_minute_is_one_minute(clock: FrozenClock) -> None:
    home = Home()
    for _ in range(MAILS_MAX):
        await home.invite()
    clock.advance(MAILS_PERIOD - timedelta(seconds=1))
    with pytest.raises(TooManyMails, match="wait 1 minute before"):
        await home.invite()
