"""C10, T1, T3: a key that is no UUID goes the whole way, from the row through a message to another outbox's handler."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from outbox_kernel.infrastructure.brokers.messages import message_of
from outbox_kernel.infrastructure.consumer.reading import read
from outbox_kernel.infrastructure.relay.work import ClaimedEvent
from outbox_kernel.kernel.identity import uuid_of
from tests.relaying import Stage, handler
from tests.streams import handle, of, store

KEYED = "UPDATE outbox_events SET aggregate_key = '42'"


async def test_a_handler_reads_the_key_as_it_was_written(stage: Stage) -> None:
    """C10: at once, and at a later attempt, when it comes from a delivery."""
    seen: list[Any] = []

    async def act(event: Any) -> None:
        seen.append((event.aggregate_id, event.aggregate_key))
        if len(seen) == 1:
            raise ValueError("not yet")

    await stage.drain(handler("own", act))
    await stage.put("a", of=uuid_of(42))
    await stage.witness.execute(KEYED)
    await stage.drain(handler("own", act))
    await stage.drain(handler("own", act), at=3600)
    assert seen == [(uuid_of(42), "42")] * 2


async def test_a_key_crosses_a_broker(stage: Stage) -> None:
    """T1, T3: in a header, and into the column of the consumer's own outbox."""
    seen: list[Any] = []

    async def act(event: Any) -> None:
        seen.append((event.aggregate_id, event.aggregate_key))

    await handle(stage, of("far", act))
    payload = {"event_id": str(uuid4()), "occurred_at": datetime.now(UTC).isoformat(), "what": "a"}
    await stage.put("a", of=uuid_of(42), payload=json.dumps(payload))
    await stage.witness.execute(KEYED)
    rows = await stage.witness.fetch(
        "SELECT position, event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_key, "
        "aggregate_version, payload::text, headers::text, occurred_at, created_at FROM outbox_events",
        record_class=ClaimedEvent,
    )
    message = message_of(rows[0])
    assert message.headers["aggregate_key"] == "42"
    await stage.witness.execute("DELETE FROM outbox_events")
    await store(stage, "far", [read(message.message_id, message.headers, message.body)])
    await handle(stage, of("far", act))
    assert seen == [(uuid_of(42), "42")]
    assert (await stage.event("a"))["aggregate_key"] == "42"
