"""What a relay holds is its own while its lease lives, and nobody's a moment later (R1, R3)."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import attrs
import pytest

from outbox_kernel.infrastructure.outbox.delivery import Outcome
from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
from outbox_kernel.infrastructure.outbox.sql import leases
from outbox_kernel.infrastructure.outbox.sql.fragments import SHARDS
from outbox_kernel.infrastructure.relay.cursor import Reader
from outbox_kernel.infrastructure.relay.deliveries import Deliveries
from outbox_kernel.infrastructure.relay.lease import EXIT_STANDSTILL, LeaseLost
from outbox_kernel.infrastructure.relay.log import Log, Wanted
from outbox_kernel.infrastructure.relay.starting import resign
from tests.domain import Announced
from tests.relaying import LEASE_SECONDS, Recorder, Stage, carrying, handler
from tests.serving import LONG, at_the_gate, serving
from tests.waiting import until

LATER = LEASE_SECONDS + 1
EVERYTHING = Wanted(None, (), (), None, [], 10)
# All that a relay writes, but for receipts, which stand in the handler's transaction.
WRITTEN = """
SELECT (SELECT json_agg(each ORDER BY reader, number) FROM outbox_progress AS each)::text,
       (SELECT json_agg(each ORDER BY subscription, shard) FROM outbox_cursors AS each)::text,
       (SELECT json_agg(each ORDER BY event_id, handler) FROM outbox_deliveries AS each)::text,
       (SELECT json_agg(each) FROM outbox_receipts AS each)::text
