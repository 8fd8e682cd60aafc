"""What was delivered long ago goes by itself, a window at a time; all else stays (R13)."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, cast
from uuid import UUID, uuid4

import attrs
import pytest

from outbox_kernel.infrastructure.outbox import purge as purge_module
from outbox_kernel.infrastructure.outbox.purge import Purged
from outbox_kernel.infrastructure.outbox.sql import at_home
from outbox_kernel.infrastructure.outbox.sql.cursors import TAKE
from outbox_kernel.infrastructure.outbox.sql.named import Statement
from outbox_kernel.infrastructure.outbox.sql.reading import read
from outbox_kernel.infrastructure.outbox.sql.retention import PURGE_EVENTS, SETTINGS
from outbox_kernel.infrastructure.relay import retention
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.infrastructure.relay.retention import Retention
from outbox_kernel.infrastructure.relay.takeover import Upkeep
from tests.domain import Announced
from tests.relaying import Recorder, Stage, connected, handler
from tests.serving import serving
from tests.waiting import until

DAY = 86_400.0
AGE = "UPDATE {} SET {} = {} - interval '8 days'"


async def delivered(stage: Stage, *whats: str) -> None:
    """Deliver these, each with its effect."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)

    await stage.put(*whats)
    await stage.drain(handler("h", act))


async def keeper_at(stage: Stage, days: float, *, keep: float | None = 7.0) -> Retention:
    """The retention of a relay so many days later."""
    return Retention(await stage.log(at=days * DAY), keep)


async def purge(keeper: Retention) -> Purged:
    """Purge until there is nothing for now."""
    while await keeper.step():
        pass
    return keeper.purged


async def purged_at(stage: Stage, days: float, *, keep: float | None = 7.0) -> Purged:
    """What a relay purges that begins so many days later."""
    return await purge(await keeper_at(stage, days, keep=keep))


# --- what goes, and what stays ------------------------------------------------------------------------


