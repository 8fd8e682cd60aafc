"""However much commits late, it is read a batch at a time, once and in its order (R2b, R4, R12)."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox_kernel.infrastructure.relay import log as logs
from outbox_kernel.infrastructure.relay.log import Log
from tests.relaying import Recorder, Stage, connected, handler

BATCH = 10
MANY = 95


async def commit_late(stage: Stage, url: str, *, each: int = MANY, payload: str | None = None) -> list[UUID]:
    """Three aggregates whose events commit after a relay has read what stands above them."""
    wallets, late = [uuid4() for _ in range(3)], await connected(url)
    async with late.transaction():
        for number in range(each):
            await stage.put(f"late {number}", of=wallets[number % 3], by=late, payload=payload)
        await stage.put("early")
        await stage.drain(handler("h", Recorder()), handler("other", Recorder()), batch_size_max=BATCH)
    await late.close()
    return wallets


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much each read has brought."""
    read, found = Log.read, []

    async def count(log: Log, *arguments: Any) -> Any:
        answer = await read(log, *arguments)
        found.append(len(answer.rows))
        return answer

    monkeypatch.setattr(Log, "read", count)
    return found


async def test_it_is_read_a_batch_at_a_time_and_in_its_order(
    stage: Stage, bank_url: str, brought: list[int]
) -> None:
    wallets, recorder, other = await commit_late(stage, bank_url), Recorder(), Recorder()
    for number, wallet in enumerate(wallets, start=MANY):
        await stage.put(f"late {number}", of=wallet)
    brought.clear()
    await stage.drain(handler("h", recorder), handler("other", other), batch_size_max=BATCH)
    for seen in (recorder.seen, other.seen):
        numbers = [int(what.split()[1]) for what in seen]
        assert sorted(numbers) == list(range(MANY + 3))
        for first in range(3):
            of_one = [
                number for number in numbers if (number - MANY if number >= MANY else number) % 3 == first
            ]
            assert of_one == sorted(of_one)
    assert max(brought) <= BATCH
    assert set((await stage.events()).values()) == {"delivered"}


async def test_whoever_goes_on_with_it_begins_where_it_was_left(stage: Stage, bank_url: str) -> None:
    """R2b: nothing is repeated beyond what was in a batch, whoever reads on."""
    await commit_late(stage, bank_url)
    recorder = Recorder()
    for turn in range(1, 5):
        await read_one_batch(stage, recorder)
        assert len(recorder.seen) == turn * BATCH
        delivered = sum(status == "delivered" for status in (await of_h(stage)).values())
        assert delivered == turn * BATCH + 1
    await stage.drain(handler("h", recorder), batch_size_max=BATCH)
    assert sorted(recorder.seen) == sorted(f"late {number}" for number in range(MANY))


MOVE = "UPDATE outbox_servers SET identifier = 'another one'"
# And its ids are above all of this one's. What is late was in no list of its snapshots.
MOVE_FROM_FAR_ABOVE = f"""
UPDATE outbox_events SET xid = CASE WHEN payload->>'what' = 'early' THEN '{10**15}' ELSE '{10**15 + 3}' END::xid8;
UPDATE outbox_progress SET snapshot = '{10**15 + 1}:{10**15 + 1}:',
  late_snapshot = CASE WHEN late_position IS NOT NULL THEN '{10**15 + 9}:{10**15 + 9}:'::pg_snapshot END;
{MOVE}
"""


@pytest.mark.parametrize("had_begun", [False, True])
@pytest.mark.parametrize("move", [MOVE, MOVE_FROM_FAR_ABOVE])
async def test_what_another_server_had_yet_to_read_is_read_a_batch_at_a_time_too(
    stage: Stage, bank_url: str, brought: list[int], had_begun: bool, move: str
) -> None:
    """R2b: after a restore nothing is lost, and nothing repeated beyond what was in a batch, whoever reads on."""
    wallets, recorder, before = await commit_late(stage, bank_url), Recorder(), Recorder()
    if had_begun:
        await read_one_batch(stage, before)
    await stage.witness.execute(move)
    brought.clear()
    for turn in range(1, 5):
        await read_one_batch(stage, recorder)
        assert len(recorder.seen) == turn * BATCH
        await stage.put(f"late {MANY + turn - 1}", of=wallets[(MANY + turn - 1) % 3])
    await stage.drain(handler("h", recorder), handler("other", Recorder()), batch_size_max=BATCH)
    assert max(brought) <= BATCH
    numbers = [int(what.split()[1]) for what in before.seen + recorder.seen]
    assert sorted(numbers) == list(range(MANY + 4))
    for first in range(3):
        of_one = [number for number in numbers if number % 3 == first]
        assert of_one == sorted(of_one)
    assert set((await stage.events()).values()) == {"delivered"}
    await stage.drain(handler("h", recorder))
    assert len(recorder.seen) + len(before.seen) == MANY + 4


async def read_one_batch(stage: Stage, recorder: Recorder) -> None:
    """Let a relay read once, deliver that, and end."""
    relay = stage.relay(handler("h", recorder), batch_size_max=BATCH)
    async with relay._shift_begun(takes_all=True) as shift:  # noqa: SLF001 - to end it in the middle
        [wanting] = shift.reading.groups()
        await shift.reading.step(wanting)
        await shift.finish_in_hand()
    await relay._end()  # noqa: SLF001 - as above


async def of_h(stage: Stage) -> dict[str, str]:
    """The status of each event, as if nobody but `h` were due for it."""
    await stage.witness.execute("UPDATE outbox_subscriptions SET retired_at = now() WHERE name = 'other'")
    return await stage.events()


async def test_large_payloads_are_read_a_few_at_a_time(
    stage: Stage, bank_url: str, brought: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit_late(stage, bank_url, each=8, payload='{"what": "' + "x" * 1_000 + '"}')
    monkeypatch.setattr(logs, "READ_BYTES_MAX", 2_000)
    brought.clear()
    recorder = Recorder()
    await stage.drain(handler("h", recorder), batch_size_max=BATCH)
    assert len(recorder.seen) == 8
    assert max(brought) == 2


async def test_a_failure_of_it_keeps_its_aggregate_waiting_and_no_other(stage: Stage, bank_url: str) -> None:
    """R4: through all the batches that follow."""
    await commit_late(stage, bank_url)
    recorder = Recorder().fail("late 0")
    await stage.relay(handler("h", recorder), handler("other", Recorder()), batch_size_max=BATCH).run_once()
    parked = [f"late {number}" for number in range(0, MANY, 3)]
    assert recorder.seen[0] == "late 0"
    assert {name for name, _ in await stage.deliveries()} <= set(parked)
    await stage.drain(handler("h", recorder), handler("other", Recorder()), at=60, batch_size_max=BATCH)
    assert [what for what in recorder.seen[1:] if what in parked] == parked
