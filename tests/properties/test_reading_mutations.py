"""Whoever breaks a sentence of the law of reading is caught by its judge (R2b)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import attrs
import pytest

from outbox_kernel.infrastructure.relay.cursor import Late, Place, Reader
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.infrastructure.relay.order import Order
from tests.bank import engine_of
from tests.properties.hardships import Hardships, rewrite_glance, rewrite_read
from tests.properties.reading_law import INNOCENT, Verdict
from tests.relaying import Stage

Mutation = Callable[[pytest.MonkeyPatch], None]


@asynccontextmanager
async def hardships(url: str, monkeypatch: pytest.MonkeyPatch, *, glances: bool) -> AsyncIterator[Hardships]:
    engine, witness = engine_of(url), await asyncpg.connect(url)
    stage = await Stage.on(engine, witness)
    async with Hardships.on(stage, url, monkeypatch, glances=glances) as told:
        yield told
    await stage.close()
    await witness.close()
    await engine.dispose()


@pytest.mark.asyncio
@pytest.mark.parametrize("glances", [False, True])
async def test_the_law_holds_through_all_of_it(
    bank_url: str, monkeypatch: pytest.MonkeyPatch, glances: bool
) -> None:
    async with hardships(bank_url, monkeypatch, glances=glances) as told:
        assert await told.go_through() == INNOCENT


RUNNING = "xid >= running AND xid <= running"
YOUNGER = "xid >= pg_snapshot_xmax(:snapshot::text::pg_snapshot)"
AT_OR_BELOW = "AND position <= :position AND position > :floor"
ANYWHERE = "AND :position > 0 AND position > :floor"
NEW_SNAPSHOT = "'snapshot', pg_current_snapshot()::text"
OLD_SNAPSHOT = "'snapshot', :snapshot::text"


def without_the_running(monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite_read(monkeypatch, RUNNING, "false")


def without_the_younger(monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite_read(monkeypatch, YOUNGER, "false")


def late_ones_above_the_position_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite_read(monkeypatch, AT_OR_BELOW, ANYWHERE)


def what_was_late_and_what_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    unseen = "NOT pg_visible_in_snapshot(xid, :snapshot::text::pg_snapshot)"
    changed = f"({unseen} OR :snapshot::text IS NOT NULL)"
    rewrite_read(monkeypatch, unseen, changed, read="read_late")


def what_was_late_and_what_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = "pg_visible_in_snapshot(xid, :late_snapshot::text::pg_snapshot)"
    changed = f"({seen} OR :snapshot::text IS NOT NULL)"
    rewrite_read(monkeypatch, seen, changed, read="read_late")


def only_the_first_of_what_was_late(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Log._read_late  # noqa: SLF001 - to break it

    async def read_and_go_on(log: Log, start: Place, late: Late, *arguments: Any) -> Any:
        found = await read(log, start, late, *arguments)
        return attrs.evolve(found, end=Place(start.position, late.snapshot, start.server))

    monkeypatch.setattr(Log, "_read_late", read_and_go_on)


def standing_at(reader: Reader, place: Place) -> Reader:
    """Who has just taken cursors, at another place."""
    return attrs.evolve(reader, place=place, ahead=place)


def what_was_late_from_its_beginning_for_whoever_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Log.take

    async def take_and_forget(log: Log, wanted: Any) -> Any:
        return [standing_at(each, attrs.evolve(each.place, late=None)) for each in await take(log, wanted)]

    monkeypatch.setattr(Log, "take", take_and_forget)


def with_the_old_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite_read(monkeypatch, NEW_SNAPSHOT, OLD_SNAPSHOT)


def with_a_snapshot_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement reads, another takes the snapshot."""
    read = Log.read

    async def read_in_two(log: Log, *arguments: Any) -> Any:
        found = await read(log, *arguments)
        [row] = await log.line.fetch("SELECT pg_current_snapshot()::text AS snapshot")
        return attrs.evolve(found, end=attrs.evolve(found.end, snapshot=row["snapshot"]))

    monkeypatch.setattr(Log, "read", read_in_two)


def trusting_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a connection was lost, what was read before goes for passed."""
    read, take, newest = Log.read, Log.take, []

    async def read_and_remember(log: Log, *arguments: Any) -> Any:
        found = await read(log, *arguments)
        newest.append(found.end)
        return found

    async def take_and_believe(log: Log, wanted: Any) -> Any:
        return [standing_at(each, newest[-1]) if newest else each for each in await take(log, wanted)]

    monkeypatch.setattr(Log, "read", read_and_remember)
    monkeypatch.setattr(Log, "take", take_and_believe)


def moving_before_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    move = Log.move

    async def move_and_then_leave(log: Log, moved: Any, left: Any) -> None:
        await move(log, moved, [])
        if left:
            await move(log, [], left)

    monkeypatch.setattr(Log, "move", move_and_then_leave)


def forgetting_who_is_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Order, "must_wait", lambda *_: False)


def ignoring_what_is_unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Order, "must_leave", lambda *_: False)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("break_it", "crime"),
    [
        (without_the_running, "lost"),
        (without_the_younger, "lost"),
        (late_ones_above_the_position_too, "repeated"),
        (what_was_late_and_what_was_not, "repeated"),
        (what_was_late_and_what_is_now, "repeated"),
        (only_the_first_of_what_was_late, "lost"),
        (what_was_late_from_its_beginning_for_whoever_takes_over, "repeated"),
        (with_the_old_snapshot, "repeated"),
        (with_a_snapshot_of_its_own, "lost"),
        (trusting_memory, "lost"),
        (moving_before_the_rows, "lost"),
        (forgetting_who_is_parked, "inverted"),
        (ignoring_what_is_unsettled, "inverted"),
    ],
)
async def test_who_breaks_it_is_caught(
    bank_url: str, monkeypatch: pytest.MonkeyPatch, break_it: Mutation, crime: str
) -> None:
    break_it(monkeypatch)
    async with hardships(bank_url, monkeypatch, glances=False) as told:
        assert crime in crimes(await told.go_through())


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("old", "new", "crime"),
    [
        (RUNNING, "false", "lost"),
        (YOUNGER, "false", "lost"),
        (AT_OR_BELOW, ANYWHERE, "repeated"),
        (NEW_SNAPSHOT, OLD_SNAPSHOT, "repeated"),
        (
            "WHERE NOT settled AND handler = ANY (:ordered::text[])",
            "WHERE :ordered::text[] IS NULL",
            "inverted",
        ),
    ],
)
async def test_who_breaks_a_glance_is_caught(
    bank_url: str, monkeypatch: pytest.MonkeyPatch, old: str, new: str, crime: str
) -> None:
    rewrite_glance(monkeypatch, old, new)
    async with hardships(bank_url, monkeypatch, glances=True) as told:
        assert crime in crimes(await told.go_through())


def crimes(verdict: Verdict) -> set[str]:
    return {name for name, count in attrs.asdict(verdict).items() if count}
