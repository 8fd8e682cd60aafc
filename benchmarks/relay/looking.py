"""What it costs to look: each thing that an operator asks, with one subscription wholly behind and one at the head."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from outbox_kernel.infrastructure.operations import AggregateKey, desk, stories
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.relay.ground import Ground
    from benchmarks.relay.sizes import Sizes
    from outbox_kernel.infrastructure.operations import Desk

FAR, HEAD = "bench.far", "bench.head"
DEAD_EVERY = 100
# Who is at the head has written down each thousand events.
SUBSCRIBE = (
    "INSERT INTO outbox_subscriptions (name, kind, patterns) VALUES ($1, 'handler', '{*}'), ($2, 'handler', '{*}')",
    """
    WITH server AS (
      INSERT INTO outbox_servers (identifier, floor) VALUES ('here', 0) RETURNING number
    ), last AS (
      SELECT max(position) AS position FROM outbox_events
    ), reader AS (
      SELECT name, md5(name)::uuid AS id FROM unnest(ARRAY[$1::text, $2::text]) AS named (name)
    ), placed AS (
      INSERT INTO outbox_progress (reader, number, position, server, snapshot)
      SELECT id, step / 1000, step, server.number, pg_current_snapshot()
      FROM reader, server, last, generate_series(0, last.position, 1000) AS step
      WHERE step = 0 OR name = $2
    )
    INSERT INTO outbox_cursors (subscription, shard, reader)
    SELECT name, shard, id FROM reader, generate_series(0, 31) AS shard
    """,
)
FAIL = """
INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status, attempts, error_message)
SELECT event_id, position, $1, event_id::text, 'dead', 10, 'ValueError: no' FROM outbox_events
WHERE position % $2 = 0
"""
# To see of each event that it is not of some type, from the end of the log on.
WALK = (
    "SELECT count(*) FROM (SELECT * FROM {schema}.outbox_events ORDER BY position DESC OFFSET 0) AS e "
    "WHERE event_type = 'no'"
)


async def measure_looking(ground: Ground, sizes: Sizes) -> dict[str, Any]:
    """Ask everything a few times, without statistics and with them; the floor is to walk all of the log once."""
    await ground.renew(sizes.looked_events)
    for statement in SUBSCRIBE:
        await ground.connection.execute(statement, *((FAR, HEAD)))
    await ground.connection.execute(FAIL, HEAD, DEAD_EVERY)
    found: dict[str, Any] = {}
    async with desk(Settings(database_url=ground.url)) as at_desk:
        for told in ("", "analysed_"):
            if told:
                await ground.connection.execute("ANALYZE")
            asked = await _asked(at_desk)
            for name, ask in asked.items():
                found[f"{told}{name}_ms"] = await _median_ms(ask, sizes.repetitions)
    found["walk_ratio"] = round(found["analysed_events_delivered_ms"] / found["analysed_walk_ms"], 2)
    return found


async def _asked(at_desk: Desk) -> dict[str, Callable[[], Awaitable[Any]]]:
    [event] = await stories.events(at_desk, limit=1)
    walk = WALK.format(schema=at_desk.schema)  # where nothing is found by the search path
    key = AggregateKey.parse(f"{event.aggregate_type}:{event.aggregate_id}")
    by_status: dict[str, Callable[[], Awaitable[Any]]] = {
        f"events_{status}": lambda status=status: stories.events(at_desk, status=status)  # type: ignore[misc]
        for status in ("pending", "open", "delivered", "dead")
    }
    return {
        "status": lambda: overview(at_desk),
        "failed": lambda: stories.failed(at_desk, 100),
        "events": lambda: stories.events(at_desk),
        **by_status,
        "show": lambda: stories.show(at_desk, event.event_id),
        "history": lambda: stories.history(at_desk, key),
        "walk": lambda: at_desk.connection.fetchval(walk),
    }


async def _median_ms(ask: Callable[[], Awaitable[Any]], repetitions: int) -> float:
    times = []
    for _ in range(repetitions):
        began = time.perf_counter()
        await ask()
        times.append(time.perf_counter() - began)
    return round(statistics.median(times) * 1_000, 1)
