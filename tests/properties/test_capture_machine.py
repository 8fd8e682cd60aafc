"""The law of capture, driven through random histories on PostgreSQL against the plain model of books.py."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import insert
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

from kernel import ConcurrencyError, StaleAggregate, UncommittedEvents, retry_on_conflict
from tests.bank import Bank, bus_of, engine_of
from tests.domain import Announced, Noted, Opened, Paid, Wallet, journal
from tests.properties.books import Announcement, Conflict, Row, Thing, Told, World, Writer

T = TypeVar("T")

WHO = st.sampled_from("AB")
# Which of those that there are: taken modulo their number, so that it shrinks to the first.
WHICH = st.integers(0, 5)
KINDS = ("pay", "note", "enter", "set")
STEPS = 50

OUTBOX = """
SELECT payload->>'what', aggregate_id, aggregate_version FROM outbox_events WHERE position > $1 ORDER BY position
"""
WALLETS = "SELECT id, balance, version, revision FROM bank_wallets WHERE id = ANY($1)"
ENTRIES = "SELECT wallet_id, text FROM bank_entries WHERE wallet_id = ANY($1) ORDER BY text"
JOURNAL = "SELECT line FROM bank_journal WHERE line = ANY($1) ORDER BY line"
LAST = "SELECT coalesce(max(position), 0) FROM outbox_events"

_ids = count(1)


@attrs.frozen
class Place:
    """Where the histories happen: one loop, one bank, and a connection that is nobody's."""

    runner: asyncio.Runner
    bank: Bank
    witness: Any

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


