"""Claims are planned once per connection: to plan one takes longer than to run it (R10, R13)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outbox_kernel.infrastructure.outbox.sql import in_schema, outcomes
from outbox_kernel.infrastructure.relay.roster import Ability
from outbox_kernel.infrastructure.relay.store import Lease, Store
from tests.relaying import LEASE_SECONDS, Stage

# PostgreSQL plans five times for the values at hand, and then once for all, if that is expected to be as good.
TRIED_BY_THE_SERVER = 5
CLAIMS = 15
PLANNED = """
SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE '%FROM outbox_relays%FOR SHARE%'
  AND statement NOT LIKE '%pg_prepared_statements%'
"""


@pytest.mark.servers
async def test_a_claim_of_events_is_not_planned_anew_each_time(stage: Stage) -> None:
    store, line, lease = Store(), stage.line(), Lease()
    await store.register(line, lease, LEASE_SECONDS, (1, "here", "1", "{}", "{}", True))
    for _ in range(CLAIMS):
        await store.claim_events(line, lease, begin=0, lowest=0, limit=100, names=["h", "i"])
    [plans] = await line.fetch(PLANNED)
    assert tuple(plans) == (CLAIMS - TRIED_BY_THE_SERVER, TRIED_BY_THE_SERVER)


@pytest.mark.servers
async def test_a_claim_of_deliveries_is_not_planned_anew_each_time(stage: Stage) -> None:
    store, line, lease = Store(), stage.line(), Lease()
    abilities = [Ability(name, "bank.noted", 1) for name in ("h", "i", "j")]
    await store.register(line, lease, LEASE_SECONDS, (1, "here", "1", "{}", "{}", True))
    for _ in range(CLAIMS):
        await store.claim_deliveries(
            *(line, lease, abilities), after={}, heads_max=500, turns_max=25, turn_max=20
        )
    [plans] = await line.fetch(PLANNED)
    assert tuple(plans) == (CLAIMS - TRIED_BY_THE_SERVER, TRIED_BY_THE_SERVER)


SETTLED = """
WITH event AS (
  INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
                             payload, occurred_at, status)
  SELECT gen_random_uuid(), 'bank.noted', 1, 'bank.wallet', gen_random_uuid(), 1, '{}', clock_timestamp(), 'open'
  FROM generate_series(1, $1)
  RETURNING event_id, position, aggregate_id
)
INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status)
SELECT event_id, position, 'h', 'bank.wallet:' || aggregate_id, 'done' FROM event
"""


def blocks_of(table: str, plan: dict[str, Any]) -> int:
    """How many blocks a plan's nodes have read of a table, their indexes included."""
    if plan.get("Relation Name") == table and plan["Node Type"] != "ModifyTable":
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    return sum(blocks_of(table, below) for below in plan.get("Plans", []))


@pytest.mark.servers
async def test_to_close_events_reads_their_deliveries_and_no_others(stage: Stage) -> None:
    """R13: in a plan that was made when there were hardly any, too, which the server keeps to for a while."""
    witness = stage.witness
    async with witness.transaction():
        await witness.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        await witness.execute(
            f"PREPARE closing (bigint[], timestamptz) AS {in_schema(outcomes.CLOSE_EVENTS, None)}"
        )
        await witness.execute("EXECUTE closing (ARRAY[0], NULL)")
        await witness.execute(SETTLED, 15_000)
        rows = await witness.fetch("SELECT position FROM outbox_events LIMIT 10")
        positions = [row["position"] for row in rows]
        told = await witness.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE closing (ARRAY{positions}, NULL)"
        )
    [found] = json.loads(told)
    # A few for each event: all of them are some hundreds. What is written to the events' own indexes is another matter.
    assert 0 < blocks_of("outbox_deliveries", found["Plan"]) < 100
