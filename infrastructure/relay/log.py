"""The log as a relay sees it: each method one statement, fenced by the relay's lease."""

from __future__ import annotations

import json
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import asyncpg
import attrs

from outbox_kernel.infrastructure.outbox.delivery import left as left_behind
from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
from outbox_kernel.infrastructure.outbox.sealing.reading import KeysInHand
from outbox_kernel.infrastructure.outbox.sql import cursors, progress, reading
from outbox_kernel.infrastructure.outbox.sql.named import arguments, arrays
from outbox_kernel.infrastructure.relay.cursor import SEES_ALL, Late, Place, Reader, Server
from outbox_kernel.infrastructure.relay.lease import check_held
from outbox_kernel.infrastructure.relay.limits import (
    AHEAD_MAX,
    GLANCE_EVENTS_MAX,
    LOOK_EVENTS_MIN,
    READ_BYTES_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.infrastructure.outbox.delivery import Outcome
    from outbox_kernel.infrastructure.outbox.own_connection import Line
    from outbox_kernel.infrastructure.outbox.sql.named import Statement
    from outbox_kernel.infrastructure.relay.cursor import Batch
    from outbox_kernel.infrastructure.relay.lease import Lease

# By the names that statements give their arrays.
_CURSORS = ("names", "shards")


@attrs.frozen
class Wanted:
    """What a read is for: of which queue, which types, which shards; and how much it may bring."""

    source: str | None
    types: tuple[str, ...]
    patterns: tuple[str, ...]
    """As LIKE takes them."""
    shards: frozenset[int] | None
    """None: all."""
    ordered: Sequence[str]
    """Names under which an unsettled delivery keeps later events of its aggregate waiting."""
    events_max: int
    look_times: int = 1
    """For each event that it may bring, so many are looked at, whoever they are for."""

    @property
    def look_max(self) -> int:
        """How many are looked at."""
        return max(self.events_max * self.look_times, LOOK_EVENTS_MIN)


@attrs.frozen
class Found:
    """What a read has brought: events in their order, and the place behind them."""

    rows: list[LoggedEvent]
    end: Place
    is_full: bool
    """Whether there may be more."""
    revision: int
    """Of the subscriptions: it changes with each of them."""


@attrs.frozen
class Log:
    """Statements of one schema under one lease; `now` is for tests."""

    line: Line
    lease: Lease
    schema: str | None = None
    now: datetime | None = None
    keys: KeysInHand = attrs.field(factory=KeysInHand, eq=False)
    """What opens sealed fields."""

    async def run(self, statement: Statement, record_class: Any = None, **values: Any) -> list[Any]:
        """Run one statement by the names of its parameters; what every one of them takes need not be given."""
        text, given = self.step(statement, **values)
        while True:
            # Of two who wait for each other's rows, as with an operator, one is ended: it has done nothing.
            with suppress(asyncpg.DeadlockDetectedError):
                if record_class is None:
                    return await self.line.fetch(text, *given)
                return await self.line.fetch_as(record_class, text, *given)

    async def report(
        self, statement: Statement, record_class: type[LoggedEvent], **values: Any
    ) -> tuple[list[Any], Any]:
        """Run a statement that brings events, yet to be given keys, and return them with its report, its last row."""
        *rows, told = await self.run(statement, record_class, **values)
        report = json.loads(told["report"])
        check_held(report["held"])
        return rows, report

    def step(self, statement: Statement, **values: Any) -> tuple[str, tuple[Any, ...]]:
        """Return a statement with its arguments, as one of several of a transaction."""
        text, names = statement.for_line(self.schema)
        known = {"relay": self.lease.relay, "epoch": self.lease.epoch, "now": self.now}
        values |= {name: known[name] for name in names if name in known}
        return text, tuple(arguments(names, values))

    async def read(self, start: Place, server: Server, wanted: Wanted) -> Found:
        """Read on from a place, which is judged by its own server, to one that counts by this server."""
        if start.late is not None:
            return await self._read_late(start, start.late, server, wanted)
        # What is here of another server's is committed, all of it.
        seen = None if start.server == server else SEES_ALL
        limits = {"late_max": wanted.events_max, "late_bytes_max": READ_BYTES_MAX}
        rows, report = await self._read(start, wanted, reading.read, late_snapshot=seen, **limits)
        if report["late_after"] is not None:
            late = Late(report["late_after"], seen or report["snapshot"])
            return await self._read_late(start, late, server, wanted)
        ahead = [row for row in rows if row["bytes"] is not None]
        is_full = _is_full(ahead, wanted.events_max)
        position = ahead[-1]["position"] if ahead else start.position
        if not is_full and report["scanned"] is not None:
            looked_at = report["scanned"] - start.position
            position, is_full = report["scanned"], looked_at >= wanted.look_max
        rows.sort(key=itemgetter("position"))
        return Found(rows, Place(position, report["snapshot"], server), is_full, report["revision"])

    async def glance(self, start: Place, server: Server, wanted: Wanted) -> Found | None:
        """Read on from a place if there is less to read than so much, of whatever type and shard; None: read."""
        if start.late is not None or start.server != server:
            return None
        rows, report = await self.report(
            reading.GLANCE,
            LoggedEvent,
            position=start.position,
            snapshot=start.snapshot,
            floor=server.floor,
            events_max=(events_max := min(wanted.events_max, GLANCE_EVENTS_MAX)),
            ordered=wanted.ordered,
        )
        rows.sort(key=itemgetter("position"))
        end = max(start.position, rows[-1]["position"]) if rows else start.position
        if report["behind"] or len(rows) >= events_max:
            return None
        rows = [row for row in rows if row["source"] is None]
        await self.keys.give(rows, self)
        return Found(rows, Place(end, report["snapshot"], server), is_full=False, revision=report["revision"])

    async def _read_late(self, start: Place, late: Late, server: Server, wanted: Wanted) -> Found:
        """Read a batch of what was late, and no further: what follows in an aggregate stands beyond the place.

        All of it that is another server's is judged by that one's ids; the place behind the last counts by this one's.
        """
        rows, report = await self._read(
            start, wanted, reading.read_late, late_position=late.position, late_snapshot=late.snapshot
        )
        rows.sort(key=itemgetter("position"))
        reached = rows[-1]["position"] if _is_full(rows, wanted.events_max) else report["scanned"]
        if reached is not None:
            end = attrs.evolve(start, late=Late(reached, late.snapshot))
        elif late.snapshot == SEES_ALL:
            end = Place(start.position, report["snapshot"], server)
        else:
            end = Place(start.position, late.snapshot, start.server)
        return Found(rows, end, is_full=True, revision=report["revision"])

    async def _read(
        self, start: Place, wanted: Wanted, read: Callable[..., Statement], **values: Any
    ) -> tuple[list[LoggedEvent], Any]:
        """Return what was found, and the read's own report."""
        by_type, by_shard = bool(wanted.types or wanted.patterns), wanted.shards is not None
        if by_type:
            values.update(types=wanted.types, patterns=wanted.patterns)
        if wanted.shards is not None:
            values["shards"] = sorted(wanted.shards)
        rows, report = await self.report(
            read(queue=wanted.source is not None, types=by_type, shards=by_shard),
            LoggedEvent,
            position=start.position,
            snapshot=start.snapshot,
            floor=start.server.floor,
            events_max=wanted.events_max,
            look_max=wanted.look_max,
            bytes_max=READ_BYTES_MAX,
            ordered=wanted.ordered,
            source=wanted.source,
            **values,
        )
        await self.keys.give(rows, self)
        return rows, report

    async def move(self, moved: Sequence[tuple[Reader, Sequence[Batch]]], left: Sequence[Outcome]) -> None:
        """Write down where readers stand, with the deliveries of those who did not succeed: all of it or nothing."""
        places = [
            {
                "reader": str(reader.id),
                "number": reader.number + 1,
                "events": reader.events + sum(len(batch.positions) for batch in batches),
                **batches[-1].end.columns(),
            }
            for reader, batches in moved
        ]
        deliveries = left_behind(left) if left else {}
        statement = progress.LEAVE_AND_MOVE if left else progress.MOVE
        check_held(await self.run(statement, moved=json.dumps(places), **deliveries))

    async def take(self, wanted: Iterable[tuple[str, int]]) -> list[Reader]:
        """Take cursors that nobody owns; return who reads for those that are ours now."""
        return _readers(await self.run(cursors.TAKE, **arrays(_CURSORS, wanted)))

    async def take_back(self, wanted: Iterable[tuple[str, int]]) -> list[Reader]:
        """Take cursors that nobody owns and that are to go back, at the place where they begin anew.

        Where a relay has a delivery in its hands that is read again then, it is for another time.
        """
        which = arrays(_CURSORS, wanted)
        for statement in (cursors.UNSETTLE_AHEAD, cursors.DROP_AHEAD):
            while (await self.run(statement, **which, ahead_max=AHEAD_MAX))[0]["found"] >= AHEAD_MAX:
                pass
        return _readers(await self.run(cursors.TAKE_BACK, **which))

    async def give(self, reader: Reader, shards: Collection[int], to: UUID) -> None:
        """Let cursors of a reader stand where they are, under a reader of that id, until another relay takes them."""
        await self._reattach(cursors.GIVE, reader, shards, to=to, number=0, **reader.place.columns())

    async def join(self, reader: Reader, other: Reader) -> None:
        """Let a reader's cursors go with another reader's from its newest progress on."""
        await self._reattach(cursors.JOIN, reader, reader.shards, to=other.id, number=other.number)

    async def _reattach(
        self, statement: Statement, reader: Reader, shards: Collection[int], **values: Any
    ) -> None:
        check_held(await self.run(statement, reader=reader.id, shards=sorted(shards), **values))


def _is_full(rows: Sequence[LoggedEvent], events_max: int) -> bool:
    """Whether a read has ended by what it may bring."""
    return len(rows) >= events_max or bool(rows and rows[-1]["bytes"] >= READ_BYTES_MAX)


def _readers(rows: Iterable[Any]) -> list[Reader]:
    """Return who reads for cursors that were taken: one for all that stand at one place."""
    together: dict[tuple[str, UUID], list[Any]] = {}
    for row in rows:
        together.setdefault((row["subscription"], row["reader"]), []).append(row)
    return [
        Reader(
            *(reader, name, frozenset(row["shard"] for row in rows)),
            *(Place.of(rows[0]), max(row["takeovers"] for row in rows)),
        )
        for (name, reader), rows in together.items()
    ]
