"""Two worlds side by side: sessions on PostgreSQL through capture, and the plain model of books.py."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar
from uuid import UUID

import attrs
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

from outbox_kernel.errors import ConcurrencyError
from tests.bank import Bank
from tests.domain import Wallet
from tests.properties.books import Conflict, Thing, Told, World, Writer
from tests.properties.kinds import IMPERATIVE, Kind

T = TypeVar("T")

OUTBOX = """
SELECT payload->>'what', aggregate_id, aggregate_version FROM outbox_events WHERE position > $1 ORDER BY position
"""
WALLETS = "SELECT id, balance, version, revision FROM {} WHERE id = ANY($1)"
ENTRIES = "SELECT wallet_id, text FROM {} WHERE wallet_id = ANY($1) ORDER BY text"
JOURNAL = "SELECT line FROM bank_journal WHERE line = ANY($1) ORDER BY line"
LAST = "SELECT coalesce(max(position), 0) FROM outbox_events"


@attrs.frozen
class Place:
    """Where the histories happen: one loop, one bank, and a connection that is nobody's."""

    runner: asyncio.Runner
    bank: Bank
    witness: Any
    kind: Kind = IMPERATIVE
    awaits: bool = True
    """Whether its sessions are asynchronous."""

    def run(self, work: Awaitable[T]) -> T:
        async def done() -> T:
            return await work

        return self.runner.run(done())


@attrs.define(eq=False)
class Side:
    """One session, real and imagined."""

    session: AsyncSession
    writer: Writer
    savepoints: list[AsyncSessionTransaction] = attrs.Factory(list)


