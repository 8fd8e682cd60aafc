"""How fast a relay reads the log to a handler that does nothing, against reading by cursor with nothing decoded."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import asyncpg
import attrs
from lagom import Container

from benchmarks.relay.draining import drain, interleaved, median_of
from benchmarks.relay.parcels import NoteStart
from benchmarks.relay.sizes import AGGREGATES, HOT_AGGREGATES
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.outbox.sql.log import LEAVE_AND_MOVE, MOVE
from outbox_kernel.infrastructure.relay.relay import OutboxRelay
from outbox_kernel.kernel.handlers import registered_handlers

if TYPE_CHECKING:
    from benchmarks.relay.draining import Drain
    from benchmarks.relay.ground import Ground
    from benchmarks.relay.meter import Meter
    from benchmarks.relay.sizes import Sizes

BATCH = 500
# What a bare reader does: all columns as they are, in order from a place on, and the place written down.
READ = f"""
SELECT position, event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version, payload::text,
       headers::text, occurred_at, created_at, aggregate_key, not_before, source, xid
FROM outbox_events WHERE position > $1 ORDER BY position LIMIT {BATCH}
"""  # noqa: S608 - a constant of this module
SAVE = """
INSERT INTO outbox_progress (reader, number, position, server, snapshot) VALUES ($1, $2, $3, 1, pg_current_snapshot())
"""
_MOVES = {MOVE.in_schema(None), LEAVE_AND_MOVE.in_schema(None)}


async def measure_log_drain(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Drain events of many aggregates."""
    found = await interleaved(
        {
            "relay": partial(_relayed, ground, sizes.drain_events, AGGREGATES),
            "hot": partial(_relayed, ground, sizes.drain_events, HOT_AGGREGATES),
            "floor": partial(_by_hand, ground, sizes.drain_events),
        },
        sizes.repetitions,
    )
    rate, hot, floor = (median_of(found[side], "events_per_s") for side in ("relay", "hot", "floor"))
    return {
        "events_per_s": round(rate),
        "floor_events_per_s": round(floor),
        "ratio": round(rate / floor, 3),
        "hot_events_per_s": round(hot),
        "hot_ratio_to_drain": round(hot / rate, 3),
        "cpu_us_per_event": round(median_of(found["relay"], "cpu_us_per_event"), 1),
        "floor_cpu_us_per_event": round(median_of(found["floor"], "cpu_us_per_event"), 1),
    }


async def _relayed(ground: Ground, events: int, aggregates: int) -> Drain:
    await _renew(ground, events, aggregates)
    return await drain({"kind": "log.relay", "url": ground.url, "handler": "bench.ignore"}, events)


async def _by_hand(ground: Ground, events: int) -> Drain:
    await _renew(ground, events, AGGREGATES)
    return await drain({"kind": "log.bare_reading", "url": ground.dsn}, events)


async def _renew(ground: Ground, events: int, aggregates: int) -> None:
    """Fill fresh tables that nobody has analysed: no statement is to depend on that."""
    await ground.empty()
    await ground.connection.execute("TRUNCATE outbox_cursors, outbox_progress, outbox_cursors_past")
    await ground.fill(events, aggregates=aggregates)


class MeteredConnection(asyncpg.Connection):
    """Sees the relay move, as the database does."""

    meter: ClassVar[Meter]

    async def fetch(self, query: str, *arguments: Any, **options: Any) -> list[Any]:
        """Do as told, and note what it was."""
        rows: list[Any] = await super().fetch(query, *arguments, **options)
        names = next((names for text, names in _MOVES if text == query), None)
        if names is None:
            if "pg_snapshot_xip" in query:
                self.meter.begin()
        elif rows:
            self.meter.marked(sum(arguments[names.index("events")]))
        return rows


async def relay(meter: Meter, over: asyncio.Event, *, url: str, handler: str) -> dict[str, Any]:
    """Relay to one handler until told to stop."""
    MeteredConnection.meter = meter
    engine = create_engine(url, connect_args={"connection_class": MeteredConnection})
    carried = [
        attrs.evolve(each, start="beginning") for each in registered_handlers() if each.name == handler
    ]
    reading = OutboxRelay(engine, Container(), handlers=carried)
    running, stopping = asyncio.create_task(reading.run()), asyncio.create_task(over.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    reading.stop()
    stopping.cancel()
    await running
    await engine.dispose()
    return {"moments_ns": NoteStart.started_ns}


async def bare_reading(meter: Meter, _: asyncio.Event, *, url: str) -> dict[str, Any]:
    """Read on one connection and save the place, with nothing decoded; the next read goes on meanwhile."""
    reading, saving = await asyncpg.connect(url), await asyncpg.connect(url)
    reader, number, position = uuid4(), 0, 0
    await reading.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off")
    meter.begin()
    while rows := await reading.fetch(READ, position):
        position, number = rows[-1]["position"], number + 1
        await saving.execute(SAVE, reader, number, position)
        meter.marked(len(rows))
    await reading.close()
    await saving.close()
    return {}
