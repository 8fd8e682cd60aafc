"""What kills relays is found, and alone is charged for it (R7b)."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest

from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.outbox.sql.fragments import SHARDS
from outbox_kernel.infrastructure.relay.deliveries import Deliveries
from outbox_kernel.infrastructure.relay.lease import Lease
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.infrastructure.relay.retention import Retention
from outbox_kernel.infrastructure.relay.settings import CHANNEL
from outbox_kernel.infrastructure.relay.subscription import Renaming
from outbox_kernel.infrastructure.relay.takeover import Upkeep
from outbox_kernel.kernel import RetrySchedule
from outbox_kernel.kernel.errors import Unavailable
from tests.domain import Announced
from tests.relay_process import relay_process
from tests.relaying import LEASE_SECONDS, Recorder, Stage, carrying, handler
from tests.serving import all_delivered, at_the_gate, serving
from tests.waiting import until

LATER = LEASE_SECONDS + 1
KILLS = "kills the process"
# So often relays die over what nobody suspects, and then over what runs alone.
DEATHS = 2 + 3


async def vanish(stage: Stage, *, at: float) -> None:
    """A relay owns the cursors of "h" and is never heard of again; another finds out."""
    await stage.owner_that_vanishes("h", at=at)
    await stage.take_over(at=at + LATER)


async def deliveries_of(
    stage: Stage, *, at: float, on_dead: str = "park", kind: str = "handler"
) -> Deliveries:
    """What a relay that carries "h" takes at that time."""
    subscribers = carrying("h")
    subscribers["h"].carried.on_dead, subscribers["h"].carried.kind = on_dead, kind
    subscribers["h"].take_turn = lambda _: None
    return Deliveries(await stage.log(at=at), subscribers)


async def vanish_with_deliveries(stage: Stage, *, at: float) -> int:
    """A relay takes deliveries and is never heard of again; return how many."""
    taken = await (await deliveries_of(stage, at=at)).take()
    await stage.take_over(at=at + LATER)
    return taken


async def vanish_with_a_suspect(stage: Stage, *, at: float, on_dead: str = "park") -> int:
    """A relay runs one alone and is never heard of again; return how many."""
    taken = await (await deliveries_of(stage, at=at, on_dead=on_dead)).take_suspects()
    await stage.take_over(at=at + LATER)
    return taken


# --- who is a suspect ------------------------------------------------------------------------------------


async def test_what_two_relays_died_over_is_run_one_by_one_while_nothing_else_is(stage: Stage) -> None:
    """R7b: of handlers that they did not die over nothing is; and who is innocent is delivered, uncharged."""
    at_work: list[str] = []
    found: list[tuple[str, list[str], int]] = []

    async def act(event: Any) -> None:
        at_work.append(event.what)
        alone = await stage.witness.fetchval("SELECT count(*) FROM outbox_deliveries WHERE alone")
        found.append((event.what, list(at_work), alone))
        at_work.remove(event.what)

    handlers = handler("h", act), handler("other", Recorder(), Announced)
    await stage.drain(*handlers)
    await stage.put("a", "b", of=uuid4())
    await stage.put("c")
    for at in (0.0, LATER):
        await vanish(stage, at=at)
    await stage.put("x", event_type="bank.announced")
    await stage.drain(*handlers, at=100)
    assert sorted(found) == [(what, [what], 1) for what in "abc"]
    assert set((await stage.deliveries()).values()) == {"done"}
    assert {name for _, name in await stage.deliveries()} == {"h"}
    assert await stage.witness.fetchval("SELECT sum(attempts) FROM outbox_deliveries") == 0


async def test_what_comes_after_what_two_relays_died_over_is_no_suspect(stage: Stage) -> None:
    """R7b: once the cursor has moved."""
    h = handler("h", Recorder())
    await stage.drain(h)
    await stage.put("a")
    for at in (0.0, LATER):
        await vanish(stage, at=at)
    await stage.drain(h, at=100)
    await stage.put("b")
    await stage.drain(h, at=100)
    assert await stage.deliveries() == {("a", "h"): "done"}
    assert await stage.events() == {"a": "delivered", "b": "delivered"}


async def test_a_relay_that_moved_its_cursor_did_not_die_over_what_stood_behind_it(stage: Stage) -> None:
    """R7b: so two such crashes make no suspects."""
    h = handler("h", Recorder())
    await stage.drain(h)
    for at in (0.0, LATER):
        await stage.put("moved over")
        async with stage.relay(h, at=at)._shift_begun(takes_all=True) as shift:  # noqa: SLF001 - it vanishes
            await shift.go_round()
        await stage.take_over(at=at + LATER)
    assert await stage.witness.fetchval("SELECT max(takeovers) FROM outbox_cursors") == 1
    await stage.put("a")
    await stage.drain(h, at=100)
    assert await stage.deliveries() == {}


async def test_what_is_given_over_before_it_has_moved_is_as_suspect_as_before(stage: Stage) -> None:
    """R1, R7b: or a fleet in which whoever dies comes back at once would never find out."""
    await stage.drain(handler("h", Recorder()))
    await vanish(stage, at=0)
    log, other = await stage.log(at=LATER), await stage.log(at=LATER)
    every = [("h", shard) for shard in range(SHARDS)]
    [reader] = await log.take(every)
    half = frozenset(range(SHARDS // 2))
    await log.give(reader, half, uuid4())
    assert [(each.shards, each.takeovers) for each in await other.take(every)] == [(half, 1)]


async def test_readers_that_meet_are_as_suspect_as_each_was(stage: Stage) -> None:
    """R2b, R7b."""
    h = handler("h", Recorder())
    await stage.drain(h)
    await stage.put("a", of=UUID(int=SHARDS - 1))
    log = await stage.log()
    [reader] = await log.take(("h", shard) for shard in range(SHARDS))
    await log.give(reader, frozenset([SHARDS - 1]), uuid4())
    await log.give(reader, frozenset(range(SHARDS - 1)), uuid4())
    await stage.witness.execute("UPDATE outbox_cursors SET takeovers = 2 WHERE shard = $1", SHARDS - 1)
    async with stage.relay(h)._shift_begun(takes_all=True) as shift:  # noqa: SLF001 - to lead it by the hand
        assert len(shift.subscribers["h"].readers) == 2
        await shift.ownership.join()
        assert len(shift.subscribers["h"].readers) == 1
        await shift.go_round()
    assert set(await stage.deliveries()) == {("a", "h")}


async def test_a_publisher_is_suspected_of_nothing(stage: Stage) -> None:
    """R7b: to publish runs nobody's code."""
    await stage.put("a")
    await stage.drain(handler("h", Recorder().fail("a")))
    await stage.witness.execute("UPDATE outbox_deliveries SET takeovers = 7")
    deliveries = await deliveries_of(stage, at=10, kind="publisher")
    assert await deliveries.take() == 1
    assert not deliveries.suspects