class Worlds:
    """What is done to both of them at once, and what must then be the same."""

    def __init__(self, place: Place, *, autoflush: bool, forgetful: bool) -> None:
        self.place, self.autoflush, self.forgetful = place, autoflush, forgetful
        self.world = World()
        self.real: dict[Thing, Wallet] = {}
        self.unborn: list[Thing] = []
        self.detached: list[Thing] = []
        self.seen: list[UUID] = []
        self.lines: list[str] = []
        self.dropped = False
        self.start: int = self.run(place.witness.fetchval(LAST))
        self.sides = {who: self._side() for who in "AB"}

    def _side(self) -> Side:
        options = {"autoflush": self.autoflush, "expire_on_commit": self.forgetful}
        return Side(self.place.bank.sessions(**options), Writer(self.world))

    def _both(
        self,
        side: Side,
        think: Callable[[], Any],
        act: Callable[[], Awaitable[Any]],
        *,
        undo: Callable[[Side], None] | None = None,
        flushes: bool = True,
    ) -> tuple[bool, Any, Any]:
        """Do it in the model and in the database, where both must meet the same conflict."""
        if flushes and self._blocked(side):
            return False, None, None
        try:
            thought = think()
        except Conflict:
            with pytest.raises(ConcurrencyError):
                self.run(act())
            if undo is None:
                self._undo_innermost(side)
            else:
                self._keep(side.writer.fail())
                undo(side)
            return False, None, None
        done = self.run(act())
        if self.dropped:
            gc.collect()
        return True, thought, done

    def _blocked(self, side: Side) -> bool:
        """Whether a flush would wait for the other session's rows, for ever, as both are driven from here."""
        others = [other.writer.rows for other in self.sides.values() if other is not side]
        return any(side.writer.writes() & set(rows) for rows in others)

    def compare(self) -> None:
        """The database holds what the model holds, as a stranger sees it; so does memory."""
        self.run(self._compare_database())
        for side in self.sides.values():
            for thing in side.writer.things:
                if thing.held:
                    compare_memory(thing, self.real[thing])
        for thing in (*self.unborn, *self.detached):
            compare_memory(thing, self.real[thing])

    async def _compare_database(self) -> None:
        fetch, world = self.place.witness.fetch, self.world
        kind = self.place.kind
        told = [each._replace(wallet_id=kind.stream(each.wallet_id)) for each in world.outbox()]
        assert [Told(*row) for row in await fetch(OUTBOX, self.start)] == told
        live = {key: row for key, row in world.rows.items() if not row.deleted}
        assert {row[0]: tuple(row[1:]) for row in await fetch(WALLETS.format(kind.wallets), self.seen)} == {
            key: (row.balance, len(row.history), row.revision) for key, row in live.items()
        }
        entries = sorted((word, key) for key, row in live.items() for word in row.entries)
        assert (
            sorted((row[1], row[0]) for row in await fetch(ENTRIES.format(kind.entries), self.seen))
            == entries
        )
        assert [row[0] for row in await fetch(JOURNAL, self.lines)] == sorted(world.journal)

    def end(self) -> None:
        """Give up what is open; what has committed stays as it is."""
        self.run(self._close())
        self.run(self._compare_database())

    async def _close(self) -> None:
        async with AsyncExitStack() as stack:
            for side in self.sides.values():
                stack.push_async_callback(side.session.close)

    # --- rolling back -----------------------------------------------------------------------------

    def _roll_back(self, side: Side) -> None:
        self.run(side.session.rollback())
        side.savepoints.clear()
        self._take_back(side.writer.roll_back())

    def _roll_back_to(self, side: Side, depth: int) -> None:
        self.run(side.savepoints[depth].rollback())
        del side.savepoints[depth:]
        self._take_back(side.writer.roll_back_to(depth))

    def _take_back(self, unborn: list[Thing]) -> None:
        self._keep(unborn)
        self.compare()

    def _keep(self, unborn: list[Thing]) -> None:
        self.unborn += [each for each in unborn if each.held]
        self._forget_the_lost()

    def _undo_innermost(self, side: Side) -> None:
        """What a use case does that catches the error of a flush."""
        if side.savepoints:
            self._roll_back_to(side, len(side.savepoints) - 1)
        else:
            self._roll_back(side)

    # --- small help -------------------------------------------------------------------------------

    def run(self, work: Awaitable[T]) -> T:
        """Let it happen."""
        return self.place.run(work)

    def _side_with_savepoints(self, who: str) -> Side | None:
        sides = (self.sides[who], *self.sides.values())
        return next((side for side in sides if side.savepoints), None)

    def _usable(self, who: str, which: int) -> Thing | None:
        """One of the session's aggregates, or of those new again, that has its state."""
        mine = [each for each in self.sides[who].writer.things if each.held and each.status != "deleted"]
        free = (*self.unborn, *self.detached)
        return chosen(which, [each for each in (*mine, *free) if each.now is not None])

    def _stored(self, side: Side, which: int) -> Thing | None:
        stored = [each for each in side.writer.things if each.held and each.status == "stored"]
        return chosen(which, [each for each in stored if not each.doomed])

    def _forget_the_lost(self) -> None:
        """Hold no object that the model has lost, so that nothing but the session may keep it."""
        kept = {each for side in self.sides.values() for each in side.writer.things} | set(self.unborn)
        kept |= set(self.detached)
        self.real = {thing: wallet for thing, wallet in self.real.items() if thing in kept}


def chosen(which: int, candidates: list[T]) -> T | None:
    return candidates[which % len(candidates)] if candidates else None


def compare_memory(thing: Thing, wallet: Wallet) -> None:
    """A stale aggregate has no state; any other has the model's, and no event that is not part of it."""
    state = wallet.__dict__
    if thing.now is None:
        assert "version" not in state
        assert wallet.recorded_events == ()
    elif thing.status != "deleted":
        history = thing.now.history
        assert (state["balance"], state["version"]) == (thing.now.balance, len(history))
        recorded = tuple(getattr(event, "what") for event in wallet.recorded_events)  # noqa: B009
        assert history[len(history) - len(recorded) :] == recorded