class CaptureMachine(RuleBasedStateMachine):
    place: Place

    @initialize(autoflush=st.booleans(), forgetful=st.booleans())
    def open(self, autoflush: bool, forgetful: bool) -> None:
        self.autoflush, self.forgetful = autoflush, forgetful
        self.world = World()
        self.real: dict[Thing, Wallet] = {}
        self.unborn: list[Thing] = []
        self.seen: list[UUID] = []
        self.words: list[str] = []
        self.dropped = False
        self.start: int = self.run(self.place.witness.fetchval(LAST))
        self.sides = {who: self._side() for who in "AB"}
        for _ in range(2):
            self._begin_with_a_wallet()

    def _begin_with_a_wallet(self) -> None:
        """Both sessions have loaded what one of them has committed."""
        self.create("A", told=True, flushed=False)
        self.commit("A")
        for who in "AB":
            self.load(who, len(self.seen) - 1)

    def _side(self) -> Side:
        options = {"autoflush": self.autoflush, "expire_on_commit": self.forgetful}
        return Side(self.place.bank.sessions(**options), Writer(self.world))

    # --- aggregates -------------------------------------------------------------------------------

    @rule(who=WHO, told=st.booleans(), flushed=st.booleans())
    def create(self, who: str, told: bool, flushed: bool) -> None:
        wallet, row = Wallet(UUID(int=next(_ids)), "ada"), Row()
        if told:
            word = self.world.word("opened")
            wallet.record(Opened(word))
            row = row.told(word)
        thing = Thing(wallet.id, row)
        self.real[thing] = wallet
        self.seen.append(wallet.id)
        self._add(self.sides[who], thing)
        if flushed:
            self.flush(who)

    @precondition(lambda self: self.unborn)
    @rule(who=WHO, which=WHICH)
    def add_again(self, who: str, which: int) -> None:
        """What a rollback has made new again may be added to any session."""
        if thing := chosen(which, [each for each in self.unborn if each.now is not None]):
            self.unborn.remove(thing)
            self._add(self.sides[who], thing)

    def _add(self, side: Side, thing: Thing) -> None:
        side.session.add(self.real[thing])
        thing.status = "added"
        side.writer.things.append(thing)

    @rule(who=WHO, which=WHICH)
    def load(self, who: str, which: int) -> None:
        side, wallet_id = self.sides[who], chosen(which, self.seen)
        if wallet_id is None or any(each.doomed and each.id == wallet_id for each in side.writer.things):
            return
        if any(each.id == wallet_id and each.status == "added" for each in side.writer.things):
            return

        def think() -> Thing | None:
            thing = side.writer.thing(wallet_id)
            if self.autoflush and (thing is None or thing.now is None):
                side.writer.flush()
            return side.writer.load(wallet_id)

        done, thing, wallet = self._both(side, think, lambda: side.session.get(Wallet, wallet_id))
        if not done:
            return
        assert (thing is None) == (wallet is None)
        if thing is not None and wallet is not None:
            self.real[thing] = wallet
        self._forget_the_lost()

    @rule(
        who=WHO,
        which=WHICH,
        kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
        flushed=st.booleans(),
    )
    def change(self, who: str, which: int, kinds: list[str], flushed: bool) -> None:
        thing = self._usable(who, which)
        for kind in kinds if thing else ():
            assert thing is not None
            getattr(self, f"_{kind}")(thing, self.real[thing], self.world.word(kind))
        if flushed:
            self.flush(who)

    def _pay(self, thing: Thing, wallet: Wallet, word: str) -> None:
        wallet.balance += 1
        wallet.record(Paid(word, 1))
        thing.now = row_of(thing).told(word, balance=1)

    def _note(self, thing: Thing, wallet: Wallet, word: str) -> None:
        """An event changes no other attribute."""
        wallet.note(word)
        thing.now = row_of(thing).told(word)

    def _enter(self, thing: Thing, wallet: Wallet, word: str) -> None:
        """Only a child changes, and the root records it."""
        if thing.doomed:
            return  # SQLAlchemy cannot store the child of what is to be deleted
        wallet.enter(word)
        thing.now = row_of(thing).told(word, entry=True)

    def _set(self, thing: Thing, wallet: Wallet, word: str) -> None:
        """An attribute changes, and nobody records it."""
        wallet.balance += 1
        thing.now = row_of(thing)._replace(balance=row_of(thing).balance + 1)

    @rule(who=WHO, which=WHICH)
    def record_on_what_is_stale(self, who: str, which: int) -> None:
        mine = [each for each in self.sides[who].writer.things if each.held]
        stale = [each for each in (*mine, *self.unborn) if each.now is None or each.status == "deleted"]
        if thing := chosen(which, stale):
            with pytest.raises(StaleAggregate):
                self.real[thing].note(self.world.word("never"))

    @rule(who=WHO, which=WHICH)
    def delete(self, who: str, which: int) -> None:
        side = self.sides[who]
        stored = [each for each in side.writer.things if each.status == "stored" and not each.doomed]
        if thing := chosen(which, [each for each in stored if each.held and each.now is not None]):
            self.run(side.session.delete(self.real[thing]))
            thing.doomed = True

    @rule(who=WHO, which=WHICH)
    def drop_the_last_reference(self, who: str, which: int) -> None:
        side = self.sides[who]
        if thing := chosen(which, [each for each in side.writer.things if each.held]):
            alive = weakref.ref(self.real.pop(thing))
            self.dropped = True
            gc.collect()
            assert (alive() is not None) == thing.kept
            side.writer.drop(thing)

    # --- the bus and Core -------------------------------------------------------------------------

    @rule(who=WHO, of=st.none() | WHICH)
    def emit(self, who: str, of: int | None) -> None:
        side = self.sides[who]
        announcement = self._announcement(None if of is None else chosen(of, self.seen))
        announce(side.session, announcement)
        side.writer.waiting.append(announcement)

    @rule(who=WHO)
    def execute_a_core_statement(self, who: str) -> None:
        side, line = self.sides[who], self._line()

        def think() -> None:
            if self.autoflush:
                side.writer.flush()
            side.writer.journal.append(line)

        self._both(side, think, lambda: side.session.execute(insert(journal).values(line=line)))

    @rule(core=st.booleans(), emits=st.booleans())
    def commit_core_or_bus_alone(self, core: bool, emits: bool) -> None:
        """The transaction has no other content."""
        side = self._side()
        if core:
            line = self._line()
            self.run(side.session.execute(insert(journal).values(line=line)))
            side.writer.journal.append(line)
        if emits:
            announcement = self._announcement(None)
            announce(side.session, announcement)
            side.writer.waiting.append(announcement)
        side.writer.commit()
        self.run(side.session.commit())
        self.run(side.session.close())
        self.compare()

    # --- transactions -----------------------------------------------------------------------------

    @rule(who=WHO)
    def flush(self, who: str) -> None:
        side = self.sides[who]
        self._both(side, side.writer.flush, side.session.flush)

    @rule(who=WHO)
    def begin_a_savepoint(self, who: str) -> None:
        side = self.sides[who]
        done, _, savepoint = self._both(side, side.writer.begin, side.session.begin_nested)
        if done:
            side.savepoints.append(savepoint)

    @precondition(lambda self: any(side.savepoints for side in self.sides.values()))
    @rule(who=WHO, which=WHICH, undone=st.booleans())
    def end_a_savepoint(self, who: str, which: int, undone: bool) -> None:
        """Any that is open, and those inside it with it."""
        side = self._side_with_savepoints(who)
        depth = which % len(side.savepoints)
        if undone:
            self._roll_back_to(side, depth)
        else:
            self._release(side, depth)

    @rule(who=WHO)
    def roll_back(self, who: str) -> None:
        if self.sides[who].session.in_transaction():
            self._roll_back(self.sides[who])

    @rule(who=WHO)
    def commit(self, who: str) -> None:
        side = self.sides[who]
        done, _, _ = self._both(
            side,
            lambda: side.writer.commit(forgetful=self.forgetful),
            side.session.commit,
            undone=self._roll_back,
        )
        if done:
            side.savepoints.clear()
        self.compare()

    def _release(self, side: Side, depth: int) -> None:
        done, _, _ = self._both(
            side, lambda: side.writer.release(depth), side.savepoints[depth].commit, undone=self._roll_back
        )
        if done:
            del side.savepoints[depth:]
        self.compare()

    def _roll_back(self, side: Side) -> None:
        self.run(side.session.rollback())
        side.savepoints.clear()
        self.unborn += [each for each in side.writer.roll_back() if each.held]
        self._forget_the_lost()
        self.compare()

    def _roll_back_to(self, side: Side, depth: int) -> None:
        self.run(side.savepoints[depth].rollback())
        del side.savepoints[depth:]
        self.unborn += [each for each in side.writer.roll_back(depth) if each.held]
        self._forget_the_lost()
        self.compare()

    def _undo(self, side: Side) -> None:
        """What a use case does that catches the error of a flush: roll back to the innermost savepoint."""
        if side.savepoints:
            self._roll_back_to(side, len(side.savepoints) - 1)
        else:
            self._roll_back(side)

    # --- what takes state away --------------------------------------------------------------------

    @rule(who=WHO, which=WHICH)
    def expire(self, who: str, which: int) -> None:
        side = self.sides[who]
        if thing := self._stored(side, which):
            side.session.expire(self.real[thing])
            side.writer.forget(thing)

    @rule(who=WHO, which=WHICH)
    def refresh(self, who: str, which: int) -> None:
        side = self.sides[who]
        thing = self._stored(side, which)
        if thing is None or (self.autoflush and self._blocked(side)):
            return
        side.writer.forget(thing)
        if side.writer.row(thing.id) is None:
            # Another writer has deleted it.
            self._refresh_in_vain(side, thing)
            return

        def think() -> None:
            if self.autoflush:
                side.writer.flush()
            side.writer.load(thing.id)

        self._both(side, think, lambda: side.session.refresh(self.real[thing]))

    def _refresh_in_vain(self, side: Side, thing: Thing) -> None:
        with side.session.no_autoflush, pytest.raises(InvalidRequestError, match="Could not refresh"):
            self.run(side.session.refresh(self.real[thing]))

    @rule(who=WHO, which=WHICH)
    def expunge(self, who: str, which: int) -> None:
        side = self.sides[who]
        present = [
            each for each in side.writer.things if each.held and each.status != "deleted" and not each.doomed
        ]
        if thing := chosen(which, present):
            if thing.tells:
                with pytest.raises(UncommittedEvents):
                    side.session.expunge(self.real[thing])
                return
            side.session.expunge(self.real.pop(thing))
            side.writer.leave(thing)

    @rule(who=WHO)
    def expunge_all(self, who: str) -> None:
        side = self.sides[who]
        if side.writer.waiting or any(each.tells for each in side.writer.things):
            with pytest.raises(UncommittedEvents):
                side.session.expunge_all()
            return
        side.session.expunge_all()
        side.writer.things = [each for each in side.writer.things if each.status == "deleted"]
        self._forget_the_lost()

    # --- other writers ----------------------------------------------------------------------------

    @rule(which=WHICH)
    def another_writer_commits(self, which: int) -> None:
        if wallet_id := chosen(which, self._unlocked()):
            self._pay_from_outside(wallet_id)
            self.compare()

    @rule(which=WHICH)
    def retry_a_use_case_after_a_conflict(self, which: int) -> None:
        wallet_id = chosen(which, self._unlocked())
        if wallet_id is None:
            return
        first, word = self.world.word("paid"), self.world.word("paid")
        attempts: list[int] = []

        @retry_on_conflict
        async def pay() -> None:
            async with self.place.bank.session() as session:
                wallet = await session.get_one(Wallet, wallet_id)
                attempts.append(wallet.version)
                if len(attempts) == 1:
                    await pay_once(self.place.bank, wallet_id, first)
                wallet.note(word)
                await session.commit()

        self.run(pay())
        assert len(attempts) == 2
        self._committed(wallet_id, first)
        self._committed(wallet_id, word)
        self.compare()

    def _pay_from_outside(self, wallet_id: UUID) -> None:
        word = self.world.word("paid")
        self.run(pay_once(self.place.bank, wallet_id, word))
        self._committed(wallet_id, word)

    def _committed(self, wallet_id: UUID, word: str) -> None:
        row = self.world.rows[wallet_id].told(word)
        self.world.rows[wallet_id] = row._replace(revision=row.revision + 1)
        self.world.written_at[word] = self.world.tick()

    def _unlocked(self) -> list[UUID]:
        locked = set().union(*(side.writer.rows for side in self.sides.values()))
        return [key for key, row in self.world.rows.items() if key not in locked and not row.deleted]

    # --- the two worlds ---------------------------------------------------------------------------

    def _both(
        self,
        side: Side,
        think: Callable[[], Any],
        act: Callable[[], Awaitable[Any]],
        undone: Callable[[Side], None] | None = None,
    ) -> tuple[bool, Any, Any]:
        """Do it in the model and in the database, where both must meet the same conflict."""
        if self._blocked(side):
            return False, None, None
        try:
            thought = think()
        except Conflict:
            with pytest.raises(ConcurrencyError):
                self.run(act())
            (undone or self._undo)(side)
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

    async def _compare_database(self) -> None:
        fetch, world = self.place.witness.fetch, self.world
        told = [Told(*row) for row in await fetch(OUTBOX, self.start)]
        assert told == world.outbox()
        live = {key: row for key, row in world.rows.items() if not row.deleted}
        assert {row[0]: tuple(row[1:]) for row in await fetch(WALLETS, self.seen)} == {
            key: (row.balance, len(row.history), row.revision) for key, row in live.items()
        }
        entries = sorted((word, key) for key, row in live.items() for word in row.entries)
        assert sorted((row[1], row[0]) for row in await fetch(ENTRIES, self.seen)) == entries
        assert [row[0] for row in await fetch(JOURNAL, self.words)] == sorted(world.journal)

    def teardown(self) -> None:
        if hasattr(self, "sides"):
            self.run(self._close())
            self.run(self._compare_database())

    async def _close(self) -> None:
        async with AsyncExitStack() as stack:
            for side in self.sides.values():
                stack.push_async_callback(side.session.close)

    # --- small help -------------------------------------------------------------------------------

    def run(self, work: Awaitable[T]) -> T:
        return self.place.run(work)

    def _side_with_savepoints(self, who: str) -> Side:
        sides = (self.sides[who], *self.sides.values())
        return next(side for side in sides if side.savepoints)

    def _usable(self, who: str, which: int) -> Thing | None:
        """One of the session's aggregates, or of those new again, that has its state."""
        mine = [each for each in self.sides[who].writer.things if each.held and each.status != "deleted"]
        return chosen(which, [each for each in (*mine, *self.unborn) if each.now is not None])

    def _stored(self, side: Side, which: int) -> Thing | None:
        stored = [each for each in side.writer.things if each.held and each.status == "stored"]
        return chosen(which, [each for each in stored if not each.doomed])

    def _forget_the_lost(self) -> None:
        """Hold no object that the model has lost, so that nothing but the session may keep it."""
        kept = {each for side in self.sides.values() for each in side.writer.things} | set(self.unborn)
        self.real = {thing: wallet for thing, wallet in self.real.items() if thing in kept}

    def _announcement(self, wallet_id: UUID | None) -> Announcement:
        return Announcement(self.world.word("announced"), wallet_id)

    def _line(self) -> str:
        self.words.append(f"{self.world.word('line')} of {self.start}.{next(_ids)}")
        return self.words[-1]


