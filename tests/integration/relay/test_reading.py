"""A relay reads the log by cursors, and what went well needs no row (R1, R2b, R5)."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.relay.cursor import Place, Server
from outbox_kernel.infrastructure.relay.deliveries import Deliveries
from outbox_kernel.infrastructure.relay.lease import Lease
from outbox_kernel.infrastructure.relay.log import Log, Wanted
from outbox_kernel.infrastructure.relay.reading import Reading
from outbox_kernel.kernel import RetrySchedule
from tests.relaying import Recorder, Stage, connected, handler
from tests.serving import has_begun, serving
from tests.waiting import until


async def places(stage: Stage) -> set[int]:
    rows = await stage.witness.fetch(
        "SELECT DISTINCT (SELECT position FROM outbox_progress AS newest WHERE newest.reader = outbox_cursors.reader "
        "ORDER BY number DESC LIMIT 1) AS position FROM outbox_cursors"
    )
    return {row["position"] for row in rows}


async def test_what_went_well_is_passed_and_has_no_row(stage: Stage) -> None:
    recorder = Recorder()
    await stage.put("a", "b", of=uuid4())
    await stage.drain(handler("h", recorder))
    assert recorder.seen == ["a", "b"]
    assert await places(stage) == {2}
    assert await stage.deliveries() == {}


async def test_it_is_delivered_once_whoever_comes_next(stage: Stage) -> None:
    recorder = Recorder()
    await stage.put("a", of=uuid4())
    await stage.drain(handler("h", recorder))
    await stage.drain(handler("h", recorder))
    assert recorder.seen == ["a"]


async def test_a_failure_is_a_row_and_what_follows_in_its_aggregate_waits_behind_it(stage: Stage) -> None:
    recorder, wallet = Recorder().fail("a"), uuid4()
    await stage.put("a", "b", of=wallet)
    await stage.put("c", of=uuid4())
    await stage.relay(handler("h", recorder)).run_once()
    assert sorted(recorder.seen) == ["a", "c"]
    assert await stage.deliveries() == {("a", "h"): "waiting", ("b", "h"): "waiting"}
    await stage.drain(handler("h", recorder), at=2)
    assert sorted(recorder.seen) == ["a", "a", "b", "c"]
    assert await stage.deliveries() == {("a", "h"): "done", ("b", "h"): "done"}


async def test_what_commits_late_is_found_once(stage: Stage, bank_url: str) -> None:
    recorder, late = Recorder(), await connected(bank_url)
    transaction = late.transaction()
    await transaction.start()
    await stage.put("late", by=late)
    await stage.put("early")
    await stage.drain(handler("h", recorder))
    assert recorder.seen == ["early"]
    await transaction.commit()
    await stage.drain(handler("h", recorder))
    await stage.drain(handler("h", recorder))
    assert recorder.seen == ["early", "late"]
    await late.close()


async def test_a_transaction_at_the_end_of_a_snapshot_is_in_no_list_and_is_found(stage: Stage) -> None:
    """A snapshot's `xmax` is the newest completed transaction plus one: it may be that of one that commits late."""
    await stage.put("late", "above it")
    late = await stage.witness.fetchval("SELECT xid::text FROM outbox_events ORDER BY position LIMIT 1")
    log = Log(stage.line(), Lease())
    await stage.witness.execute(
        "INSERT INTO outbox_relays (id, epoch, expires_at, process_id, host, code_version) "
        "VALUES ($1, 1, clock_timestamp() + interval '1 minute', 1, 'here', '1')",
        log.lease.relay,
    )
    place = Place(1, f"{late}:{late}:", Server(1, 0))
    found = await log.read(place, place.server, Wanted(None, (), (), None, [], 100))
    assert [row["position"] for row in found.rows] == [1, 2]
    assert [place.has_passed(row["position"], row["xid"]) for row in found.rows] == [False, False]


async def test_what_was_read_while_a_failure_was_written_down_waits_behind_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4: that read began before the row was there, so it tells nothing of it, however late it comes back."""
    failed, has_read, come_back, wallet, seen = asyncio.Event(), asyncio.Event(), asyncio.Event(), uuid4(), []
    read = Reading.read_for

    async def slow(reading: Reading, *arguments: Any) -> Any:
        found = await read(reading, *arguments)
        if any(json.loads(row["payload"])["what"] == "b" for row in found.rows):
            has_read.set()
            await come_back.wait()
        return found

    async def act(event: Any) -> None:
        seen.append(event.what)
        if seen == ["a"]:
            await failed.wait()
            raise ValueError("no a today")

    async def is_written() -> bool:
        shift = relay._shift  # noqa: SLF001 - nobody else can say
        return shift is not None and not any(each.batches for each in shift.subscribers["h"].readers)

    monkeypatch.setattr(Reading, "read_for", slow)
    relay = stage.relay(handler("h", act, retry=RetrySchedule((0.05,))), at=None, poll_interval_seconds=0.05)
    await stage.put("a", of=wallet)
    async with serving(relay):
        await until(lambda: has_begun(seen, 1))
        await stage.put("b", of=wallet)
        await has_read.wait()
        failed.set()
        await until(is_written)
        come_back.set()
        await until(lambda: has_begun(seen, 3))
    assert seen == ["a", "a", "b"]


async def test_while_a_read_takes_long_the_processor_rests(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: who takes deliveries waits for a reason, though it has been time to look for a while."""
    has_begun_to, come_back, steps = asyncio.Event(), asyncio.Event(), [0]
    step, rest_seconds = Reading.step, Deliveries.rest_seconds

    async def slow(reading: Reading, wanting: Any) -> bool:
        has_begun_to.set()
        await come_back.wait()
        return await step(reading, wanting)

    async def is_time_to_look() -> bool:
        shift = relay._shift  # noqa: SLF001 - nobody else can say
        return shift is not None and time.monotonic() > shift._poll_at  # noqa: SLF001 - as above

    def counted(deliveries: Deliveries) -> float:
        steps[0] += 1
        return rest_seconds(deliveries)

    relay = stage.relay(handler("h", Recorder()), at=None, poll_interval_seconds=0.5)
    async with serving(relay):
        monkeypatch.setattr(Reading, "step", slow)
        await has_begun_to.wait()
        await until(is_time_to_look)
        monkeypatch.setattr(Deliveries, "rest_seconds", counted)
        for _ in range(1000):
            await asyncio.sleep(0)
        come_back.set()
    assert steps[0] < 50
