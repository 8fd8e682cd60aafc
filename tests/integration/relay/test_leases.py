"""What a relay holds is its own while its lease lives, and nobody's a moment later (R1, R3, R7b)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from uuid import uuid4

import pytest
from outbox_kernel.infrastructure.relay.work import Outcome

from outbox_kernel.infrastructure.relay.lease import Lease, Store
from outbox_kernel.infrastructure.relay.roster import Ability
from tests.relaying import LEASE_SECONDS, Recorder, Stage, handler
from tests.waiting import until

LATER = LEASE_SECONDS + 1
SUSPECT = 2


async def test_what_a_vanished_relay_held_is_taken_over_when_its_lease_has_run_out(stage: Stage) -> None:
    """R3: not before, and nothing is charged for it."""
    seen = Recorder()
    await stage.put("a", "b", of=uuid4())
    await stage.claimer_that_vanishes()
    assert await stage.take_over(at=LEASE_SECONDS - 1) == (0, 0)
    await stage.drain(handler("h", seen), at=LEASE_SECONDS - 1)
    assert seen.seen == []
    assert await stage.take_over(at=LATER) == (2, 0)
    await stage.drain(handler("h", seen), at=LATER)
    assert seen.seen == ["a", "b"]
    row = await stage.event("a")
    assert (row["status"], row["takeovers"], row["retry_count"]) == ("delivered", 1, 0)


async def test_a_renewed_lease_is_not_taken_over(stage: Stage) -> None:
    """R3."""
    await stage.put("a")
    lease = await stage.claimer_that_vanishes()
    assert await Store(None, stage.at(LEASE_SECONDS - 1)).renew(stage.line(), lease, LEASE_SECONDS)
    assert await stage.take_over(at=LATER) == (0, 0)
    assert not await Store(None, stage.at(3 * LEASE_SECONDS)).renew(stage.line(), lease, LEASE_SECONDS)
    assert await stage.take_over(at=3 * LEASE_SECONDS) == (1, 0)


async def test_a_relay_that_lost_its_lease_claims_nothing(stage: Stage) -> None:
    """R3."""
    lease = await stage.claimer_that_vanishes()
    await stage.put("a")
    rows, scan = await Store(None, stage.at(LATER)).claim_events(
        stage.line(), lease, begin=0, lowest=0, limit=10
    )
    assert (rows, scan.held) == ([], False)
    deliveries, other = await Store(None, stage.at(LATER)).claim_deliveries(
        stage.line(),
        lease,
        [Ability("h", "bank.noted", 1)],
        after={},
        heads_max=10,
        turns_max=10,
        turn_max=10,
    )
    assert (deliveries, other.held) == ([], False)


@pytest.mark.parametrize("taken_again", [False, True])
async def test_a_relay_that_lost_its_lease_writes_nothing_stale(stage: Stage, taken_again: bool) -> None:
    """R3: no mark, no delivery, no release, whether another holds the event now or nobody does."""
    await stage.put("a", "b")
    stale = await stage.claimer_that_vanishes()
    await stage.take_over(at=LATER)
    if taken_again:
        await stage.claimer_that_vanishes(at=LATER)
    before = await stage.witness.fetch("SELECT * FROM outbox_events ORDER BY position")
    store, line = Store(None, stage.at(LATER)), stage.line()
    await store.mark(line, stale, [1], [(2, [Outcome("h", "k", "waiting", 1)])])
    await store.release_events(line, stale, [1, 2])
    assert await stage.witness.fetch("SELECT * FROM outbox_events ORDER BY position") == before
    assert await stage.deliveries() == {}


async def test_a_relay_that_lost_its_lease_settles_no_delivery(stage: Stage) -> None:
    """R3: nor writes the receipt of a dead one."""
    seen = Recorder().fail("a")
    await stage.put("a")
    await stage.drain(handler("h", seen))
    store, line, stale = Store(None, stage.at(10)), stage.line(), Lease()
    await store.register(line, stale, LEASE_SECONDS, (1, "gone", "1", "{}", "{}", True))
    [row], _ = await store.claim_deliveries(
        *(line, stale, [Ability("h", "bank.noted", 1)]),
        after={},
        heads_max=10,
        turns_max=10,
        turn_max=10,
    )
    await stage.take_over(at=10 + LATER)
    before = await stage.witness.fetch("SELECT * FROM outbox_deliveries")
    await store.settle(line, stale, [(row, Outcome("h", "", "dead", 1, on_dead="continue"))])
    await store.release_deliveries(line, stale, [(row.event_id, "h")])
    assert await stage.witness.fetch("SELECT * FROM outbox_deliveries") == before
    assert await stage.events() == {"a": "open"}
    assert await stage.receipts() == []


async def test_a_relay_that_resigns_leaves_nothing_to_take_over(stage: Stage) -> None:
    """R11: nothing is charged, and no takeover is counted."""
    await stage.put("a")
    lease = await stage.claimer_that_vanishes()
    await Store(None, stage.at(0)).resign(stage.line(), lease)
    assert await stage.take_over(at=0) == (0, 0)
    row = await stage.event("a")
    assert (row["status"], row["takeovers"]) == ("pending", 0)


async def test_a_relay_that_was_paused_past_its_lease_goes_on_under_the_next(stage: Stage) -> None:
    """R3, R12."""
    seen = Recorder()
    await stage.put("a")
    relay = stage.relay(handler("h", seen))
    await relay.run_once()
    await stage.take_over(at=LATER)
    await stage.put("b")
    assert (await relay.run_once()).delivered == 1
    assert seen.seen == ["a", "b"]
    assert await stage.witness.fetchval("SELECT epoch FROM outbox_relays") == 2


async def test_a_lease_that_ran_out_with_nobody_to_take_over_is_replaced_too(stage: Stage) -> None:
    """R3, R12."""
    seen = Recorder()
    relay = stage.relay(handler("h", seen))
    await relay.run_once()
    await stage.witness.execute("UPDATE outbox_relays SET expires_at = clock_timestamp()")
    await stage.put("a")
    await relay.run_once()
    assert seen.seen == ["a"]


@pytest.mark.parametrize("table", ["outbox_events", "outbox_deliveries"])
async def test_what_another_relay_claims_while_a_sweep_waits_for_it_stays_with_it(
    stage: Stage, table: str
) -> None:
    """R3: the sweep takes from the lease that it saw dead, not from the one it finds when the row is free."""
    await stage.put("a")
    if table == "outbox_events":
        await stage.claimer_that_vanishes()
    else:
        await stage.drain(handler("h", Recorder().fail("a")))
        await claim_deliveries(stage, Lease(), at=10)
    later = 10 + LATER
    async with stage.engine.connect() as connection:
        holder: Any = (await connection.get_raw_connection()).driver_connection
        await holder.execute(f"BEGIN; SELECT FROM {table} FOR UPDATE")
        sweep = asyncio.create_task(stage.take_over(at=later))
        await until(lambda: a_sweep_waits(stage))
        fresh, line = Lease(), stage.line()
        await Store(None, stage.at(later)).register(
            line, fresh, LEASE_SECONDS, (1, "new", "1", "{}", "{}", True)
        )
        await holder.execute(f"UPDATE {table} SET lease_relay = $1, lease_epoch = 1", fresh.relay)
        await holder.execute("COMMIT")
        assert await sweep == (0, 0)
    row = await stage.witness.fetchrow(f"SELECT status, lease_relay, takeovers FROM {table}")
    assert tuple(row) == ("leased", fresh.relay, 0)


async def a_sweep_waits(stage: Stage) -> bool:
    return bool(
        await stage.witness.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%takeovers + 1%'"
        )
    )


async def test_a_dead_relay_whose_row_is_held_keeps_nobody_from_taking_over_from_others(stage: Stage) -> None:
    """R3, R12: as by its own claim, when it was stopped while the answer was on its way."""
    await stage.put("a", "b")
    stopped = await stage.claimer_that_vanishes(limit=1)
    await stage.claimer_that_vanishes(limit=1)
    async with stage.engine.connect() as connection:
        holder: Any = (await connection.get_raw_connection()).driver_connection
        await holder.execute("BEGIN")
        await holder.execute("SELECT FROM outbox_relays WHERE id = $1 FOR SHARE", stopped.relay)
        assert await stage.take_over(at=LATER) == (1, 0)
        assert await stage.events() == {"a": "leased", "b": "pending"}
        await holder.execute("COMMIT")
    assert await stage.take_over(at=LATER) == (1, 0)


async def test_an_outcome_whose_answer_was_lost_is_not_written_over_the_next_attempt(stage: Stage) -> None:
    """R4, R12: the delivery was claimed anew meanwhile, under the same lease, and runs."""
    await stage.put("a")
    await stage.drain(handler("h", Recorder().fail("a")))
    lease, store, line = Lease(), Store(None, stage.at(10)), stage.line()
    [row] = await claim_deliveries(stage, lease, at=10)
    failed = [(row, Outcome("h", "", "waiting", row.attempts + 1, error_message="again"))]
    assert await store.settle(line, lease, failed) == 1
    assert len(await claim_deliveries(stage, lease, at=10)) == 1
    assert await store.settle(line, lease, failed) == 0
    assert await stage.deliveries() == {("a", "h"): "leased"}
    assert await store.settle(line, lease, [(row, Outcome("h", "", "done", 2))]) == 1


# --- what kills the process ------------------------------------------------------------------------------


async def claim_deliveries(
    stage: Stage, lease: Lease, *, at: float, suspects: bool = False, on_dead: str = "park"
) -> list[Any]:
    """What a relay takes at that time."""
    store, line = Store(None, stage.at(at)), stage.line()
    await store.register(line, lease, LEASE_SECONDS, (1, "gone", "1", "{}", "{}", True))
    rows, _ = await store.claim_deliveries(
        *(line, lease, [Ability("h", "bank.noted", 1, on_dead=on_dead)]),
        after={},
        heads_max=10,
        turns_max=10,
        turn_max=10,
        suspects=suspects,
    )
    return rows


async def vanish_with_deliveries(
    stage: Stage, *, at: float, suspects: bool = False, on_dead: str = "park"
) -> int:
    """A relay takes deliveries and is never heard of again; return how many."""
    rows = await claim_deliveries(stage, Lease(), at=at, suspects=suspects, on_dead=on_dead)
    await stage.take_over(at=at + LATER)
    return len(rows)


async def test_an_event_taken_over_twice_runs_as_a_suspect(stage: Stage) -> None:
    """R7b: alone, after all else; and it is delivered if it is innocent."""
    seen = Recorder()
    await stage.put("suspect", of=uuid4())
    for n in range(SUSPECT):
        await stage.claimer_that_vanishes(at=n * LATER)
        await stage.take_over(at=(n + 1) * LATER)
    alone: list[list[object]] = []

    async def act(event: object) -> None:
        alone.append(
            await stage.witness.fetch(
                "SELECT handler FROM outbox_deliveries WHERE alone AND status = 'leased'"
            )
        )
        await seen(event)

    await stage.put("x", "y", of=uuid4())
    await stage.drain(handler("h", act), at=40)
    assert seen.seen == ["x", "y", "suspect"]
    assert [len(each) for each in alone] == [0, 0, 1]
    assert set((await stage.events()).values()) == {"delivered"}
    assert (await stage.delivery("suspect", "h"))["attempts"] == 0


async def test_what_runs_alone_when_three_relays_vanish_is_dead(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """R7b: reason "kills the process"; no other event or handler is charged."""
    bad = Recorder().fail("a").fail("b")
    good = Recorder()
    await stage.put("a", "b", of=uuid4())
    await stage.drain(handler("h", bad), handler("good", good))
    await vanish_with_deliveries(stage, at=100)
    await vanish_with_deliveries(stage, at=200)
    assert await stage.deliveries() == {("a", "h"): "waiting", ("b", "h"): "waiting"}
    for n in range(3):
        assert await vanish_with_deliveries(stage, at=300 + n * 100) == 0
        assert await vanish_with_deliveries(stage, at=350 + n * 100, suspects=True) == 1
    first, second = await stage.delivery("a", "h"), await stage.delivery("b", "h")
    assert (first["status"], first["attempts"]) == ("dead", 4)
    assert (second["status"], second["attempts"]) == ("waiting", 0)
    row = await stage.event("a")
    assert (row["status"], row["error_message"]) == ("dead", "kills the process")
    assert await stage.events() == {"a": "dead", "b": "open"}


async def test_what_kills_the_process_lets_others_pass_if_its_handler_says_so(stage: Stage) -> None:
    """R6, R7b: `on_dead="continue"` holds for what never came to an outcome, too."""
    await stage.put("a", of=uuid4())
    await stage.drain()
    await stage.witness.execute(
        """
        INSERT INTO outbox_deliveries (event_id, position, handler, order_key, takeovers)
        SELECT event_id, position, 'h', aggregate_type || ':' || aggregate_id, 2 FROM outbox_events
        """
    )
    await stage.witness.execute("UPDATE outbox_events SET status = 'open'")
    for n in range(3):
        assert await vanish_with_deliveries(stage, at=n * 100, suspects=True, on_dead="continue") == 1
    assert await stage.witness.fetchval("SELECT status || settled FROM outbox_deliveries") == "deadtrue"
    assert await stage.receipts() == [("a", "h", "skipped")]


async def test_what_dies_with_its_relays_is_a_critical_line_in_the_log(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """R7, R7b: as every death is."""
    await stage.put("a")
    await stage.drain(handler("h", Recorder().fail("a")))
    await stage.witness.execute("UPDATE outbox_deliveries SET takeovers = 4")
    await claim_deliveries(stage, Lease(), at=10, suspects=True)
    relay = stage.relay(at=10 + LATER)
    work = await relay._start()  # noqa: SLF001 - what it does every poll interval
    await relay._upkeep(work).take_over()  # noqa: SLF001 - as above
    [record] = [each for each in caplog.records if each.levelno == logging.CRITICAL]
    assert (record.__dict__["handler"], record.__dict__["reason"]) == ("h", "kills the process")


async def test_a_suspect_behind_many_dead_letters_is_found(stage: Stage) -> None:
    """R4, R7b: the scan that looks for it begins where it was seen."""
    seen = Recorder().fail("a")
    await stage.put("a")
    await stage.drain(handler("h", seen))
    await stage.witness.execute("UPDATE outbox_deliveries SET takeovers = 2, order_key = 'zz'")
    await stage.witness.execute(
        """
        INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status)
        SELECT gen_random_uuid(), -n, 'h', 'a' || n, 'dead' FROM generate_series(1, 1200) AS n
        """
    )
    await stage.drain(handler("h", seen), at=10)
    assert seen.seen == ["a", "a"]


async def test_a_suspect_that_fails_waits_like_any_other(stage: Stage) -> None:
    """R7, R7b."""
    seen = Recorder().fail("a", times=2)
    await stage.put("a", "b")
    await stage.drain(handler("h", seen))
    await stage.witness.execute("UPDATE outbox_deliveries SET takeovers = 2")
    for at, runs in ((2, 2), (2.5, 2), (10, 3)):
        await stage.drain(handler("h", seen), at=at)
        assert (at, seen.seen.count("a")) == (at, runs)
    assert (await stage.delivery("a", "h"))["attempts"] == 2
    assert set((await stage.events()).values()) == {"delivered"}


async def test_the_log_names_what_was_taken_over(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """O4."""
    await stage.put("a")
    await stage.claimer_that_vanishes()
    relay = stage.relay(handler("h", Recorder()), at=LATER)
    with caplog.at_level(logging.WARNING):
        await relay.run_once()
        work = await relay._start()  # noqa: SLF001 - what it does every poll interval
        await relay._upkeep(work).take_over()  # noqa: SLF001 - as above
    [record] = [each for each in caplog.records if "took over" in each.message]
    assert record.__dict__["events"] == 1