async def test_what_stands_still_does_not_go_on_beside_what_runs_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R7, R7b: a probe that killed the process would be charged to whom it did not begin with."""
    quick = RetrySchedule((0.01,), jitter_share=0)
    monkeypatch.setattr("outbox_kernel.infrastructure.relay.outages.EXPONENTIAL", quick)
    h, go, begun, _ = at_the_gate()
    asked: list[str] = []

    async def ask(event: Any) -> None:
        asked.append(event.what)
        raise Unavailable("payments")

    async def asks_again() -> bool:
        return len(asked) > at_most

    await stage.drain(h, handler("shop", ask, Announced))
    await stage.put("a")
    for at in (0.0, LATER):
        await vanish(stage, at=at)
    relay = stage.relay(h, handler("shop", ask, Announced), at=None, poll_interval_seconds=0.05)
    await stage.put("x", event_type="bank.announced")
    async with serving(relay):
        await begun.wait()
        at_most = len(asked)
        shift = relay._shift  # noqa: SLF001 - as its own watch does, when it is time to probe
        assert shift is not None
        for _ in range(20):
            shift.note_pauses()
            await asyncio.sleep(0)
        assert len(asked) == at_most
        go.set()
        await until(asks_again)


@pytest.mark.parametrize("bound", [{}, {"concurrency": 1}])
async def test_what_is_to_run_alone_waits_for_what_is_slow_and_others_do_not(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, bound: dict[str, Any]
) -> None:
    """R4, R7b: or all would wait for the end of a run that may take an hour, or it for a moment without one."""
    for name in ("ALONE_WAIT_SECONDS", "ALONE_REST_SECONDS"):
        monkeypatch.setattr(f"outbox_kernel.infrastructure.relay.shift.{name}", 0.05)
    h, go, begun, seen = at_the_gate()
    slow = attrs.evolve(h, timeout_seconds=3600.0)
    suspect, other = Recorder().fail("s"), Recorder().fail("x")
    suspected = handler("suspected", suspect, Announced, retry=RetrySchedule((3600,)))
    handlers = slow, suspected, handler("other", other, Announced, retry=RetrySchedule((0.01,)), **bound)

    async def has_failed_and_gone_on() -> bool:
        return other.seen.count("x") == 2

    async def holds_what_is_slow() -> bool:
        shift = relay._shift  # noqa: SLF001 - nobody else can say
        return shift is not None and shift.subscribers["h"].is_held

    await stage.put("s", event_type="bank.announced")
    await stage.drain(*handlers)
    await stage.put("a", of=uuid4())
    relay = stage.relay(*handlers, at=None, poll_interval_seconds=0.05)
    async with serving(relay):
        await begun.wait()
        await stage.witness.execute(
            "UPDATE outbox_deliveries SET takeovers = 2, available_at = now() WHERE handler = 'suspected'"
        )
        await until(holds_what_is_slow)
        await stage.put("b", of=uuid4())
        await stage.put("x", event_type="bank.announced")
        await until(has_failed_and_gone_on)
        assert suspect.seen.count("s") == 1
        assert seen == ["a"]
        go.set()
        await until(all_delivered(stage, 4))
    assert suspect.seen.count("s") == 2
    assert (await stage.delivery("s", "suspected"))["attempts"] == 1


# --- who is charged --------------------------------------------------------------------------------------


async def test_what_runs_alone_when_three_relays_vanish_is_dead(stage: Stage) -> None:
    """R7b: reason "kills the process"; no other event or handler is charged."""
    bad, good = Recorder().fail("a").fail("b"), Recorder()
    await stage.put("a", "b", of=uuid4())
    await stage.drain(handler("h", bad), handler("good", good))
    await vanish_with_deliveries(stage, at=100)
    await vanish_with_deliveries(stage, at=200)
    assert await stage.deliveries() == {("a", "h"): "waiting", ("b", "h"): "waiting"}
    for n in range(3):
        assert await vanish_with_deliveries(stage, at=300 + n * 100) == 0
        assert await vanish_with_a_suspect(stage, at=350 + n * 100) == 1
    first, second = await stage.delivery("a", "h"), await stage.delivery("b", "h")
    assert (first["status"], first["attempts"]) == ("dead", 4)
    assert (second["status"], second["attempts"]) == ("waiting", 0)
    assert (await stage.status("a"))["error_message"] == KILLS
    assert await stage.events() == {"a": "dead", "b": "open"}


async def test_what_kills_the_process_lets_others_pass_if_its_handler_says_so(stage: Stage) -> None:
    """R6, R7b: `on_dead="continue"` holds for what never came to an outcome, too."""
    await stage.put("a", of=uuid4())
    await stage.drain(handler("h", Recorder().fail("a")))
    await stage.witness.execute("UPDATE outbox_deliveries SET takeovers = 2")
    for n in range(3):
        assert await vanish_with_a_suspect(stage, at=10 + n * 100, on_dead="continue") == 1
    assert await stage.witness.fetchval("SELECT status || settled FROM outbox_deliveries") == "deadtrue"
    assert await stage.receipts() == [("a", "h", "skipped")]


async def test_what_dies_with_its_relays_is_a_critical_line_in_the_log(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """R7, R7b: as every death is."""
    await stage.put("a")
    await stage.drain(handler("h", Recorder().fail("a")))
    await stage.witness.execute("UPDATE outbox_deliveries SET takeovers = 4")
    await vanish_with_a_suspect(stage, at=10)
    [record] = [each for each in caplog.records if each.levelno == logging.CRITICAL]
    assert (record.__dict__["handler"], record.__dict__["reason"]) == ("h", KILLS)


async def test_a_death_is_in_the_log_though_the_connection_breaks_after_it(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R7b, R12: it happens once, so nobody would tell it later."""

    async def fail(*_: object) -> None:
        raise DatabaseUnreachable("gone at that moment")

    await stage.put("a")
    await stage.drain(handler("h", Recorder().fail("a")))
    await stage.witness.execute("UPDATE outbox_deliveries SET takeovers = 4")
    assert await (await deliveries_of(stage, at=10)).take_suspects() == 1
    line = stage.line()
    log = Log(line, Lease(), None, stage.at(10 + LATER))
    monkeypatch.setattr(line, "fetch", fail)
    upkeep = Upkeep(log, Renaming.of(log, []), Retention(log, None), 0.0, CHANNEL, lambda: None)
    with pytest.raises(DatabaseUnreachable):
        await upkeep.take_over()
    assert [each.__dict__["reason"] for each in caplog.records if each.levelno == logging.CRITICAL] == [KILLS]


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


