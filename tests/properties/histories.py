"""What may happen in a history: each action by (who, which, flag), the session, the object and a twist."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from itertools import count
from uuid import UUID

import pytest
import sqlalchemy
from sqlalchemy import insert, text
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession

from outbox_kernel.errors import StaleAggregate, UncommittedEvents
from outbox_kernel.infrastructure.outbox import bus_of
from outbox_kernel.kernel import retry_on_conflict
from tests.domain import Announced, Noted, Opened, Paid, journal
from tests.properties.books import Announcement, Row, Thing
from tests.properties.worlds import Place, Side, Worlds, chosen

_ids = count(1)
# Since 2.1 an autoflush precedes them too (https://github.com/sqlalchemy/sqlalchemy/issues/9809).
CORE_STATEMENTS_FLUSH = not sqlalchemy.__version__.startswith("2.0.")


class History(Worlds):
    """Two sessions, at first with two wallets that both have loaded."""

    def __init__(self, place: Place, *, autoflush: bool, forgetful: bool) -> None:
        super().__init__(place, autoflush=autoflush, forgetful=forgetful)
        for which in range(2):
            self.create("A", 0, flag=False)
            self.commit("A", 0, flag=False)
            for who in "AB":
                self.load(who, which, flag=False)

    # --- aggregates -------------------------------------------------------------------------------

    def create(self, who: str, which: int, flag: bool) -> None:
        """A new aggregate, with its first event or, by the flag, without."""
        wallet, row = self.place.kind.make(next(_ids)), Row()
        if not flag:
            word = self.world.word("opened")
            wallet.record(Opened(word))
            row = row.told(word)
        thing = Thing(wallet.id, row)
        self.real[thing] = wallet
        self.seen.append(wallet.id)
        self._add(self.sides[who], thing)

    def add_again(self, who: str, which: int, flag: bool) -> None:
        """What a rollback has made new again may be added to any session."""
        if thing := chosen(which, [each for each in self.unborn if each.now is not None]):
            self.unborn.remove(thing)
            self._add(self.sides[who], thing)

    def _add(self, side: Side, thing: Thing) -> None:
        side.session.add(self.real[thing])
        thing.status = "added"
        side.writer.things.append(thing)

    def load(self, who: str, which: int, flag: bool) -> None:
        side, wallet_id = self.sides[who], chosen(which, self.seen)
        unloadable = [each.id for each in side.writer.things if each.doomed or each.status == "added"]
        if wallet_id is None or wallet_id in unloadable:
            return

        def think() -> Thing | None:
            thing = side.writer.thing(wallet_id)
            if self.autoflush and (thing is None or thing.now is None):
                side.writer.flush()
            return side.writer.load(wallet_id)

        get = partial(side.session.get, self.place.kind.cls, wallet_id)
        done, thing, wallet = self._both(side, think, get, flushes=self.autoflush)
        if done:
            assert (thing is None) == (wallet is None)
            if thing is not None:
                self.real[thing] = wallet
            self._forget_the_lost()

    def pay(self, who: str, which: int, flag: bool) -> None:
        if thing := self._usable(who, which):
            word = self.world.word("paid")
            self.real[thing].balance += 1
            self.real[thing].record(Paid(word, 1))
            thing.now = row_of(thing).told(word, balance=1)

    def note(self, who: str, which: int, flag: bool) -> None:
        """An event changes no other attribute."""
        if thing := self._usable(who, which):
            word = self.world.word("noted")
            self.real[thing].note(word)
            thing.now = row_of(thing).told(word)

    def enter(self, who: str, which: int, flag: bool) -> None:
        """Only a child changes, and the root records it."""
        thing = self._usable(who, which)
        # SQLAlchemy cannot store the child of what is to be deleted.
        if thing is not None and not thing.doomed:
            word = self.world.word("entered")
            self.real[thing].enter(word)
            thing.now = row_of(thing).told(word, entry=True)

    def set_balance(self, who: str, which: int, flag: bool) -> None:
        """An attribute changes, and nobody records it."""
        if thing := self._usable(who, which):
            self.real[thing].balance += 1
            thing.now = row_of(thing)._replace(balance=row_of(thing).balance + 1)

    def touch_what_is_stale(self, who: str, which: int, flag: bool) -> None:
        """Record on it or, by the flag, read it; whatever waits in the session is none the worse."""
        mine = [each for each in self.sides[who].writer.things if each.held]
        stale = [
            each
            for each in (*mine, *self.unborn, *self.detached)
            if each.now is None or each.status == "deleted"
        ]
        if thing := chosen(which, stale):
            # A synchronous session loads what is read.
            reads = flag and thing.now is None and self.place.awaits
            with pytest.raises(StaleAggregate):
                if reads:
                    _ = self.real[thing].balance
                else:
                    self.real[thing].note("never")

    def delete(self, who: str, which: int, flag: bool) -> None:
        side = self.sides[who]
        thing = self._stored(side, which)
        # SQLAlchemy stores a new child though its parent is to be deleted, and the database refuses it.
        if thing is not None and thing.now is not None and not thing.has_new_child:
            self.run(side.session.delete(self.real[thing]))
            thing.doomed = True

    def drop(self, who: str, which: int, flag: bool) -> None:
        """Let go of the last reference outside the session, and by the flag load it again."""
        side = self.sides[who]
        if thing := chosen(which, [each for each in side.writer.things if each.held]):
            alive = weakref.ref(self.real.pop(thing))
            self.dropped = True
            gc.collect()
            assert (alive() is not None) == thing.kept
            side.writer.drop(thing)
            if flag:
                self.load(who, self.seen.index(thing.id), flag=False)

    # --- the bus and Core -------------------------------------------------------------------------

    def emit(self, who: str, which: int, flag: bool) -> None:
        """An event of the bus, by the flag in an aggregate's stream."""
        side = self.sides[who]
        announcement = Announcement(self.world.word("announced"), chosen(which, self.seen) if flag else None)
        announce(self.place, side.session, announcement)
        side.writer.waiting.append(announcement)

    def execute(self, who: str, which: int, flag: bool) -> None:
        """A Core statement or, by the flag, a text, which flushes first where the session may."""
        side, line = self.sides[who], self._line()
        flushes = self.autoflush and CORE_STATEMENTS_FLUSH

        def think() -> None:
            side.writer.note_write()
            if flushes:
                side.writer.flush()
            side.writer.journal.append(line)

        by_text = text("INSERT INTO bank_journal (line) VALUES (:line)").bindparams(line=line)
        statement = by_text if flag else insert(journal).values(line=line)
        self._both(side, think, lambda: side.session.execute(statement), flushes=flushes)

    def commit_alone(self, who: str, which: int, flag: bool) -> None:
        """A transaction of one Core statement, one event of the bus, or both, and of nothing else."""
        side = self.sides["C"] = self._side()
        if which % 3 != 0:
            self.execute("C", 0, flag)
        if which % 3 != 1:
            self.emit("C", which, flag)
        self.commit("C", 0, flag)
        self.run(side.session.close())
        del self.sides["C"]

    # --- transactions -----------------------------------------------------------------------------

    def flush(self, who: str, which: int, flag: bool) -> None:
        side = self.sides[who]
        self._both(side, side.writer.flush, side.session.flush)

    def begin(self, who: str, which: int, flag: bool) -> None:
        side = self.sides[who]
        done, _, savepoint = self._both(side, side.writer.begin, side.session.begin_nested)
        if done:
            side.savepoints.append(savepoint)

    def release(self, who: str, which: int, flag: bool) -> None:
        """Any savepoint that is open, and those inside it with it."""
        if side := self._side_with_savepoints(who):
            depth = which % len(side.savepoints)
            act = side.savepoints[depth].commit
            done, _, _ = self._both(side, lambda: side.writer.release(depth), act, undo=self._roll_back)
            if done:
                del side.savepoints[depth:]
            self.compare()

    def undo(self, who: str, which: int, flag: bool) -> None:
        """Roll back to any savepoint that is open."""
        if side := self._side_with_savepoints(who):
            self._roll_back_to(side, which % len(side.savepoints))

    def roll_back(self, who: str, which: int, flag: bool) -> None:
        """Undo all; by the flag with savepoints that are open."""
        side = (self._side_with_savepoints(who) if flag else None) or self.sides[who]
        if side.session.in_transaction():
            self._roll_back(side)

    def commit(self, who: str, which: int, flag: bool) -> None:
        side = self.sides[who]
        done, _, _ = self._both(
            side,
            lambda: side.writer.commit(forgetful=self.forgetful),
            side.session.commit,
            undo=self._roll_back,
        )
        if done:
            side.savepoints.clear()
        self.compare()

    # --- what takes state away --------------------------------------------------------------------

    def expire(self, who: str, which: int, flag: bool) -> None:
        side = self.sides[who]
        if thing := self._stored(side, which):
            side.session.expire(self.real[thing])
            side.writer.forget(thing)

    def refresh(self, who: str, which: int, flag: bool) -> None:
        side = self.sides[who]
        thing = self._stored(side, which)
        if thing is None or (self.autoflush and self._blocked(side)):
            return
        side.writer.forget(thing)
        if side.writer.row(thing.id) is None:
            # Another writer has deleted it.
            with side.session.no_autoflush, pytest.raises(InvalidRequestError, match="Could not refresh"):
                self.run(side.session.refresh(self.real[thing]))
            return

        def think() -> None:
            if self.autoflush:
                side.writer.flush()
            side.writer.load(thing.id)

        self._both(side, think, lambda: side.session.refresh(self.real[thing]), flushes=self.autoflush)

    def expunge(self, who: str, which: int, flag: bool) -> None:
        side = self.sides[who]
        leaving = [each for each in side.writer.things if each.status != "deleted" and not each.doomed]
        if thing := chosen(which, [each for each in leaving if each.held]):
            if side.writer.may_not_leave(thing):
                with pytest.raises(UncommittedEvents):
                    side.session.expunge(self.real[thing])
                return
            side.session.expunge(self.real[thing])
            side.writer.leave(thing)
            self._left([thing])

    def expunge_all(self, who: str, which: int, flag: bool) -> None:
        side = self.sides[who]
        if side.writer.waiting or any(map(side.writer.may_not_leave, side.writer.things)):
            with pytest.raises(UncommittedEvents):
                side.session.expunge_all()
            return
        side.session.expunge_all()
        leaving = [each for each in side.writer.things if each.status != "deleted"]
        for thing in leaving:
            side.writer.leave(thing)
        self._left(leaving)

    def close(self, who: str, which: int, flag: bool) -> None:
        """End the transaction without a commit; the session serves on."""
        side = self.sides[who]
        self.run(side.session.reset() if flag else side.session.close())
        side.savepoints.clear()
        unborn, left = side.writer.close()
        self._left([*left, *unborn])
        self.compare()

    def _left(self, leaving: list[Thing]) -> None:
        """What is new stays so, and what is stored may come back to any session."""
        for thing in leaving:
            thing.status = "new" if thing.status == "added" else thing.status
            thing.doomed = False
        self.detached += [each for each in leaving if each.status == "stored" and each.held]
        self._keep([each for each in leaving if each.status == "new"])

    def attach(self, who: str, which: int, flag: bool) -> None:
        """What has left a session is added to one, as it was then."""
        side = self.sides[who]
        present = {each.id for each in side.writer.things}
        if thing := chosen(which, [each for each in self.detached if each.id not in present]):
            gc.collect()
            self.detached.remove(thing)
            side.session.add(self.real[thing])
            side.writer.things.append(thing)

    # --- other writers ----------------------------------------------------------------------------

    def another_commits(self, who: str, which: int, flag: bool) -> None:
        """A third writer is first, wherever it need not wait; by the flag with no event."""
        if wallet_id := chosen(which, self._unlocked()):
            if flag:
                self.run(change_once(self.place, wallet_id))
                row = self.world.rows[wallet_id]
                self.world.rows[wallet_id] = row._replace(balance=row.balance + 1, revision=row.revision + 1)
            else:
                word = self.world.word("paid")
                self.run(record_once(self.place, wallet_id, word))
                self._committed(wallet_id, word)
            self.compare()

    def retry(self, who: str, which: int, flag: bool) -> None:
        """A use case loses its first attempt to another writer, and wins the second."""
        if wallet_id := chosen(which, self._unlocked()):
            others, word = self.world.word("paid"), self.world.word("noted")
            self.run(record_with_retry(self.place, wallet_id, word, others))
            self._committed(wallet_id, others)
            self._committed(wallet_id, word)
            self.compare()

    def _committed(self, wallet_id: UUID, word: str) -> None:
        row = self.world.rows[wallet_id].told(word)
        self.world.rows[wallet_id] = row._replace(revision=row.revision + 1)
        self.world.written_at[word] = self.world.tick()

    def _unlocked(self) -> list[UUID]:
        locked = {key for side in self.sides.values() for key in side.writer.rows}
        return [key for key, row in self.world.rows.items() if key not in locked and not row.deleted]

    def _line(self) -> str:
        self.lines.append(f"{self.world.word('line')} of {self.start}.{next(_ids)}")
        return self.lines[-1]