async def test_what_was_delivered_long_ago_goes_with_its_deliveries_and_receipts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R13: a window at a time."""
    monkeypatch.setattr(purge_module, "WINDOW_ROWS", 2)
    act = Recorder().fail("b")
    await stage.put("a", "b", "c", "d", "e")
    await stage.drain(handler("h", act))
    await stage.drain(handler("h", act), at=60)
    assert await stage.deliveries() == {("b", "h"): "done"}
    keeper = await keeper_at(stage, 8)
    assert await keeper.step()
    assert list(await stage.events()) == ["c", "d", "e"]
    found = await purge(keeper)
    assert (found.events, found.deliveries) == (5, 1)
    assert (await stage.events(), await stage.deliveries()) == ({}, {})


async def test_what_is_young_stays_with_all_that_belongs_to_it(stage: Stage) -> None:
    """R13: but for where a reader began with which nothing was passed."""
    await delivered(stage, "a")
    assert await purged_at(stage, 6) == Purged(places=1)
    assert (len(await stage.events()), len(await stage.receipts())) == (1, 1)
    assert attrs.evolve(await purged_at(stage, 8), places=0) == Purged(events=1, receipts=1)


async def test_history_is_kept_for_ever_where_nothing_is_to_go(stage: Stage) -> None:
    """R13: `OUTBOX_CLEANUP_DAYS=never`."""
    await delivered(stage, "a")
    assert await purged_at(stage, 8_000, keep=None) == Purged()
    assert list(await stage.events()) == ["a"]


async def test_what_is_not_delivered_stays_however_old_it_is(stage: Stage) -> None:
    """R13, R7: a dead letter, too."""
    await stage.put("dead", "waiting", "done")
    await stage.drain(handler("h", Recorder().fail("dead").fail("waiting")), retries_max=1)
    await stage.witness.execute("UPDATE outbox_deliveries SET status = 'waiting' WHERE position = 2")
    assert (await purged_at(stage, 8_000)).events == 1
    assert await stage.events() == {"dead": "dead", "waiting": "open"}


async def test_what_was_mended_lately_stays_for_as_long_as_if_it_were_new(stage: Stage) -> None:
    """R13, O1: whoever skips a dead letter of last month can still look at it."""
    await stage.put("dead")
    await stage.drain(handler("h", Recorder().fail("dead")), retries_max=1)
    skip = "UPDATE outbox_deliveries SET status = 'skipped', updated_at = $1"
    await stage.witness.execute(skip, stage.at(30 * DAY))
    assert (await purged_at(stage, 36)).events == 0
    assert (await purged_at(stage, 38)).events == 1


BEHIND = """
WITH placed AS (
  INSERT INTO outbox_progress (reader, number, position, server, snapshot)
  SELECT gen_random_uuid(), 0, $2, server, coalesce($3::text::pg_snapshot, snapshot)
  FROM outbox_progress ORDER BY recorded_at DESC LIMIT 1
  RETURNING reader
), cursor AS (
  INSERT INTO outbox_cursors (subscription, shard, reader)
  SELECT 'behind', shard, reader FROM placed, generate_series(0, 31) AS shard
)
INSERT INTO outbox_subscriptions (name, kind, patterns, source) VALUES ('behind', 'handler', ARRAY['bank.noted'], $1)
"""


@pytest.mark.parametrize(
    ("source", "position", "snapshot", "left"),
    [
        (None, 3, None, []),
        (None, 1, None, ["b", "c"]),
        (None, 3, "1:1:", ["a", "b", "c"]),
        ("queue", 0, None, []),
    ],
    ids=["has passed it", "stands before it", "has not seen it", "is for others"],
)
async def test_what_somebody_who_is_due_has_not_passed_stays(
    stage: Stage, source: str | None, position: int, snapshot: str | None, left: list[str]
) -> None:
    """R2, R13: a subscription that no live relay carries only stands still, and loses nothing."""
    await delivered(stage, "a", "b", "c")
    await stage.witness.execute(BEHIND, source, position, snapshot)
    await purged_at(stage, 8)
    assert list(await stage.events()) == left
    await stage.witness.execute("UPDATE outbox_subscriptions SET retired_at = now() WHERE name = 'behind'")
    await purged_at(stage, 8)
    assert await stage.events() == {}


async def test_a_subscription_without_a_place_has_passed_nothing(stage: Stage) -> None:
    """R13: that of another type goes."""
    await delivered(stage, "a")
    await stage.put("other", event_type="bank.paid")
    await stage.drain(handler("h", Recorder()))
    await stage.witness.execute(
        "INSERT INTO outbox_subscriptions (name, kind, patterns) VALUES ('new', 'handler', ARRAY['bank.noted'])"
    )
    await purged_at(stage, 8)
    assert list(await stage.events()) == ["a"]


async def test_what_is_about_to_be_replayed_stays(stage: Stage) -> None:
    """R17: the cursor is to go back, and has not yet."""
    await delivered(stage, "a", "b")
    await stage.witness.execute("UPDATE outbox_cursors SET rewind_to = 1")
    await purged_at(stage, 8)
    assert list(await stage.events()) == ["b"]


async def test_what_a_retired_subscription_has_left_goes_with_its_event(stage: Stage) -> None:
    """R2: it is due for nothing, and the status of its events says so."""
    await stage.put("dead")
    await stage.drain(handler("h", Recorder().fail("dead")), retries_max=1)
    await stage.witness.execute("UPDATE outbox_subscriptions SET retired_at = now()")
    found = await purged_at(stage, 8)
    assert (found.events, found.deliveries) == (1, 1)


async def test_a_receipt_outlives_an_event_that_goes_sooner(stage: Stage) -> None:
    """R13: a relay that was stopped must still find it."""
    await delivered(stage, "a")
    found = await purged_at(stage, 2, keep=1.0)
    assert (found.events, found.receipts) == (1, 0)
    found = await purged_at(stage, 8, keep=1.0)
    assert (found.events, found.receipts) == (0, 1)


async def test_a_receipt_stays_for_as_long_as_its_event(stage: Stage) -> None:
    """R6, R13: one of the handlers has failed, and the others' effects must not happen again."""
    await stage.put("a", "b")

    async def act(event: Any) -> None:
        await stage.enter(event.what)

    await stage.drain(handler("h", act), handler("dead", Recorder().fail("a")), retries_max=1)
    await purged_at(stage, 8_000)
    assert await stage.receipts() == [("a", "h", "done")]
    assert await stage.witness.fetchval("SELECT count(*) FROM outbox_receipts") == 1


# --- one at a time, and no longer than it must be -----------------------------------------------------


