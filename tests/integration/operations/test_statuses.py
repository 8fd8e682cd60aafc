"""Lists by status, the view and the rule behind them agree, wherever subscriptions stand (O1, S)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from outbox_kernel.infrastructure.operations import AggregateKey, stories
from outbox_kernel.infrastructure.operations.overview import overview

EVENTS, LOGS = 30, 12
AGGREGATES = [UUID(int=1), UUID(int=2)]
STATES = ("pending", "open", "delivered", "dead")
# What is behind the cursor of whom, told without a short way: each place by itself.
IS_AHEAD = """
SELECT due.name, event.event_id FROM outbox_log AS event
JOIN outbox_subscriptions AS due ON due.retired_at IS NULL AND due.source IS NOT DISTINCT FROM event.source
JOIN outbox_cursor_places AS place ON place.subscription = due.name
WHERE EXISTS (SELECT FROM unnest(due.patterns) AS pattern WHERE event.event_type LIKE replace(pattern, '*', '%'))
  AND place.shard = get_byte(uuid_send(coalesce(event.aggregate_id, event.event_id)), 15) % 32
  AND NOT (event.position <= place.position AND (
    event.position <= place.floor OR pg_visible_in_snapshot(event.xid, place.snapshot)
    OR coalesce(event.position <= late_position AND pg_visible_in_snapshot(event.xid, late_snapshot), false)))
"""
OF_AGGREGATE = "SELECT event_id FROM outbox_events WHERE aggregate_id = $1"


class Dice:
    """Writes a log at random: transactions, sources, places, deliveries."""

    def __init__(self, outbox: Any, seed: str) -> None:
        self.outbox, self.random = outbox, random.Random(seed)

    async def write(self) -> None:
        execute = self.outbox.execute
        await execute(
            "INSERT INTO outbox_servers (identifier, floor) VALUES ('one', 0), ('two', $1)", EVENTS // 3
        )
        for name in ("a", "b", "c"):
            await self._subscription(name)
        for _ in range(EVENTS):
            await self._event()

    async def _event(self) -> None:
        aggregate = self.random.choice((None, *AGGREGATES))
        event_id = await self.outbox.event(
            aggregate, event_type=self.random.choice(("bank.paid", "bank.noted", "shop.sold"))
        )
        await self.outbox.execute(
            "UPDATE outbox_events SET xid = $2::text::xid8, source = $3 WHERE event_id = $1",
            *(event_id, str(self.random.randint(3, 12)), self.random.choice((None, None, "q"))),
        )
        if self.random.random() < 0.3:
            await self.outbox.execute(
                """INSERT INTO outbox_arrivals (position, event_id, aggregate_id, event_type, source, xid)
                   SELECT nextval('outbox_events_position_seq'), event_id, aggregate_id, event_type, 'r', xid
                   FROM outbox_events WHERE event_id = $1""",
                event_id,
            )
        for name in ("a", "b"):
            if self.random.random() < 0.2:
                status = self.random.choice(("waiting", "leased", "dead", "done"))
                await self.outbox.delivery(event_id, status, handler=name)

    async def _subscription(self, name: str) -> None:
        await self.outbox.execute(
            "INSERT INTO outbox_subscriptions (name, kind, patterns, source, retired_at) "
            "VALUES ($1, 'handler', $2, $3, CASE WHEN $4 THEN now() END)",
            *(
                name,
                self.random.sample(["bank.*", "shop.sold", "*"], 1),
                self.random.choice((None, None, "q", "r")),
            ),
            self.random.random() < 0.1,
        )
        for shards in ("shard % 2 = 0", "shard % 2 = 1"):
            await self.outbox.execute(
                f"""WITH reader AS (
                      INSERT INTO outbox_progress (
                        reader, number, position, server, snapshot, late_position, late_snapshot)
                      VALUES (gen_random_uuid(), 1, $2, $3, $4::text::pg_snapshot, $5::bigint,
                              CASE WHEN $5::bigint IS NOT NULL THEN '13:13:'::pg_snapshot END) RETURNING reader)
                    INSERT INTO outbox_cursors (subscription, shard, reader, rewind_to)
                    SELECT $1, shard, reader, $6 FROM reader, generate_series(0, 31) AS shard WHERE {shards}""",
                *(name, self.random.randint(0, EVENTS), self.random.randint(1, 2)),
                self.random.choice(("13:13:", "5:9:5,7", "4:4:")),
                *(self.random.choice((None, 10)), self.random.choice((None, None, 5))),
            )


@pytest.mark.parametrize("number", range(LOGS))
async def test_each_subscription_is_as_far_behind_as_its_places_are(
    outbox: Any, number: int, pytestconfig: pytest.Config
) -> None:
    """What is late for two reasons counts once."""
    await Dice(outbox, f"{pytestconfig.getoption('--hypothesis-seed')}:{number}").write()
    behind = Counter(row["name"] for row in await outbox.rows(IS_AHEAD))
    for each in (await overview(outbox.desk)).subscriptions:
        assert (each.name, each.lag_events) == (each.name, behind[each.name])


@pytest.mark.parametrize("number", range(LOGS))
async def test_lists_by_status_and_the_view_agree_with_the_places(
    outbox: Any, number: int, pytestconfig: pytest.Config
) -> None:
    await Dice(outbox, f"{pytestconfig.getoption('--hypothesis-seed')}:{number}").write()
    told = {
        row["event_id"]: row["status"]
        for row in await outbox.rows("SELECT event_id, status FROM outbox_status ORDER BY log_position DESC")
    }
    if await outbox.value("SELECT EXISTS (SELECT FROM outbox_subscriptions WHERE source IS NULL)"):
        ahead = {row["event_id"] for row in await outbox.rows(IS_AHEAD)}
        assert {event_id for event_id, status in told.items() if status == "pending"} == ahead
    for status in STATES:
        expected = [event_id for event_id, known in told.items() if known == status]
        found = await stories.events(outbox.desk, status=status, limit=EVENTS)
        assert [each.event_id for each in found] == expected
        for aggregate in AGGREGATES:
            rows = await outbox.rows(OF_AGGREGATE, aggregate)
            found = await stories.events(
                outbox.desk, status=status, aggregate=AggregateKey(aggregate), limit=EVENTS
            )
            of_it = {row["event_id"] for row in rows}
            assert [each.event_id for each in found] == [each for each in expected if each in of_it]
