"""The judgement: what was committed, held against what the handlers did."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

import asyncpg
from attrs import Factory, define

from tests.faults.tables import CONTINUES, UNRULY, Promise, rejects

# Events whose rows and aggregates disagree: the outbox must hold exactly 1…version of every counter.
UNCAPTURED = """
SELECT coalesce(sum(abs(counter.version - coalesce(held.n, 0)) + coalesce(held.last, 0) - coalesce(held.n, 0)), 0)
FROM faults_counters AS counter FULL JOIN (
  SELECT aggregate_id AS id, count(*) AS n, max(aggregate_version) AS last FROM outbox_events
  WHERE aggregate_id IS NOT NULL GROUP BY 1
) AS held USING (id)
"""

# Settled as far as the outbox is concerned, and yet neither done nor passed over on purpose. 1 handler, 2 its names.
LOST = """
SELECT count(*) FROM outbox_events AS event JOIN outbox_status AS outcome USING (event_id)
WHERE outcome.status <> 'pending' AND event_type = 'faults.counted'
  AND NOT EXISTS (SELECT FROM faults_effects AS effect WHERE effect.event_id = event.event_id AND handler = $1)
  AND NOT EXISTS (SELECT FROM outbox_receipts AS receipt
                  WHERE receipt.event_id = event.event_id AND handler = ANY ($2) AND outcome = 'skipped')
  AND NOT EXISTS (SELECT FROM outbox_deliveries AS delivery
                  WHERE delivery.event_id = event.event_id AND handler = ANY ($2)
                    AND (NOT settled OR delivery.status IN ('dead', 'skipped')))
"""

REPEATED = """
SELECT coalesce(sum(n - 1), 0) FROM (
  SELECT count(*) AS n FROM faults_effects WHERE handler = $1 GROUP BY event_id) AS effect WHERE n > 1
"""

# By the first effect of each event, since what is at least once may go back after a crash.
INVERSIONS = """
SELECT count(*) FROM (
  SELECT aggregate_version, lag(aggregate_version) OVER (PARTITION BY aggregate_id ORDER BY first) AS before
  FROM (SELECT aggregate_id, aggregate_version, min(turn) AS first FROM faults_effects
        WHERE handler = $1 GROUP BY aggregate_id, aggregate_version) AS each) AS pair
WHERE aggregate_version < before
"""

# What to look at first: the pairs, with the deliveries that their events came to be.
EXAMPLES = """
SELECT pair.*, (SELECT json_agg(delivery) FROM outbox_deliveries AS delivery
                WHERE delivery.event_id IN (pair.event_id, pair.other) AND delivery.handler = ANY ($2)) AS deliveries
FROM (
  SELECT aggregate_id, aggregate_version, event_id, process_id, at, turn,
         lag(aggregate_version) OVER aggregate AS before, lag(event_id) OVER aggregate AS other,
         lag(process_id) OVER aggregate AS other_process_id, lag(at) OVER aggregate AS other_at
  FROM faults_effects WHERE handler = $1 WINDOW aggregate AS (PARTITION BY aggregate_id ORDER BY turn)) AS pair
WHERE aggregate_version < before LIMIT 3
"""

# Effects of events that stand behind a dead one. 1 handler, 2 its names.
PASSED = """
SELECT count(*) FROM faults_effects AS effect
JOIN outbox_deliveries AS dead ON dead.order_key = 'faults.counter:' || effect.aggregate_id
JOIN outbox_events AS event ON event.event_id = dead.event_id
WHERE effect.handler = $1 AND dead.handler = ANY ($2) AND dead.status = 'dead' AND dead.on_dead = 'park'
  AND effect.aggregate_version > event.aggregate_version
"""

# Not finished, and not for a reason that an operator has to do with: behind a dead one of the same turn.
STUCK = """
SELECT (SELECT count(*) FROM outbox_status WHERE status = 'pending')
     + (SELECT count(*) FROM outbox_deliveries AS delivery
        WHERE NOT settled AND status <> 'dead' AND NOT EXISTS (
          SELECT FROM outbox_deliveries AS dead
          WHERE dead.order_key = delivery.order_key AND dead.handler = delivery.handler
            AND dead.position < delivery.position AND dead.status = 'dead' AND NOT dead.settled))