async def test_one_relay_purges_at_a_time(stage: Stage) -> None:
    """R13: another rests meanwhile."""
    await delivered(stage, "a")
    keeper, other = await keeper_at(stage, 8), await stage.log(at=8 * DAY)
    arguments = {
        "after": 0,
        "span_max": 10,
        "rows_max": 10,
        "days": 7.0,
        "receipt_days": 7.0,
        "is_free": True,
    }
    text, given = other.step(PURGE_EVENTS, **arguments)
    async with stage.witness.transaction():
        [row] = await stage.witness.fetch(at_home(text, None), *given)
        assert (row["held"], row["events"]) == (True, 1)
        assert await purge(keeper) == Purged()


async def test_a_row_that_somebody_holds_is_waited_for_the_next_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: a purge waits for nobody, and harms no relay by that."""
    monkeypatch.setattr(retention, "RETENTION_REST_SECONDS", 0.0)
    await delivered(stage, "a")
    keeper = await keeper_at(stage, 8)
    async with stage.witness.transaction():
        await stage.witness.execute("SELECT FROM outbox_events FOR UPDATE")
        assert await keeper.step()
        assert keeper.purged == Purged()
    assert await keeper.step()
    assert keeper.purged.events == 1


async def test_what_was_old_and_stayed_is_looked_at_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R13: by the walk over the whole, which begins where something is left."""
    monkeypatch.setattr(purge_module, "RETENTION_REST_SECONDS", 0.0)
    await stage.put("a", "dead", "c")
    await stage.drain(handler("h", Recorder().fail("dead")), retries_max=1)
    keeper = await keeper_at(stage, 8)
    await keeper.step()
    assert list(await stage.events()) == ["dead"]
    await stage.witness.execute("UPDATE outbox_deliveries SET status = 'skipped'")
    await keeper.step()
    assert list(await stage.events()) == ["dead"]
    cast("Any", keeper).tasks[0].whole_at = 0.0  # as if an hour were over
    await keeper.step()
    assert await stage.events() == {}


async def test_a_serving_relay_purges(stage: Stage) -> None:
    """R13: with nobody who asks it to."""
    await delivered(stage, "a")
    await aged(stage)

    async def is_gone() -> bool:
        return await stage.events() == {}

    async with serving(stage.relay(handler("h", Recorder()), at=None, poll_interval_seconds=0.05)):
        await until(is_gone)


