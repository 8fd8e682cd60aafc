"""The plain model of the capture machine: rows with their whole history, transactions, savepoints, conflicts.

It knows nothing of flush events, identity maps or outbox rows. A row carries the history that made it, and the
one law is: the outbox holds the histories of the rows that committed, deleted ones included, and what the
committed transactions announced; nothing else, in the order in which it was written.
"""

from __future__ import annotations

from typing import Literal, NamedTuple
from uuid import UUID

import attrs


class Conflict(Exception):
    """Another writer was first."""


class Row(NamedTuple):
    """An aggregate's state, and how it came about: the n-th word of its history is its n-th event."""

    balance: int = 0
    history: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    revision: int = 0
    deleted: bool = False

    def told(self, word: str, *, balance: int = 0, entry: bool = False) -> Row:
        """The row after one more event."""
        return self._replace(
            balance=self.balance + balance,
            history=(*self.history, word),
            entries=(*self.entries, word) if entry else self.entries,
        )


class Announcement(NamedTuple):
    """An event of the bus, and whose stream it joined."""

    word: str
    wallet_id: UUID | None


class Told(NamedTuple):
    """One row of the outbox."""

    word: str
    wallet_id: UUID | None
    number: int | None


@attrs.define(eq=False)
class Thing:
    """An aggregate as one writer holds it in memory; `now` is None where its state was taken away."""

    id: UUID
    now: Row | None
    base: Row | None = None
    status: Literal["new", "added", "stored", "deleted"] = "new"
    doomed: bool = False
    held: bool = True
    # Its state was taken away since it was stored, whether or not it was loaded again.
    reloaded: bool = False
    loaded_at: int = -1
    inserted_at: int = -1
    # Each of them may be undone by itself, savepoint by savepoint.
    updated_at: list[int] = attrs.Factory(list)
    deleted_at: int = -1

    def take_away(self) -> None:
        """Leave it without a state, to be loaded again."""
        self.now = self.base = None
        self.reloaded = True

    @property
    def changed(self) -> bool:
        """Whether memory differs from the row."""
        return self.status == "stored" and self.now is not None and self.now != self.base

    @property
    def tells(self) -> bool:
        """Whether it has events that its row has not."""
        if self.now is None or self.status in ("new", "deleted"):
            return False
        return self.now.history != (self.base.history if self.base else ())

    @property
    def written(self) -> bool:
        """Whether its row is this transaction's, so that a rollback must reach it."""
        return self.status == "stored" and (self.inserted_at >= 0 or bool(self.updated_at))

    @property
    def has_new_child(self) -> bool:
        """Whether an entry was added that no row has."""
        return self.now is not None and self.base is not None and self.now.entries != self.base.entries

    @property
    def kept(self) -> bool:
        """Whether its session holds it, though nobody else does."""
        return self.status == "added" or self.changed or self.doomed


@attrs.define(eq=False)
class World:
    """What has committed, and when each word was written."""

    rows: dict[UUID, Row] = attrs.Factory(dict)
    bus: list[Announcement] = attrs.Factory(list)
    journal: list[str] = attrs.Factory(list)
    written_at: dict[str, int] = attrs.Factory(dict)
    said_at: dict[str, int] = attrs.Factory(dict)
    clock: int = 0

    def tick(self) -> int:
        """The next moment."""
        self.clock += 1
        return self.clock

    def word(self, kind: str) -> str:
        """A new word, unlike any other, that remembers when it was said."""
        moment = self.tick()
        self.said_at[f"{kind}{moment}"] = moment
        return f"{kind}{moment}"

    def outbox(self) -> list[Told]:
        """What the outbox must hold, in the order of position."""
        told = [Told(each.word, each.wallet_id, None) for each in self.bus]
        for wallet_id, row in self.rows.items():
            told += [Told(word, wallet_id, number) for number, word in enumerate(row.history, start=1)]
        return sorted(told, key=lambda each: (self.written_at[each.word], self.said_at[each.word]))


@attrs.define
class Savepoint:
    """What a transaction had written when the savepoint began, and since when the savepoint itself has written."""

    began: int
    rows: dict[UUID, Row]
    bus: tuple[Announcement, ...]
    journal: tuple[str, ...]
    wrote_at: int | None = None


