"""Doctor asks the broker, too: what it finds there is told with a remedy, and never waited for without end (O1, T2)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import Any

import pytest
import pytest_asyncio
from aio_pika import ExchangeType, Message, connect
from aio_pika.abc import AbstractChannel

from outbox_kernel.infrastructure.brokers.discovery import discover_topology
from outbox_kernel.infrastructure.brokers.rabbitmq import Address
from outbox_kernel.infrastructure.brokers.rabbitmq.declaring import declare
from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
from outbox_kernel.infrastructure.operations.health_of_broker import examine_broker
from outbox_kernel.infrastructure.operations.verdicts import Check
from outbox_kernel.infrastructure.settings import Settings
from tests.brokers import Broker
from tests.integration.relay.rabbitmq.test_troubles import url_with
from tests.post import Post, sweep_contexts

CONTEXT, QUEUE, DEAD = "contexts.messaging", "group_message_processing", "messaging.dlq"


def settings_at(url: str | None, context: str = CONTEXT) -> Settings:
    return Settings(rabbitmq_url=url, contexts=(context,))


async def examined(url: str | None, context: str = CONTEXT) -> dict[str, Check]:
    return {each.check: each for each in await examine_broker(settings_at(url, context))}


@pytest_asyncio.fixture
async def channel(rabbitmq_broker: Broker) -> AsyncIterator[AbstractChannel]:
    async with await connect(rabbitmq_broker.url) as connection, connection.channel() as found:
        yield found
    await sweep_contexts(rabbitmq_broker.url)


async def declared(url: str) -> None:
    link = Link(Address.parse(url), "tests")
    await declare(link, discover_topology(settings_at(url)))
    await link.close()


async def test_where_everything_stands_and_nothing_is_dead_all_is_well(
    rabbitmq_broker: Broker, channel: AbstractChannel
) -> None:
    assert not channel.is_closed
    await declared(rabbitmq_broker.url)
    found = await examined(rabbitmq_broker.url)
    assert {name: each.state for name, each in found.items()} == {
        "broker": "ok",
        "topology": "ok",
        "broker's dead letters": "ok",
    }


async def test_what_is_missing_is_a_warning_that_names_it_and_nothing_is_made(
    rabbitmq_broker: Broker, channel: AbstractChannel
) -> None:
    """T2: a relay makes it when it connects."""
    assert not channel.is_closed
    for _ in range(2):
        found = await examined(rabbitmq_broker.url)
        assert list(found) == ["broker", "topology"]
        assert found["topology"].state == "warn"
        assert f"queue '{QUEUE}'" in found["topology"].detail
        assert (found["topology"].remedy or "").startswith("`outbox topology --apply` makes it")


async def test_what_stands_in_another_form_is_a_failure_each(
    rabbitmq_broker: Broker, channel: AbstractChannel
) -> None:
    """T2: an exchange of another type keeps its publisher from publishing, a queue its consumer from consuming."""
    await channel.declare_queue(QUEUE, durable=True)
    await channel.declare_exchange("messaging", ExchangeType.DIRECT, durable=True)
    checks = await examine_broker(settings_at(rabbitmq_broker.url))
    failed = [each for each in checks if each.state == "fail"]
    assert [each.detail.split(" exists with another ")[0] for each in failed] == [
        "exchange 'messaging'",
        f"queue '{QUEUE}'",
    ]
    assert all((each.remedy or "").startswith("delete it when nothing needs it as it is") for each in failed)


async def test_the_brokers_dead_letters_are_counted_with_the_command_that_lists_them(
    rabbitmq_broker: Broker, channel: AbstractChannel
) -> None:
    """T3."""
    await declared(rabbitmq_broker.url)
    for _ in range(3):
        await channel.default_exchange.publish(Message(b""), DEAD)
    found = (await examined(rabbitmq_broker.url))["broker's dead letters"]
    assert (found.state, found.detail) == ("warn", f"queue '{DEAD}' holds 3 messages")
    assert (found.remedy or "").startswith("`outbox dead-letters list` shows why")


@pytest.mark.parametrize(
    ("changes", "detail", "remedy"),
    [
        (
            {"host": "127.0.0.1", "port": "1"},
            "cannot be reached (Connection refused)",
            "start it, or correct",
        ),
        (
            {"path": "/nowhere"},
            "does not let user 'guest' into vhost 'nowhere'",
            "correct RABBITMQ_URL, make the",
        ),
    ],
)
async def test_a_broker_that_is_away_or_refuses_is_a_warning(
    rabbitmq_broker: Broker, changes: dict[str, str], detail: str, remedy: str
) -> None:
    """R14: what is to be published waits for it."""
    found = await examined(url_with(rabbitmq_broker, **changes))
    assert list(found) == ["broker"]
    assert (found["broker"].state, (found["broker"].remedy or "")[: len(remedy)]) == ("warn", remedy)
    assert found["broker"].detail.endswith(detail)


async def test_a_broker_that_does_not_answer_is_a_warning_in_time(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12."""
    monkeypatch.setattr(
        "outbox_kernel.infrastructure.operations.health_of_broker.BROKER_ANSWER_SECONDS_MAX", 0.2
    )
    post.proxy.answers.clear()
    found = (await examined(post.address.url))["broker"]
    post.proxy.answers.set()
    assert (found.state, found.detail.endswith("did not answer within 0.2 s")) == ("warn", True)


@pytest.mark.parametrize(
    ("url", "detail"),
    [
        ("amqp://user:s3cret@host/?heartbeat=10s", "RABBITMQ_URL names '10s' as heartbeat"),
        ("amqp://user:s3cret@host:port/", "RABBITMQ_URL has no number for its port"),
    ],
)
async def test_a_url_with_which_no_relay_starts_is_a_failure(url: str, detail: str) -> None:
    """R14, R15."""
    found = (await examined(url))["broker"]
    assert (found.state, found.detail) == ("fail", detail)
    assert "s3cret" not in f"{found}"


async def test_where_no_broker_is_set_needed_or_installed_nothing_is_said(
    rabbitmq_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await examined(None) == {}
    assert await examined(rabbitmq_broker.url, "contexts.accounts") == {}

    def without(name: str, *more: Any) -> object:
        return None if name == "aio_pika" else find_spec(name, *more)

    monkeypatch.setattr("outbox_kernel.infrastructure.brokers.rabbitmq.find_spec", without)
    assert await examined(rabbitmq_broker.url) == {}


async def test_doctor_needs_nothing_that_the_extra_brings() -> None:
    """O1: what is not installed cannot be imported."""
    program = (
        "import sys; sys.modules['aio_pika'] = sys.modules['aiormq'] = sys.modules['pamqp'] = None; "
        "import outbox_kernel.infrastructure.operations.health"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await process.wait() == 0
