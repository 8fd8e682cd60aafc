"""The use cases and a relay here, consumers there: processes of their own on databases of their own (T1-T4)."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from contexts.messaging.events import GroupMessageStatus
from contexts.messaging.use_cases import (
    ChangeGroupMessageStatus,
    ChangeGroupMessageStatusHandler,
    CreateGroupMessage,
    CreateGroupMessageHandler,
)
from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import event_context
from tests import servers
from tests.brokers import Broker
from tests.commands import COMMAND, ROOT, environment_with, failed_in_one_sentence, outbox
from tests.post import sweep_contexts

CONTEXTS = "contexts.messaging"
QUEUE = "group_message_processing"
SECONDS_MAX = 30.0


class Process:
    """A command at work, and what it logs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    def wait_for(self, message: str) -> dict[str, Any]:
        """Read the log until it says so."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(json.loads(line))
            if message in self.lines[-1]["message"]:
                return self.lines[-1]
        raise AssertionError(f"it never said {message!r}: {self.lines}")

    def stop(self) -> int:
        """Ask it to stop; return its exit code."""
        self.process.terminate()
        _, rest = self.process.communicate(timeout=SECONDS_MAX)
        self.lines += [json.loads(line) for line in rest.splitlines()]
        return self.process.returncode


@contextmanager
def running(*words: str, **settings: str) -> Iterator[Process]:
    """Run a command of the product until the block ends."""
    process = Process(
        subprocess.Popen(
            [*COMMAND, *words],
            cwd=ROOT,
            env=environment_with(OUTBOX_CONTEXTS=CONTEXTS, **settings),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    )
    try:
        yield process
    finally:
        process.process.kill()
        process.process.communicate()


@pytest.fixture(scope="module")
def here(postgres_server: servers.Server) -> Iterator[str]:
    with migrated(postgres_server) as url:
        yield url


@pytest.fixture(scope="module")
def there(postgres_server: servers.Server) -> Iterator[str]:
    with migrated(postgres_server) as url:
        yield url


@pytest.fixture(scope="module", autouse=True)
def swept(rabbitmq_broker: Broker) -> Iterator[None]:
    yield
    asyncio.run(sweep_contexts(rabbitmq_broker.url))


@contextmanager
def migrated(server: servers.Server) -> Iterator[str]:
    with servers.fresh_database(server) as url:
        done = outbox("migrate", DATABASE_URL=url, OUTBOX_CONTEXTS=CONTEXTS)
        assert done.returncode == 0, done.stderr
        yield url


async def queue_a_message(url: str) -> str:
    """Draft a message and queue it, as the API does."""
    container = build_container(Settings(database_url=url, contexts=(CONTEXTS,)))
    account = uuid4()
    with event_context(user_id="ada", request_id="r-1"):
        message = await container[CreateGroupMessageHandler].handle(
            CreateGroupMessage(
                account_id=account,
                channel_id=uuid4(),
                contact_group_ids=(uuid4(),),
                total_recipients=3,
                body="Hello",
            )
        )
        await container[ChangeGroupMessageStatusHandler].handle(
            ChangeGroupMessageStatus(
                account_id=account, message_id=message.id, status=GroupMessageStatus.QUEUED
            )
        )
    await container[AsyncEngine].dispose()
    return str(message.id)


async def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


STORED = """
SELECT event_type, status, aggregate_version, headers->>'user_id', source
FROM outbox_events JOIN outbox_status USING (event_id) ORDER BY position
"""


def test_an_event_crosses_from_a_commit_here_to_a_handler_there(
    here: str, there: str, rabbitmq_broker: Broker
) -> None:
    """T1-T3: one variable, `outbox relay` and `outbox consume`."""
    settings: dict[str, Any] = {"RABBITMQ_URL": rabbitmq_broker.url, "OUTBOX_POLL_INTERVAL": "0.2"}
    with (
        running("relay", DATABASE_URL=here, **settings) as relay,
        running("consume", QUEUE, DATABASE_URL=there, **settings) as consumer,
    ):
        relay.wait_for("relay starts")
        consumer.wait_for("consuming")
        message_id = asyncio.run(queue_a_message(here))
        heard = [consumer.wait_for("group message") for _ in range(2)]
        assert (consumer.stop(), relay.stop()) == (0, 0)
    assert [(each["message"], each["message_id"]) for each in heard] == [
        ("group message draft", message_id),
        ("group message queued", message_id),
    ]
    assert asyncio.run(rows(there, STORED)) == [
        ("group_message.created", "delivered", 1, "ada", QUEUE),
        ("group_message.queued", "delivered", 2, "ada", QUEUE),
    ]
    assert {row[1] for row in asyncio.run(rows(here, STORED))} == {"delivered"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"netloc": "guest:s3cret@127.0.0.1:{port}"}, "does not let user 'guest' in"),
        ({"path": "/nowhere"}, "into vhost 'nowhere'"),
        ({"netloc": "guest:s3cret@127.0.0.1:1"}, "cannot be reached (Connection refused)"),
    ],
)
def test_a_broker_that_is_not_there_or_refuses_is_one_sentence_and_the_relay_runs(
    here: str, rabbitmq_broker: Broker, change: dict[str, str], sentence: str
) -> None:
    """R14, T4: and `status` and `doctor` say so too, without the password."""
    parts = urlsplit(rabbitmq_broker.url)
    change = {name: value.format(port=parts.port or 5672) for name, value in change.items()}
    url = parts._replace(**change).geturl()
    with running("relay", DATABASE_URL=here, RABBITMQ_URL=url) as relay:
        paused = relay.wait_for("is paused")
        assert sentence in paused["message"]
        told = ""
        while sentence not in told:
            told = outbox("status", DATABASE_URL=here, OUTBOX_CONTEXTS=CONTEXTS).stdout
        doctor = outbox("doctor", DATABASE_URL=here, OUTBOX_CONTEXTS=CONTEXTS, RABBITMQ_URL=url).stdout
        assert relay.stop() == 0
    assert sentence in doctor
    assert "s3cret" not in json.dumps(relay.lines) + told + doctor


def test_what_is_wrong_with_the_topology_is_told_by_its_command(rabbitmq_broker: Broker) -> None:
    """T2, O1: missing, made, there; and the exit codes say so too."""
    settings: dict[str, Any] = {"RABBITMQ_URL": rabbitmq_broker.url, "OUTBOX_CONTEXTS": "contexts.families"}
    before = outbox("topology", "--check", **settings)
    made = outbox("topology", "--apply", "--json", **settings)
    after = outbox("topology", **settings)
    assert (before.returncode, made.returncode, after.returncode) == (1, 0, 0)
    assert "queue\tfamily_events\tmissing" in before.stdout
    assert {each["name"]: each["state"] for each in json.loads(made.stdout)}["family_events"] == "made"
    assert "queue\tfamily_events\tpresent" in after.stdout
    unknown = outbox("topology", "--with", "nothing", **settings)
    assert "no context declares a queue 'nothing'" in failed_in_one_sentence(unknown)


def test_dead_letters_are_listed_and_sent_back(there: str, rabbitmq_broker: Broker) -> None:
    """T3, O1: what could not be stored, with its reason, and back to its queue."""
    settings: dict[str, Any] = {"RABBITMQ_URL": rabbitmq_broker.url, "DATABASE_URL": there}
    made = outbox("topology", "--apply", RABBITMQ_URL=rabbitmq_broker.url, OUTBOX_CONTEXTS=CONTEXTS)
    assert made.returncode == 0, made.stderr
    asyncio.run(send(rabbitmq_broker.url, b"no event", "m-1"))
    with running("consume", QUEUE, **settings) as consumer:
        consumer.wait_for("goes to the dead letters")
        assert consumer.stop() == 0
    [letter] = json.loads(outbox("dead-letters", "list", "--json", **settings).stdout)
    assert (letter["id"], letter["queue"]) == ("m-1", QUEUE)
    assert "no JSON" in letter["reason"]
    assert "say which" in failed_in_one_sentence(outbox("dead-letters", "replay", **settings), code=2)
    assert outbox("dead-letters", "replay", "--id", "m-2", **settings).returncode == 1
    replayed = outbox("dead-letters", "replay", "--queue", QUEUE, **settings)
    assert (replayed.returncode, replayed.stdout) == (0, "1 message sent back\n")
    assert outbox("dead-letters", "list", **settings).stdout == ""


async def send(url: str, body: bytes, message_id: str) -> None:
    from aio_pika import Message, connect

    async with await connect(url) as connection, connection.channel() as channel:
        await channel.default_exchange.publish(Message(body, message_id=message_id), QUEUE)