# --- with processes that die -----------------------------------------------------------------------------


@pytest.mark.parametrize("at_its_retry", [False, True])
async def test_an_event_that_kills_its_process_is_found_and_all_else_is_delivered(
    stage: Stage, bank_url: str, at_its_retry: bool
) -> None:
    """R7b: its relays are killed, each time another takes over; effects happen once."""
    first, second = uuid4(), uuid4()
    await stage.put("commit 1", of=first)
    await stage.put("commit kill h", of=first)
    await stage.put("commit 3", of=first)
    await stage.put("commit 1", "commit 2", of=second)
    if at_its_retry:
        await stage.drain(handler("h", Recorder().fail("commit kill h")), handler("other", Recorder()))
        await stage.witness.execute("UPDATE outbox_deliveries SET available_at = clock_timestamp()")
    deaths = await relays_that_die(stage, bank_url)
    assert deaths == DEATHS
    poison = await stage.delivery("commit kill h", "h")
    assert (poison["status"], poison["attempts"]) == ("dead", 3 + at_its_retry)
    assert (await stage.status("commit kill h"))["error_message"] == KILLS
    assert await stage.witness.fetchval("SELECT sum(attempts) FROM outbox_deliveries") == 3 + at_its_retry
    deliveries = await stage.deliveries()
    assert deliveries["commit 3", "h"] == "waiting"
    left = {key: status for key, status in deliveries.items() if status not in ("done", "skipped")}
    assert set(left) == {("commit kill h", "h"), ("commit 3", "h")}
    if not at_its_retry:  # else handlers of this process have had the rest
        expected = ["commit 1", "commit 1", "commit 2"]
        others = [*expected, "commit 3", "commit kill h"]
        assert await stage.journal() == sorted(
            [f"h: {what}" for what in expected] + [f"other: {what}" for what in others]
        )


