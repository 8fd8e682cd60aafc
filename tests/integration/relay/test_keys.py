"""C10: a key that is no UUID reaches the handler as it was written."""

from __future__ import annotations

from typing import Any

from outbox_kernel.kernel.identity import uuid_of
from tests.relaying import Stage, handler

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