@attrs.define(eq=False)
class Writer:
    """One session: what it holds in memory, and what its transaction has written."""

    world: World
    things: list[Thing] = attrs.Factory(list)
    rows: dict[UUID, Row] = attrs.Factory(dict)
    bus: list[Announcement] = attrs.Factory(list)
    journal: list[str] = attrs.Factory(list)
    waiting: list[Announcement] = attrs.Factory(list)
    savepoints: list[Savepoint] = attrs.Factory(list)
    # Since when the transaction has written, but for what its open savepoints have.
    wrote_at: int | None = None

    @property
    def has_written(self) -> bool:
        """Whether a rollback would undo rows."""
        return self._first_write(None) is not None

    def shows_what_is_not_committed(self, thing: Thing) -> bool:
        """Whether it was loaded since the transaction has written."""
        wrote = self._first_write(None)
        read = thing.status == "stored" and thing.now is not None
        return read and wrote is not None and thing.loaded_at > wrote

    def may_not_leave(self, thing: Thing) -> bool:
        """Whether a rollback, or else the commit, would miss it."""
        return thing.tells or thing.changed or thing.written or self.shows_what_is_not_committed(thing)

    def row(self, wallet_id: UUID) -> Row | None:
        """The row as this transaction sees it; None where there is none."""
        row = self.rows.get(wallet_id) or self.world.rows.get(wallet_id)
        return None if row is None or row.deleted else row

    def thing(self, wallet_id: UUID) -> Thing | None:
        """The aggregate of this id that the session has as stored."""
        found = (each for each in self.things if each.id == wallet_id and each.status == "stored")
        return next(found, None)

    def writes(self) -> set[UUID]:
        """The ids of the stored rows that a flush would write."""
        return {each.id for each in self.things if each.changed or each.doomed}

    # --- the unit of work -------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what memory holds, or raise Conflict and write nothing."""
        writing = [each for each in self.things if each.status == "added" or each.changed or each.doomed]
        for thing in writing:
            row = self.row(thing.id)
            if thing.status != "added" and (
                row is None or thing.base is None or row.revision != thing.base.revision
            ):
                raise Conflict
        moment = self.world.tick()
        if writing:
            self.note_write()
        for announcement in self.waiting:
            self.world.written_at[announcement.word] = moment
        self.bus += self.waiting
        self.waiting = []
        for thing in writing:
            self._write(thing, moment)
        self._forget_unheld()

    def note_write(self) -> None:
        """Remember since when the transaction, or its innermost savepoint, has written."""
        scope = self.savepoints[-1] if self.savepoints else self
        if scope.wrote_at is None:
            scope.wrote_at = self.world.tick()

    def _first_write(self, depth: int | None) -> int | None:
        """Since when the savepoint, or the transaction, has written, with all savepoints inside it."""
        marks = [each.wrote_at for each in self.savepoints[depth or 0 :]]
        if depth is None:
            marks.append(self.wrote_at)
        return min((mark for mark in marks if mark is not None), default=None)

    def _write(self, thing: Thing, moment: int) -> None:
        assert thing.now is not None
        before = thing.base.history if thing.base else ()
        for word in thing.now.history[len(before) :]:
            self.world.written_at[word] = moment
        if thing.status == "added":
            thing.status, thing.inserted_at = "stored", moment
            thing.now = thing.now._replace(revision=1)
        elif thing.changed:
            thing.updated_at.append(moment)
            thing.now = thing.now._replace(revision=thing.now.revision + 1)
        self.rows[thing.id] = thing.base = thing.now
        if thing.doomed:
            thing.status, thing.deleted_at, thing.doomed = "deleted", moment, False
            self.rows[thing.id] = thing.now._replace(deleted=True)

    def commit(self, *, forgetful: bool = False) -> None:
        """Make what is written the world's; a forgetful session has to load everything again."""
        self.flush()
        self.world.rows.update(self.rows)
        self.world.bus += self.bus
        self.world.journal += self.journal
        self.rows, self.bus, self.journal, self.savepoints, self.wrote_at = {}, [], [], [], None
        self.things = [each for each in self.things if each.status != "deleted"]
        for thing in self.things:
            thing.inserted_at = thing.deleted_at = -1
            thing.updated_at.clear()
            if forgetful and thing.status == "stored":
                thing.take_away()
        self._forget_unheld()

    def begin(self) -> None:
        """Begin a savepoint, for which all is written first."""
        self.flush()
        self.savepoints.append(
            Savepoint(self.world.tick(), dict(self.rows), tuple(self.bus), tuple(self.journal))
        )

    def release(self, depth: int) -> None:
        """Release a savepoint and those inside it, for which all is written first."""
        self.flush()
        wrote = self._first_write(depth)
        del self.savepoints[depth:]
        if wrote is not None:
            scope = self.savepoints[-1] if self.savepoints else self
            scope.wrote_at = wrote if scope.wrote_at is None else min(wrote, scope.wrote_at)

    def fail(self) -> list[Thing]:
        """A flush has met a conflict, which undoes the innermost savepoint at once; return what is new again."""
        return self.roll_back_to(len(self.savepoints) - 1) if self.savepoints else []

    def roll_back(self) -> list[Thing]:
        """Undo all; return what is new again."""
        return self.roll_back_to(None)

    def close(self) -> tuple[list[Thing], list[Thing]]:
        """End without a commit; return what is new again, and what has left as it was or, if undone, stale."""
        if self.has_written:
            unborn = self.roll_back()
        else:
            unborn = [each for each in self.things if each.status == "added"]
            for thing in unborn:
                thing.status = "new"
        left = [each for each in self.things if each not in unborn and each.held]
        for thing in left:
            thing.doomed = False
        self.things, self.rows, self.bus, self.journal = [], {}, [], []
        self.waiting, self.savepoints = [], []
        return unborn, left

    def roll_back_to(self, depth: int | None) -> list[Thing]:
        """Undo all since the savepoint, or since the beginning; return what is new again."""
        began = -1 if depth is None else self.savepoints[depth].began
        saved = Savepoint(-1, {}, (), ()) if depth is None else self.savepoints[depth]
        self.rows, self.bus, self.journal = dict(saved.rows), list(saved.bus), list(saved.journal)
        self.waiting = []
        wrote = self._first_write(depth)
        del self.savepoints[depth or 0 :]
        if depth is None:
            self.wrote_at = None
        unborn = [each for each in self.things if each.status == "added" or each.inserted_at >= max(began, 0)]
        self.things = [each for each in self.things if each not in unborn]
        for thing in self.things:
            seen = wrote is not None and thing.loaded_at > wrote
            _restore(thing, began, everything=depth is None or seen)
        for thing in unborn:
            thing.status, thing.base, thing.doomed, thing.inserted_at = "new", None, False, -1
            # Its children are what the rows were that are gone.
            thing.now = None if thing.reloaded else thing.now
        self._forget_unheld()
        return unborn

    # --- one aggregate ----------------------------------------------------------------------------

    def load(self, wallet_id: UUID) -> Thing | None:
        """Have the aggregate in memory, as it stands there or else in its row."""
        thing = self.thing(wallet_id)
        if thing is None or thing.now is None:
            row = self.row(wallet_id)
            if row is None:
                self.things = [each for each in self.things if each is not thing]
                return None
            if thing is None:
                thing = Thing(wallet_id, None, status="stored")
                self.things.append(thing)
            thing.now = thing.base = row
            thing.loaded_at = self.world.tick()
        thing.held = True
        return thing

    def forget(self, thing: Thing) -> None:
        """Take its state away, and with it all that no row has."""
        thing.take_away()

    def drop(self, thing: Thing) -> None:
        """Let go of the last reference outside the session."""
        thing.held = False
        self._forget_unheld()

    def leave(self, thing: Thing) -> None:
        """Take the aggregate out of the session."""
        self.things.remove(thing)

    def _forget_unheld(self) -> None:
        self.things = [each for each in self.things if each.held or each.kept]


def _restore(thing: Thing, began: int, *, everything: bool) -> None:
    """Take away a state that is not that of the row any more."""
    if everything or thing.changed or any(moment >= began for moment in thing.updated_at):
        thing.take_away()
    thing.updated_at = [moment for moment in thing.updated_at if moment < began]
    if thing.status == "deleted" and thing.deleted_at >= max(began, 0):
        thing.status, thing.deleted_at = "stored", -1
    thing.doomed = False