async def relays_that_die(stage: Stage, url: str) -> int:
    """Start relays until one lives on with nothing to do; return how many died."""
    for deaths in range(DEATHS + 2):
        async with relay_process(url, "h", "other", OUTBOX_POLL_INTERVAL="0.1") as relay:
            ended = asyncio.create_task(relay.ended())
            buried = asyncio.create_task(until(lambda: is_buried(stage)))
            await asyncio.wait([ended, buried], return_when=asyncio.FIRST_COMPLETED)
            if buried.done():
                await buried
                return deaths
            buried.cancel()
            assert ended.result() == -signal.SIGKILL
        await stage.witness.execute("UPDATE outbox_relays SET expires_at = clock_timestamp()")
    raise AssertionError("they die for ever")


async def is_buried(stage: Stage) -> bool:
    """Whether nothing is open but what waits behind the dead letter."""
    row = await stage.witness.fetchrow(
        "SELECT count(*) FILTER (WHERE status = 'dead') AS dead, count(*) FILTER (WHERE status = 'open') AS open, "
        "count(*) FILTER (WHERE status = 'pending') AS pending, "
        # Of an event that is open for one handler, another may have to be told that it is done.
        "(SELECT count(*) FROM outbox_deliveries WHERE status IN ('waiting', 'leased')) AS left FROM outbox_status"
    )
    return tuple(row) == (1, 1, 0, 1)
