"""An outbox that finds itself on another server: nothing is lost, and nothing comes again (R2b)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.relaying import Recorder, Stage, connected, handler
from tests.waiting import DEADLINE_SECONDS, until

# To the relay it is the same whether its server or the name that it has written down is another.
MOVE = "UPDATE outbox_servers SET identifier = 'another one'"
SERVERS = "SELECT identifier = 'another one' AS former, floor FROM outbox_servers ORDER BY number"
OF_ITS_PLACES = """
SELECT DISTINCT identifier = 'another one' FROM outbox_cursor_places JOIN outbox_servers ON server = number
"""
FAR_ABOVE = 10**15
# What a server that has lived for long has written down, on one that is new.
RESTORE = f"""
UPDATE outbox_events SET xid = '{FAR_ABOVE}';
UPDATE outbox_progress SET snapshot = '{FAR_ABOVE + 1}:{FAR_ABOVE + 1}:';
UPDATE outbox_servers SET identifier = 'another one'
"""
ASKS_WHO_WRITES = """
SELECT EXISTS (
  SELECT FROM pg_stat_activity WHERE query LIKE '%array_agg(virtualtransaction)%' AND pid <> pg_backend_pid()
  AND datname = current_database())
"""


@pytest_asyncio.fixture
async def late(bank_url: str) -> AsyncIterator[Any]:
    connection = await connected(bank_url)
    yield connection
    await connection.close()


async def moved_in_mid_write(stage: Stage, late: Any) -> Any:
    """Move the outbox; what is committed there is behind what somebody has yet to commit: his transaction."""
    await stage.witness.execute(MOVE)
    transaction = late.transaction()
    await transaction.start()
    await stage.put("late", by=late)
    await stage.put("early")
    return transaction


async def test_it_waits_for_who_writes_and_the_highest_position_is_its_floor(stage: Stage, late: Any) -> None:
    recorder = Recorder()
    await stage.drain(handler("h", recorder))
    transaction = await moved_in_mid_write(stage, late)
    draining = asyncio.create_task(stage.drain(handler("h", recorder)))

    async def is_asked() -> bool:
        return bool(await stage.witness.fetchval(ASKS_WHO_WRITES))

    await until(is_asked)
    assert [tuple(row) for row in await stage.witness.fetch(SERVERS)] == [(True, 0)]
    await transaction.commit()
    await draining
    assert [tuple(row) for row in await stage.witness.fetch(SERVERS)] == [(True, 0), (False, 2)]
    assert recorder.seen == ["late", "early"]


async def test_while_it_waits_for_who_writes_it_says_so_and_keeps_its_lease(
    stage: Stage, late: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """R2b, R3, O4: a stranger may leave his transaction open for as long as he likes."""
    recorder = Recorder()
    await stage.drain(handler("h", recorder))
    transaction = await moved_in_mid_write(stage, late)
    writes = await late.fetchval(
        "SELECT virtualtransaction FROM pg_locks WHERE pid = pg_backend_pid() LIMIT 1"
    )
    relay = stage.relay(handler("h", recorder), at=None, lease_seconds=0.6)
    draining = asyncio.create_task(relay.run_until_idle())

    async def has_outlived_its_first_lease() -> bool:
        query = "SELECT expires_at > started_at + interval '2 s' FROM outbox_relays"
        return bool(await stage.witness.fetchval(query))

    await until(has_outlived_its_first_lease)
    await transaction.commit()
    await draining
    told = [
        each.getMessage() for each in caplog.records if each.__dict__.get("action") == "relay.start.waits"
    ]
    assert [each.endswith(f": {writes}") for each in told] == [True]
    assert recorder.seen == ["late", "early"]


async def test_told_to_stop_while_it_waits_for_who_writes_it_ends(stage: Stage, late: Any) -> None:
    """R11: a stranger may leave his transaction open for as long as he likes."""
    await stage.drain(handler("h", Recorder()))
    transaction = await moved_in_mid_write(stage, late)
    relay = stage.relay(handler("h", Recorder()), at=None)
    running = asyncio.create_task(relay.run())
    await until(lambda: stage.witness.fetchval(ASKS_WHO_WRITES))
    relay.stop()
    await asyncio.wait([running], timeout=DEADLINE_SECONDS)
    has_ended = running.done()
    await transaction.commit()
    await running
    assert has_ended
    assert await stage.witness.fetchval("SELECT count(*) FROM outbox_relays") == 0


async def test_what_was_late_under_the_former_server_is_found_once(stage: Stage, late: Any) -> None:
    recorder = Recorder()
    transaction = late.transaction()
    await transaction.start()
    await stage.put("late", by=late)
    await stage.put("early")
    await stage.drain(handler("h", recorder))
    await transaction.commit()
    await stage.witness.execute(MOVE)
    for _ in range(3):
        await stage.drain(handler("h", recorder))
    assert recorder.seen == ["early", "late"]
    assert [row[0] for row in await stage.witness.fetch(OF_ITS_PLACES)] == [False]


async def test_what_was_late_under_ids_that_this_server_has_yet_to_give_is_found_once(
    stage: Stage, late: Any
) -> None:
    """It had begun when nothing newer was complete, so the snapshot does not list it; and this server is new."""
    recorder = Recorder()
    async with late.transaction():
        await stage.put("late", by=late)
        await stage.put("early")
        await stage.drain(handler("h", recorder))
    await stage.witness.execute(RESTORE)
    await stage.witness.execute(
        f"UPDATE outbox_events SET xid = '{FAR_ABOVE + 3}' WHERE payload->>'what' = 'late'"
    )
    for what in ("c", "d"):
        await stage.put(what)
        await stage.drain(handler("h", recorder))
    assert recorder.seen == ["early", "late", "c", "d"]
    assert set((await stage.events()).values()) == {"delivered"}


async def test_what_was_restored_does_not_come_again(stage: Stage) -> None:
    """Its transactions seem to be of the future, and none of them will ever commit here."""
    recorder = Recorder()
    await stage.put("a", "b", of=uuid4())
    await stage.drain(handler("h", recorder))
    await stage.witness.execute(RESTORE)
    await stage.drain(handler("h", recorder))
    for what in ("c", "d"):
        await stage.put(what)
        await stage.drain(handler("h", recorder))
    assert recorder.seen == ["a", "b", "c", "d"]
    assert set((await stage.events()).values()) == {"delivered"}


async def test_one_that_joins_in_later_passes_what_was_restored_once(stage: Stage) -> None:
    """Two who read together judge what was restored by their places, which are above the floor."""
    first, second = Recorder(), Recorder()
    await stage.put("a", "b")
    await stage.drain(handler("first", first))
    await stage.witness.execute(RESTORE)
    for what in ("c", "d"):
        await stage.put(what)
        await stage.drain(handler("first", first), handler("second", second))
    assert (first.seen, second.seen) == (["a", "b", "c", "d"], ["a", "b", "c", "d"])


async def test_what_is_late_on_this_server_is_found_above_the_floor(stage: Stage, late: Any) -> None:
    recorder = Recorder()
    await stage.put("a")
    await stage.drain(handler("h", recorder))
    await stage.witness.execute(RESTORE)
    await stage.drain(handler("h", recorder))
    transaction = late.transaction()
    await transaction.start()
    await stage.put("late", by=late)
    await stage.put("early")
    await stage.drain(handler("h", recorder))
    await transaction.commit()
    for _ in range(2):
        await stage.drain(handler("h", recorder))
    assert recorder.seen == ["a", "early", "late"]


async def test_what_was_moved_before_anybody_read_it_is_passed_once(stage: Stage) -> None:
    """R2b: the ids under which it was written are yet to come here."""
    seen, wallet = Recorder(), uuid4()
    await stage.put("a", "b", of=wallet)
    await stage.witness.execute(f"UPDATE outbox_events SET xid = '{FAR_ABOVE}'")
    await stage.put("c", of=wallet)
    await stage.drain(handler("h", seen))
    assert await stage.events() == {"a": "delivered", "b": "delivered", "c": "delivered"}
    assert await stage.witness.fetchval("SELECT floor FROM outbox_servers") == 2
    seen.fail("d")
    await stage.put("d", of=wallet)
    for at in (0, 1000):
        await stage.drain(handler("h", seen), at=at)
    assert seen.seen == ["a", "b", "c", "d", "d"]


async def test_what_somebody_brings_under_ids_that_are_yet_to_come_is_tried_again(stage: Stage) -> None:
    """R5, R7: as a copy that goes on after a relay has begun; nobody knows when such an id is given."""
    seen = Recorder().fail("b")
    await stage.put("a")
    await stage.drain(handler("h", seen))
    await stage.put("b", "c", of=uuid4())
    await stage.witness.execute(f"UPDATE outbox_events SET xid = '{FAR_ABOVE}' WHERE position > 1")
    for at in (0, 1000):
        await stage.drain(handler("h", seen), at=at)
    assert seen.seen == ["a", "b", "b", "c"]
