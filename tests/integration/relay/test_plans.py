"""Claims are planned once per connection: to plan one takes longer than to run it (R10, R13)."""

from __future__ import annotations

import pytest

from infrastructure.relay.roster import Ability
from infrastructure.relay.store import Lease, Store
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
    await store.register(line, lease, LEASE_SECONDS, (1, "here", "1", "{}"))
    for _ in range(CLAIMS):
        await store.claim_events(line, lease, begin=0, lowest=0, limit=100, names=["h", "i"])
    [plans] = await line.fetch(PLANNED)
    assert tuple(plans) == (CLAIMS - TRIED_BY_THE_SERVER, TRIED_BY_THE_SERVER)


@pytest.mark.servers
async def test_a_claim_of_deliveries_is_not_planned_anew_each_time(stage: Stage) -> None:
    store, line, lease = Store(), stage.line(), Lease()
    abilities = [Ability(name, "bank.noted", 1) for name in ("h", "i", "j")]
    await store.register(line, lease, LEASE_SECONDS, (1, "here", "1", "{}"))
    for _ in range(CLAIMS):
        await store.claim_deliveries(
            *(line, lease, abilities), after={}, heads_max=500, turns_max=25, turn_max=20
        )
    [plans] = await line.fetch(PLANNED)
    assert tuple(plans) == (CLAIMS - TRIED_BY_THE_SERVER, TRIED_BY_THE_SERVER)