"""


@attrs.define(eq=False)
class Owner:
    """A relay that owns all cursors of one subscription, and does what the test says."""

    log: Log
    reader: Reader

    async def read(self) -> list[LoggedEvent]:
        """All that stands behind its place."""
        place = self.reader.place
        found = await self.log.read(place, place.server, EVERYTHING)
        self.reader.begin(1, found.end)
        return found.rows

    def later(self, stage: Stage) -> Owner:
        """The same relay when its lease has run out."""
        return Owner(stage.log_under(self.log.lease, at=LATER), self.reader)


async def owner(stage: Stage, *, at: float = 0) -> Owner:
    """It takes what nobody owns, and is never heard of again."""
    log = await stage.log(at=at)
    [reader] = await log.take(("h", shard) for shard in range(SHARDS))
    return Owner(log, reader)


async def subscribed(stage: Stage, seen: Recorder | None = None) -> None:
    """A relay has carried the handler, and has left in order."""
    await stage.drain(handler("h", seen or Recorder()))


async def takeovers(stage: Stage) -> set[int]:
    return {row[0] for row in await stage.witness.fetch("SELECT takeovers FROM outbox_cursors")}


async def test_what_a_vanished_relay_held_is_taken_over_when_its_lease_has_run_out(stage: Stage) -> None:
    """R3: not before, and nothing is charged for it."""
    seen = Recorder()
    await subscribed(stage)
    await stage.put("a", "b")
    await owner(stage)
    assert await stage.take_over(at=LEASE_SECONDS - 1) == (0, 0)
    await stage.drain(handler("h", seen), at=LEASE_SECONDS - 1)
    assert seen.seen == []
    assert await stage.take_over(at=LATER) == (SHARDS, 0)
    assert await takeovers(stage) == {1}
    await stage.drain(handler("h", seen), at=LATER)
    assert seen.seen == ["a", "b"]
    assert (await stage.deliveries(), await takeovers(stage)) == ({}, {0})


async def test_a_renewed_lease_is_not_taken_over(stage: Stage) -> None:
    """R3: and one that has run out cannot be renewed."""

    async def renewed(*, at: float) -> bool:
        then = stage.log_under(log.lease, at=at)
        return bool(await then.run(leases.RENEW, lease_seconds=LEASE_SECONDS))

    await subscribed(stage)
    log = (await owner(stage)).log
    assert await renewed(at=LEASE_SECONDS - 1)
    assert await stage.take_over(at=LATER) == (0, 0)
    assert not await renewed(at=3 * LEASE_SECONDS)
    assert await stage.take_over(at=3 * LEASE_SECONDS) == (SHARDS, 0)


async def test_a_relay_that_lost_its_lease_takes_nothing(stage: Stage) -> None:
    """R3: no event, no cursor, no delivery; it is told so."""
    await stage.put("a")
    await stage.drain(handler("h", Recorder().fail("a")))
    stale = (await owner(stage)).later(stage)
    await stage.take_over(at=LATER)
    with pytest.raises(LeaseLost):
        await stale.read()
    assert await stale.log.take(("h", shard) for shard in range(SHARDS)) == []
    with pytest.raises(LeaseLost):
        await Deliveries(stale.log, carrying("h")).take()
    assert await stage.deliveries() == {("a", "h"): "waiting"}


@pytest.mark.parametrize("now_owned_by", ["nobody yet taken over", "nobody", "another"])
async def test_a_relay_that_lost_its_lease_writes_nothing_stale(stage: Stage, now_owned_by: str) -> None:
    """R3: no progress, no delivery, and no cursor goes on elsewhere."""
    await subscribed(stage)
    await stage.put("a", "b")
    owned = await owner(stage)
    row, _ = await owned.read()
    if now_owned_by != "nobody yet taken over":
        await stage.take_over(at=LATER)
    if now_owned_by == "another":
        await owner(stage, at=LATER)
    before = await stage.witness.fetchrow(WRITTEN)
    reader, log = owned.reader, owned.later(stage).log
    dead = Outcome(row, "h", "k", "dead", 1, on_dead="continue")
    for writing in (
        log.move([(reader, list(reader.batches))], []),
        log.move([(reader, list(reader.batches))], [dead]),
        log.give(reader, reader.shards, log.lease.relay),
        log.join(reader, Reader(log.lease.relay, "h", frozenset(), reader.place)),
    ):
        with pytest.raises(LeaseLost):
            await writing
    assert await stage.witness.fetchrow(WRITTEN) == before


@pytest.mark.parametrize("is_taken_over", [False, True])
async def test_a_relay_that_lost_its_lease_settles_no_delivery(stage: Stage, is_taken_over: bool) -> None:
    """R3: nor gives it back, nor writes the receipt of a dead one."""
    await stage.put("a")
    await stage.drain(handler("h", Recorder().fail("a")))
    log, row = await leased(stage, at=10)
    if is_taken_over:
        await stage.take_over(at=10 + LATER)
    before = await stage.witness.fetchrow(WRITTEN)
    stale = stage.log_under(log.lease, at=10 + LATER)
    settling, giving_back = Deliveries(stale, {}), Deliveries(stale, {})
    settling.settle(Outcome(row, "h", row.turn, "dead", 5, on_dead="continue"))
    giving_back.give_back(row, "h")
    for each in (settling, giving_back):
        with pytest.raises(LeaseLost):
            await each.write()
    assert await stage.witness.fetchrow(WRITTEN) == before


async def leased(stage: Stage, *, at: float) -> tuple[Log, Any]:
    """A relay that has one delivery, and is never heard of again."""
    log, taken = await stage.log(at=at), []
    subscribers = carrying("h")
    subscribers["h"].take_turn = lambda turn: taken.extend(turn.works)
    assert await Deliveries(log, subscribers).take() == 1
    [work] = taken
    return log, work.row


async def test_a_relay_that_resigns_leaves_nothing_to_take_over(stage: Stage) -> None:
    """R11: nothing is charged, and no takeover is counted."""
    await subscribed(stage)
    log = (await owner(stage)).log
    relay = stage.relay(handler("h", Recorder()))
    await resign(relay._ground, log.lease)  # noqa: SLF001 - which is not begun
    assert await stage.owners("h") == {None: SHARDS}
    assert await stage.take_over(at=LATER) == (0, 0)
    assert await takeovers(stage) == {0}


async def test_a_relay_that_was_paused_past_its_lease_goes_on_under_the_next(stage: Stage) -> None:
    """R3, R12: with what it had begun, too."""
    begun: list[str] = []

    async def act(event: Any) -> None:
        begun.append(event.what)
        if len(begun) == 1:
            await until(is_taken_over)

    async def is_taken_over() -> bool:
        # Who sweeps passes over a row that somebody holds, as each statement of the relay's does while it is under way.
        return (await stage.take_over(at=LATER))[0] > 0

    await stage.put("a")
    relay = stage.relay(handler("h", act))
    assert (await relay.run_until_idle()).delivered == 1
    assert begun == ["a", "a"]
    assert await stage.events() == {"a": "delivered"}


@pytest.mark.parametrize("table", ["outbox_cursors", "outbox_deliveries"])
async def test_what_another_relay_takes_while_a_sweep_waits_for_it_stays_with_it(
    stage: Stage, table: str
) -> None:
    """R3: the sweep takes from the lease that it saw dead, not from the one it finds when the row is free."""
    await stage.put("a")
    await stage.drain(handler("h", Recorder().fail("a")))
    if table == "outbox_cursors":
        await owner(stage, at=10)
    else:
        await leased(stage, at=10)
    before = await stage.witness.fetch(f"SELECT takeovers FROM {table}")
    async with stage.engine.connect() as connection:
        holder: Any = (await connection.get_raw_connection()).driver_connection
        await holder.execute(f"BEGIN; SELECT FROM {table} FOR UPDATE")
        sweep = asyncio.create_task(stage.take_over(at=10 + LATER))
        await until(lambda: a_sweep_waits(stage))
        fresh = (await stage.log(at=10 + LATER)).lease
        await holder.execute(f"UPDATE {table} SET lease_relay = $1, lease_epoch = 1", fresh.relay)
        await holder.execute("COMMIT")
        await sweep
    assert await stage.witness.fetch(f"SELECT takeovers FROM {table}") == before
    owners = await stage.witness.fetch(f"SELECT DISTINCT lease_relay FROM {table}")
    assert [row["lease_relay"] for row in owners] == [fresh.relay]


async def a_sweep_waits(stage: Stage) -> bool:
    return bool(
        await stage.witness.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%takeovers + 1%'"
        )
    )


async def test_a_dead_relay_whose_row_is_held_keeps_nobody_from_taking_over_from_others(stage: Stage) -> None:
    """R3, R12: as by its own statement, when it was stopped while the answer was on its way."""
    await subscribed(stage)
    stopped, gone = await stage.log(), await stage.log()
    await stopped.take([("h", 0)])
    await gone.take([("h", 1)])
    async with stage.engine.connect() as connection:
        holder: Any = (await connection.get_raw_connection()).driver_connection
        await holder.execute("BEGIN")
        await holder.execute("SELECT FROM outbox_relays WHERE id = $1 FOR SHARE", stopped.lease.relay)
        assert await stage.take_over(at=LATER) == (1, 0)
        assert await stage.owners("h") == {stopped.lease.relay: 1, None: SHARDS - 1}
        await holder.execute("COMMIT")
    assert await stage.take_over(at=LATER) == (1, 0)


async def test_an_outcome_whose_answer_was_lost_is_not_written_over_the_next_attempt(stage: Stage) -> None:
    """R4, R12: the delivery was taken anew meanwhile, and runs."""
    await stage.put("a")
    await stage.drain(handler("h", Recorder().fail("a")))
    log, row = await leased(stage, at=10)
    subscribers = carrying("h")
    subscribers["h"].take_turn = lambda _: None
    deliveries = Deliveries(log, subscribers)
    failed = Outcome(row, "h", row.turn, "waiting", row.attempts + 1, error_message="again")
    deliveries.settle(failed)
    await deliveries.write()
    deliveries.look_everywhere()
    assert await deliveries.take() == 1
    deliveries.settle(failed)
    await deliveries.write()
    assert (await stage.delivery("a", "h"))["attempts"] == 2
    assert await stage.deliveries() == {("a", "h"): "leased"}
    deliveries.settle(Outcome(row, "h", row.turn, "done", 2))
    await deliveries.write()
    assert await stage.deliveries() == {("a", "h"): "done"}


async def test_the_log_names_what_was_taken_over(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """O4."""
    await subscribed(stage)
    await owner(stage)
    with caplog.at_level(logging.WARNING):
        await stage.take_over(at=LATER)
    [record] = [each for each in caplog.records if "took over" in each.message]
    assert (record.__dict__["cursors"], record.__dict__["deliveries"]) == (SHARDS, 0)


async def test_a_relay_that_ends_before_its_next_lease_is_there_leaves_none_of_the_former(
    stage: Stage,
) -> None:
    """R11: a registration that nobody answered may not have arrived; others would wait for what is gone."""
    log = await stage.log()
    await stage.log_under(attrs.evolve(log.lease, epoch=log.lease.epoch + 1)).run(leases.RESIGN)
    assert await stage.witness.fetchval("SELECT count(*) FROM outbox_relays") == 0


async def test_who_blocks_the_loop_has_the_time_for_it_that_it_may_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R3: and not the time of another one, which waits beside it for something that may take an hour."""
    exits: list[int] = []
    has_ended, has_blocked = threading.Event(), asyncio.Event()
    patient, go, begun, _ = at_the_gate()

    def end(code: int) -> None:
        exits.append(code)
        has_ended.set()

    async def block(event: Any) -> None:
        await begun.wait()
        exits.append(has_ended.wait(LONG))
        has_blocked.set()

    monkeypatch.setattr("os._exit", end)
    monkeypatch.setattr("logging.shutdown", lambda: None)
    monkeypatch.setattr("outbox_kernel.infrastructure.relay.shift.GRACE_SECONDS", 1.0)
    blocking = handler("blocks", block, Announced, timeout_seconds=1.0)
    async with serving(stage.relay(attrs.evolve(patient, timeout_seconds=3600.0), blocking, at=None)):
        await stage.put("waits")
        await stage.put("blocks", event_type="bank.announced")
        await has_blocked.wait()
        go.set()
    assert exits[:2] == [EXIT_STANDSTILL, True]