"""

DEAD = """
SELECT delivery.event_id, handler, attempts, delivery.error_message, payload->>'spell' AS spell
FROM outbox_deliveries AS delivery JOIN outbox_events AS event USING (event_id) WHERE delivery.status = 'dead'
"""
POISONED = "SELECT count(*) FROM outbox_events WHERE payload->>'spell' = 'poison'"
# Of an event that no broker takes.
REFUSED = "refused"
KILLS = "kills the process"
CRASHES_UNTIL_DEAD = 3


@define
class Judgement:
    """What became of a cell; all counts but the first two are zero when all promises were kept."""

    events: int = 0
    effects: int = 0
    lost: int = 0
    repeated: int = 0
    inversions: int = 0
    stuck: int = 0
    wrong: int = 0
    remarks: list[str] = Factory(list)

    @property
    def broken(self) -> frozenset[str]:
        """The columns that are not zero: none if every promise was kept."""
        columns = ("lost", "repeated", "inversions", "stuck", "wrong")
        return frozenset(each for each in columns if getattr(self, each))

    def remark(self, what: str) -> None:
        """Note a broken promise that is none of the four."""
        self.wrong += 1
        self.remarks.append(what)


async def judge(
    connection: asyncpg.Connection,
    promises: Iterable[Promise],
    names: Mapping[str, list[str]],
    acknowledged: Mapping[UUID, int],
    undecodable: Collection[UUID] = (),
) -> Judgement:
    """Compare what was acknowledged with the outbox, and the outbox with the effects, handler by handler."""
    result = Judgement()
    result.events = await connection.fetchval("SELECT count(*) FROM outbox_events")
    result.effects = await connection.fetchval("SELECT count(*) FROM faults_effects")
    result.stuck = await connection.fetchval(STUCK)
    if uncaptured := int(await connection.fetchval(UNCAPTURED)):
        result.lost += uncaptured
        result.remarks.append(f"{uncaptured} between counters and the outbox")
    if missing := await _missing(connection, acknowledged):
        result.lost += missing
        result.remarks.append(f"{missing} that were acknowledged are not there")
    for promise in promises:
        await _judge_handler(connection, promise, names.get(promise.handler, [promise.handler]), result)
    await _judge_dead(connection, result, undecodable)
    return result


async def _missing(connection: asyncpg.Connection, acknowledged: Mapping[UUID, int]) -> int:
    """Count the steps that a writer was told are stored, and that the counters have not made."""
    rows = await connection.fetch("SELECT id, n FROM faults_counters")
    there: dict[UUID, int] = {row["id"]: row["n"] for row in rows}
    return sum(max(0, n - there.get(identity, 0)) for identity, n in acknowledged.items())


async def _judge_handler(
    connection: asyncpg.Connection, promise: Promise, names: list[str], result: Judgement
) -> None:
    lost = await connection.fetchval(LOST, promise.handler, names)
    repeated = int(await connection.fetchval(REPEATED, promise.handler)) if promise.once else 0
    inversions = 0
    if promise.ordered:
        inversions = await connection.fetchval(INVERSIONS, promise.handler)
        inversions += await connection.fetchval(PASSED, promise.handler, names)
    result.lost += lost
    result.repeated += repeated
    result.inversions += inversions
    if inversions:
        result.remarks += [str(dict(row)) for row in await connection.fetch(EXAMPLES, promise.handler, names)]
    if lost or repeated or inversions:
        result.remarks.append(
            f"{promise.handler}: {lost} lost, {repeated} repeated, {inversions} out of order"
        )


async def _judge_dead(
    connection: asyncpg.Connection, result: Judgement, undecodable: Collection[UUID]
) -> None:
    """Only what asked for it may be dead, and what kills its process must be, for that reason."""
    poisoned = await connection.fetchval(POISONED)
    for row in await connection.fetch(DEAD):
        if row["handler"] == CONTINUES.handler and rejects(row["event_id"].hex):
            continue
        if row["spell"] == REFUSED or row["event_id"] in undecodable:
            continue
        if row["handler"] == UNRULY.handler and row["spell"] == "poison":
            poisoned -= 1
            if (row["attempts"], row["error_message"]) == (CRASHES_UNTIL_DEAD, KILLS):
                continue
        result.remark(f"dead: {dict(row)}")
    behind_another = await connection.fetchval(BEHIND_ANOTHER)
    if poisoned != behind_another:
        result.remark(f"{poisoned - behind_another} events that kill their process are not dead")


BEHIND_ANOTHER = """
SELECT count(*) FROM outbox_deliveries AS delivery JOIN outbox_events AS event USING (event_id)
WHERE payload->>'spell' = 'poison' AND delivery.status = 'waiting'
"""
