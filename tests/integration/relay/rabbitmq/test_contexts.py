"""What the contexts publish arrives in their queues, as a stranger reads it; pinned by golden files (T1, T2, X5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from outbox_kernel.infrastructure.brokers.carrying import publishers_of
from outbox_kernel.infrastructure.brokers.discovery import discover_topology
from outbox_kernel.infrastructure.brokers.rabbitmq import Address
from outbox_kernel.infrastructure.brokers.rabbitmq.declaring import survey
from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
from outbox_kernel.infrastructure.settings import Settings
from tests import stranger
from tests.brokers import Broker
from tests.post import sweep_contexts
from tests.relaying import Stage

pytestmark = pytest.mark.brokers

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parent / "golden"
PAYLOADS = {
    # Once of each type: the bare forms of some are in the same folder.
    "messaging": sorted((ROOT / "unit" / "messaging" / "golden").glob("*.stored.json")),
    "families": sorted((ROOT / "unit" / "families" / "golden").glob("*.json")),
}
AGGREGATES = {"group_message": "group_message", "scheduled_message": "scheduled_message", "Family": "family"}
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
CREATED = datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
CONTEXT = {
    "user_id": "01890000-0000-7000-8000-0000000000b1",
    "correlation_id": "request-1",
    "causation_id": "01890000-0000-7000-8000-0000000000b2",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    # Each event of messages has an account of its own, which wins.
    "account_id": "the context's",
}
PUT = """
INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
                           payload, headers, occurred_at, created_at)
VALUES ($1, $2, 1, $3, $4, 1, $5::text::jsonb, $6::text::jsonb, $7, $8)
"""


def settings_of(broker: Broker) -> Settings:
    return Settings(rabbitmq_url=broker.url, contexts=("contexts.messaging", "contexts.families"))


def first_day() -> list[tuple[str, dict[str, Any]]]:
    """Each event's type and payload."""
    return [
        (path.name.removesuffix(".json").removesuffix(".stored"), json.loads(path.read_text()))
        for path in (*PAYLOADS["messaging"], *PAYLOADS["families"])
        if "-bare." not in path.name
    ]


async def put(stage: Stage, number: int, event_type: str, payload: dict[str, Any]) -> None:
    """Store an event as its context did on the first day, under an id of its own."""
    event_id = UUID(int=number)
    payload["event_id" if "event_id" in payload else "eventId"] = str(event_id)
    kind = next(AGGREGATES[each] for each in AGGREGATES if event_type.startswith(each))
    aggregate_id = UUID(int=1_000 + number)
    await stage.witness.execute(
        PUT,
        *(
            event_id,
            event_type,
            kind,
            aggregate_id,
            json.dumps(payload),
            json.dumps(CONTEXT),
            MOMENT,
            CREATED,
        ),
    )


@pytest_asyncio.fixture
async def link(rabbitmq_broker: Broker) -> AsyncIterator[Link]:
    """A connection; what is declared under the contexts' own names is taken away again."""
    found = Link(Address.parse(rabbitmq_broker.url), "tests")
    yield found
    await found.close()
    await sweep_contexts(rabbitmq_broker.url)


async def test_what_contexts_publish_arrives_as_on_the_first_day(
    stage: Stage, rabbitmq_broker: Broker, link: Link
) -> None:
    """T1, T2, X5: by queue, what a client of another make reads; what no publisher selects is not among it."""
    for number, (event_type, payload) in enumerate(first_day(), start=1):
        await put(stage, number, event_type, payload)
    await stage.relay(publishers=publishers_of(settings_of(rabbitmq_broker))).run_until_idle()
    arrived: dict[str, list[Any]] = {}
    for queue in ("group_message_processing", "scheduled_message_processing", "family_events"):
        read = await asyncio.to_thread(list, stranger.read(rabbitmq_broker.url, queue))
        found = [{"routing_key": key, "headers": headers, "body": body} for key, headers, body in read]
        arrived[queue] = sorted(found, key=lambda each: each["routing_key"])
    for queue, messages in arrived.items():
        assert messages == json.loads((GOLDEN / f"{queue}.json").read_text())
    assert set((await stage.witness.fetch("SELECT DISTINCT status FROM outbox_status"))[0]) == {"delivered"}


async def test_the_queues_are_those_that_were_agreed_on(rabbitmq_broker: Broker, link: Link) -> None:
    """T2: durable, with dead letters; the audit only when it is asked for."""
    topology = discover_topology(settings_of(rabbitmq_broker))
    made = await survey(link, topology, apply=True)
    assert [(each.kind, each.name, each.state) for each in made] == [
        ("exchange", "messaging.dlx", "made"),
        ("queue", "messaging.dlq", "made"),
        ("binding", "messaging.dlx -> messaging.dlq", "bound"),
        ("exchange", "messaging", "made"),
        ("exchange", "family-hub.events", "made"),
        ("queue", "group_message_processing", "made"),
        ("binding", "messaging -> group_message_processing", "bound"),
        ("queue", "scheduled_message_processing", "made"),
        ("binding", "messaging -> scheduled_message_processing", "bound"),
        ("queue", "family_events", "made"),
        ("binding", "family-hub.events -> family_events", "bound"),
    ]
    again = await survey(link, topology.with_optional(["messaging_audit"]), apply=False)
    assert {each.name for each in again if each.state == "missing"} == {"messaging_audit"}
    assert {each.state for each in again} == {"present", "unseen", "missing"}