def chosen(which: int, candidates: list[T]) -> T | None:
    return candidates[which % len(candidates)] if candidates else None


def row_of(thing: Thing) -> Row:
    assert thing.now is not None
    return thing.now


def announce(session: AsyncSession, announcement: Announcement) -> None:
    aggregate_type = None if announcement.wallet_id is None else Wallet
    bus_of(session).emit(
        Announced(announcement.word), aggregate_type=aggregate_type, aggregate_id=announcement.wallet_id
    )


async def pay_once(bank: Bank, wallet_id: UUID, word: str) -> None:
    async with bank.session() as session:
        (await session.get_one(Wallet, wallet_id)).record(Noted(word))
        await session.commit()


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


@contextmanager
def opened(url: str) -> Iterator[Place]:
    """One loop and one engine for all histories of a run."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        engine = engine_of(url)
        witness = runner.run(connected(url))
        yield Place(runner, Bank.on(engine), witness)
        runner.run(witness.close())
        runner.run(engine.dispose())


async def connected(url: str) -> Any:
    return await asyncpg.connect(url)


def test_the_outbox_holds_exactly_the_events_of_the_state_that_commits(bank_url: str) -> None:
    """C: in every history of two sessions, whatever commits and whatever does not."""
    gc.collect()
    # What exists before the histories is no garbage of theirs; they collect often.
    gc.freeze()
    try:
        with opened(bank_url) as place:
            machine = type("CaptureMachine", (CaptureMachine,), {"place": place})
            run_state_machine_as_test(machine, settings=settings(stateful_step_count=STEPS))
    finally:
        gc.unfreeze()