async def test_it_purges_as_fast_as_events_come(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """R13: while there is more that is old, a relay does not wait for its next upkeep."""
    monkeypatch.setattr(purge_module, "WINDOW_ROWS", 1)
    await delivered(stage, *(f"e{n}" for n in range(20)))
    log = await stage.log(at=8 * DAY)
    await Upkeep(log, cast("Any", None), Retention(log, 7.0), 3_600.0, "unheard", lambda: None).purge()
    assert await stage.events() == {}


async def test_it_purges_no_longer_than_until_the_next_upkeep(stage: Stage) -> None:
    """R3, R13: however much there is, the other chores have their time."""
    steps: list[int] = []

    class Endless:
        async def step(self) -> bool:
            steps.append(1)
            return True

    log = await stage.log()
    upkeep = Upkeep(log, cast("Any", None), cast("Any", Endless()), 0.05, "unheard", lambda: None)
    await upkeep.purge()
    assert steps


async def aged(stage: Stage) -> None:
    # A run of a second, as on a machine that is busy, leaves a delivery.
    for table, column in (
        ("outbox_events", "created_at"),
        ("outbox_receipts", "created_at"),
        ("outbox_deliveries", "updated_at"),
    ):
        await stage.witness.execute(AGE.format(table, column, column))


# --- what relays have noted of themselves -------------------------------------------------------------

PLACES = "SELECT number FROM outbox_progress WHERE reader = $1 ORDER BY number"
CURSORS = """
INSERT INTO outbox_cursors (subscription, shard, reader, first_number)
SELECT 'h', shard, $1, $2 FROM generate_series(0, 31) AS shard
"""
STEPS = """
INSERT INTO outbox_progress (reader, number, position, server, snapshot, recorded_at)
SELECT $1, number, number, 1, '1000000000:1000000000:', $2::timestamptz + number * interval '1 day'
FROM generate_series(0, $3::int) AS number
"""
SUBSCRIBED = (
    "INSERT INTO outbox_subscriptions (name, kind, patterns) VALUES ('h', 'handler', ARRAY['bank.noted'])"
)


async def followed(stage: Stage, *, days: int, first: int = 0) -> UUID:
    """One subscription, whose reader has passed an event a day."""
    await stage.witness.execute("INSERT INTO outbox_servers (identifier, floor) VALUES ('here', 0)")
    await stage.witness.execute(SUBSCRIBED)
    reader = uuid4()
    await stage.witness.execute(CURSORS, reader, first)
    await stage.witness.execute(STEPS, reader, stage.start, days)
    return reader


async def places(stage: Stage, reader: UUID) -> list[int]:
    return [row["number"] for row in await stage.witness.fetch(PLACES, reader)]


async def test_progress_goes_when_it_dates_nothing_young_any_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R13: but for where a cursor began with it, and the newest that is old."""
    monkeypatch.setattr(purge_module, "WINDOW_PLACES", 4)
    reader = await followed(stage, days=20)
    found = await purged_at(stage, 20.5)
    assert (await places(stage, reader), found.places) == ([0, *range(13, 21)], 12)
    await purged_at(stage, 20.5)
    assert await places(stage, reader) == [0, *range(13, 21)]


async def test_the_newest_progress_of_a_reader_always_stays(stage: Stage) -> None:
    """R2b: it is where its cursors stand."""
    reader = await followed(stage, days=20)
    await purged_at(stage, 8_000)
    assert await places(stage, reader) == [0, 20]


async def test_what_cursors_began_and_ended_with_stays_for_as_long_as_they_may_date_something(
    stage: Stage,
) -> None:
    reader = await followed(stage, days=20, first=5)
    past = """
        INSERT INTO outbox_cursors_past (subscription, shard, reader, first_number, last_number, until)
        VALUES ('h', 0, $1, 2, 4, $2)
    """
    await stage.witness.execute(past, reader, stage.at(19 * DAY))
    await purged_at(stage, 20.5)
    assert await places(stage, reader) == [2, 4, 5, *range(13, 21)]
    await purged_at(stage, 26.5)
    assert await stage.witness.fetchval("SELECT count(*) FROM outbox_cursors_past") == 0
    assert await places(stage, reader) == [2, 4, 5, 19, 20]
    await purged_at(stage, 26.5)
    assert await places(stage, reader) == [5, 19, 20]


async def test_progress_of_readers_that_no_cursor_knows_of_goes(stage: Stage) -> None:
    reader, former, nobody = await followed(stage, days=3), uuid4(), uuid4()
    for each in (former, nobody):
        await stage.witness.execute(STEPS, each, stage.start, 3)
    await stage.witness.execute(
        "INSERT INTO outbox_cursors_past (subscription, shard, reader, first_number, last_number, until) "
        "VALUES ('h', 0, $1, 0, 3, $2)",
        *(former, stage.at(3 * DAY)),
    )
    await purged_at(stage, 4)
    assert [await places(stage, each) for each in (reader, former, nobody)] == [
        [0, 1, 2, 3],
        [0, 1, 2, 3],
        [],
    ]
    await purged_at(stage, 11)
    assert [await places(stage, each) for each in (reader, former)] == [[0, 3], []]


MOMENTS = """
SELECT position, processed_at FROM outbox_events JOIN outbox_status USING (event_id) ORDER BY position
"""


async def test_what_is_young_keeps_its_moment_and_what_is_old_is_given_no_false_one(stage: Stage) -> None:
    """S: what passed an old dead letter is forgotten; when it died is not."""
    await stage.put("dead", *map(str, range(2, 21)))
    for position in range(1, 21):
        await stage.witness.execute(
            "UPDATE outbox_events SET created_at = $1 WHERE position = $2",
            *(stage.at((position - 0.5) * DAY), position),
        )
    await followed(stage, days=20)
    await stage.witness.execute(
        "INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status, updated_at) "
        "SELECT event_id, 1, 'h', 'x', 'dead', $1 FROM outbox_events WHERE position = 1",
        stage.at(0.6 * DAY),
    )

    async def moments() -> dict[int, datetime]:
        return {row["position"]: row["processed_at"] for row in await stage.witness.fetch(MOMENTS)}

    assert await moments() == {position: stage.at(position * DAY) for position in range(1, 21)}
    await purged_at(stage, 20.5)
    assert await moments() == {
        1: stage.at(0.6 * DAY),
        **{position: stage.at(position * DAY) for position in range(14, 21)},
    }


# --- what it costs ------------------------------------------------------------------------------------

MANY = 20_000
GROW = f"""
INSERT INTO outbox_events (event_id, event_type, event_version, payload, occurred_at, created_at)
SELECT gen_random_uuid(), 'bank.noted', 1, '{{"what": "x"}}', now(), now() - interval '8 days'
FROM generate_series(1, {MANY})
"""


async def blocks_of(stage: Stage, log: Log, statement: Statement, **values: Any) -> int:
    """How many blocks it touches; it is undone."""
    text, given = log.step(statement, **values)
    transaction = stage.witness.transaction()
    await transaction.start()
    await stage.witness.execute(at_home(log.step(SETTINGS)[0], None))
    told = await stage.witness.fetchval(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {at_home(text, None)}", *given
    )
    await transaction.rollback()
    plan = json.loads(told)[0]["Plan"]
    parts = [plan, *(each for each in plan.get("Plans", []) if each["Node Type"] == "ModifyTable")]
    return sum(int(each["Shared Hit Blocks"] + each["Shared Read Blocks"]) for each in parts)


@pytest.mark.servers
async def test_what_went_costs_nothing_though_it_cannot_be_cleaned_up(
    stage: Stage, bank_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R13: while somebody's long snapshot keeps vacuum from it."""
    monkeypatch.setattr(purge_module, "RETENTION_REST_SECONDS", 0.0)
    stranger = await connected(bank_url)
    async with stranger.transaction(isolation="repeatable_read"):
        await stranger.execute("SELECT FROM outbox_events")
        await stage.drain(handler("another", Recorder(), Announced))
        await stage.witness.execute(GROW)
        log = await stage.log()
        keeper = Retention(log, 7.0)
        while keeper.purged.events < MANY:
            await keeper.step()
        await stage.put("young")
        looking: dict[str, Any] = {
            "span_max": 200_000,
            "rows_max": 2_000,
            "days": 7.0,
            "receipt_days": 7.0,
            "is_free": True,
        }
        goes_on = cast("Any", keeper).tasks[0].after
        assert await blocks_of(stage, log, PURGE_EVENTS, after=goes_on, **looking) < 100
        # What it is spared.
        assert await blocks_of(stage, log, PURGE_EVENTS, after=0, **looking) > 300
    await stranger.close()


CHURN = f"""
INSERT INTO outbox_progress (reader, number, position, server, snapshot, recorded_at)
SELECT reader, number + step, position, server, snapshot, recorded_at + step * interval '0.1 second'
FROM (SELECT * FROM outbox_progress ORDER BY recorded_at DESC LIMIT 1) AS last, generate_series(1, {MANY}) AS step
"""
PAGE = """
SELECT * FROM outbox_events JOIN outbox_status USING (event_id) ORDER BY position DESC LIMIT 20
"""


@pytest.mark.servers
async def test_what_went_makes_neither_reading_nor_progress_dearer(stage: Stage, bank_url: str) -> None:
    """R13: events and places of days, all of them gone, and nothing cleaned up."""
    stranger = await connected(bank_url)
    async with stranger.transaction(isolation="repeatable_read"):
        await stranger.execute("SELECT FROM outbox_events")
        await stage.put(*map(str, range(20)))
        await stage.drain(handler("h", Recorder()))
        before = await costs(stage)
        await stage.witness.execute(GROW)
        await stage.witness.execute(CHURN)
        await stage.drain(handler("h", Recorder()))
        found = await purged_at(stage, 8)
        assert (found.events, found.places) >= (MANY, MANY)
        await stage.put(*map(str, range(20)))
        await stage.drain(handler("h", Recorder()))
        after = await costs(stage)
    await stranger.close()
    assert {what: (before[what], after[what]) for what in after if after[what] > 2 * before[what] + 100} == {}


async def costs(stage: Stage) -> dict[str, int]:
    """How many blocks are touched by what relays, and who looks, ask most."""
    log, [row] = await stage.log(), await stage.witness.fetch(WHERE)
    place = {"position": row["position"], "snapshot": row["snapshot"], "floor": 0}
    asked = {
        "events_max": 100,
        "look_max": 1_000,
        "bytes_max": 2**24,
        "late_snapshot": None,
        "late_max": 100,
        "late_bytes_max": 2**24,
    }
    on = read(queue=False, types=False, shards=False)
    take = {"names": ["h"] * 32, "shards": list(range(32))}
    return {
        "read": await blocks_of(stage, log, on, ordered=["h"], source=None, **place, **asked),
        "take": await blocks_of(stage, log, TAKE, **take),
        "a page of status": await blocks_of(stage, log, Statement(PAGE)),
        "where it stands": await blocks_of(stage, log, Statement("SELECT * FROM {outbox_cursor_places}")),
    }


WHERE = "SELECT position, snapshot::text AS snapshot FROM outbox_cursor_places LIMIT 1"