def row_of(thing: Thing) -> Row:
    assert thing.now is not None
    return thing.now


def announce(place: Place, session: AsyncSession, announcement: Announcement) -> None:
    aggregate_type = None if announcement.wallet_id is None else place.kind.cls
    bus_of(session.sync_session).emit(
        Announced(announcement.word), aggregate_type=aggregate_type, aggregate_id=announcement.wallet_id
    )


async def record_once(place: Place, wallet_id: UUID, word: str) -> None:
    async with place.bank.session() as session:
        (await session.get_one(place.kind.cls, wallet_id)).record(Noted(word))
        await session.commit()


async def change_once(place: Place, wallet_id: UUID) -> None:
    async with place.bank.session() as session:
        (await session.get_one(place.kind.cls, wallet_id)).balance += 1
        await session.commit()


async def record_with_retry(place: Place, wallet_id: UUID, word: str, others: str) -> None:
    versions: list[int] = []

    @retry_on_conflict
    async def use_case() -> None:
        async with place.bank.session() as session:
            wallet = await session.get_one(place.kind.cls, wallet_id)
            versions.append(wallet.version)
            if len(versions) == 1:
                await record_once(place, wallet_id, others)
            wallet.note(word)
            await session.commit()

    await use_case()
    assert versions == [versions[0], versions[0] + 1]
