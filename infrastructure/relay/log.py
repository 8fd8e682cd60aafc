"""The log as a relay sees it: each method one statement, fenced by the relay's lease."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.outbox.sealing.reading import KeysInHand
from outbox_kernel.infrastructure.outbox.sql import cursors, leases, log, reading
from outbox_kernel.infrastructure.outbox.sql.named import arguments
from outbox_kernel.infrastructure.relay.lease import LeaseLost
from outbox_kernel.infrastructure.relay.place import SEES_ALL, Late, Place, Server
from outbox_kernel.infrastructure.relay.rows import LoggedEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.infrastructure.outbox.sql.named import Statement
    from outbox_kernel.infrastructure.relay.lease import Lease
    from outbox_kernel.infrastructure.relay.line import Line
    from outbox_kernel.infrastructure.relay.pausing import Pause
    from outbox_kernel.infrastructure.relay.reader import Batch, Reader
    from outbox_kernel.infrastructure.relay.rows import Outcome

# Of payloads, about; few come near it, but a thousand of the largest would be a gigabyte.
READ_BYTES_MAX = 16 * 1024 * 1024
# Turns whose deliveries a cursor goes back over, so many in one statement.
TURNS_DROPPED_MAX = 10_000
# Of what is not for a reader so many are looked at for each that might be.
LOOK_TIMES = 8
# However few are asked for, as by a handler with a bound.
LOOK_AT_LEAST = 1_000


@attrs.frozen
class Narrowed:
    """What readers are for: of which queue, which types, which shards."""

    source: str | None
    types: tuple[str, ...]
    patterns: tuple[str, ...]
    """As LIKE takes them."""
    shards: frozenset[int] | None
    """None: all."""


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
class Taken:
    """A cursor that is ours now, and where it stands."""

    subscription: str
    shard: int
    takeovers: int
    reader: UUID
    place: Place


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
        if record_class is None:
            return await self.line.fetch(text, *given)
        return await self.line.fetch_as(record_class, text, *given)

    async def look_at_keys(self) -> None:
        """Let what is in hand read as forgotten whose keys were destroyed meanwhile (O6)."""
        await self.keys.look_again(self)

    def step(self, statement: Statement, **values: Any) -> tuple[str, tuple[Any, ...]]:
        """Return a statement with its arguments, as one of several of a transaction."""
        text, names = statement.for_line(self.schema)
        known = {"relay": self.lease.relay, "epoch": self.lease.epoch, "now": self.now}
        values |= {name: known[name] for name in names if name in known}
        return text, tuple(arguments(names, values))

    # --- reading ------------------------------------------------------------------------------------

    async def read(
        self, start: Place, server: Server, narrowed: Narrowed, ordered: Sequence[str], events_max: int
    ) -> Found:
        """Read on from a place, which is judged by its own server, to one that counts by this server."""
        wanted = _Wanted(narrowed, ordered, events_max)
        if start.late is not None:
            return await self._read_late(start, start.late, server, wanted)
        rows, report = await self._read(
            start, wanted, reading.read, late_max=events_max, late_bytes_max=READ_BYTES_MAX
        )
        if report["late_after"] is not None:
            # What is here of another server's is committed, all of it.
            snapshot = report["snapshot"] if start.server == server else SEES_ALL
            return await self._read_late(start, Late(report["late_after"], snapshot), server, wanted)
        ahead = [row for row in rows if row["bytes"] is not None]
        is_full = _is_full(ahead, events_max)
        position = ahead[-1]["position"] if ahead else start.position
        if not is_full and report["scanned"] is not None:
            looked_at = report["scanned"] - start.position
            position, is_full = report["scanned"], looked_at >= wanted.look_max
        rows.sort(key=_position)
        return Found(rows, Place(position, report["snapshot"], server), is_full, report["revision"])

    async def glance(
        self, start: Place, server: Server, ordered: Sequence[str], events_max: int
    ) -> Found | None:
        """Read on from a place if there is less to read than so much, of whatever type and shard; None: read."""
        if start.late is not None or start.server != server:
            return None
        *rows, told = await self.run(
            reading.GLANCE,
            LoggedEvent,
            position=start.position,
            snapshot=start.snapshot,
            floor=server.floor,
            events_max=events_max,
            ordered=ordered,
        )
        report = json.loads(told["report"])
        _check_held(report)
        rows.sort(key=_position)
        end = max(start.position, rows[-1]["position"]) if rows else start.position
        if report["behind"] or len(rows) >= events_max:
            return None
        rows = [row for row in rows if row["source"] is None]
        await self.keys.give(rows, self)
        return Found(rows, Place(end, report["snapshot"], server), is_full=False, revision=report["revision"])

    async def _read_late(self, start: Place, late: Late, server: Server, wanted: _Wanted) -> Found:
        """Read a batch of what was late, and no further: what follows in an aggregate stands beyond the place.

        All of it that is another server's is judged by that one's ids; the place behind the last counts by this one's.
        """
        rows, report = await self._read(
            start, wanted, reading.read_late, late_position=late.position, late_snapshot=late.snapshot
        )
        rows.sort(key=_position)
        reached = rows[-1]["position"] if _is_full(rows, wanted.events_max) else report["scanned"]
        if reached is not None:
            end = attrs.evolve(start, late=Late(reached, late.snapshot))
        elif late.snapshot == SEES_ALL:
            end = Place(start.position, report["snapshot"], server)
        else:
            end = Place(start.position, late.snapshot, start.server)
        return Found(rows, end, is_full=True, revision=report["revision"])

    async def _read(
        self, start: Place, wanted: _Wanted, read: Callable[..., Statement], **values: Any
    ) -> tuple[list[LoggedEvent], Any]:
        """Return what was found, and the read's own report."""
        narrowed = wanted.narrowed
        by_type, by_shard = bool(narrowed.types or narrowed.patterns), narrowed.shards is not None
        if by_type:
            values.update(types=narrowed.types, patterns=narrowed.patterns)
        if narrowed.shards is not None:
            values["shards"] = sorted(narrowed.shards)
        *rows, told = await self.run(
            read(queue=narrowed.source is not None, types=by_type, shards=by_shard),
            LoggedEvent,
            position=start.position,
            snapshot=start.snapshot,
            floor=start.server.floor,
            events_max=wanted.events_max,
            look_max=wanted.look_max,
            bytes_max=READ_BYTES_MAX,
            ordered=wanted.ordered,
            source=narrowed.source,
            **values,
        )
        report = json.loads(told["report"])
        _check_held(report)
        await self.keys.give(rows, self)
        return rows, report

    # --- moving on ----------------------------------------------------------------------------------

    async def move(self, moved: Sequence[tuple[Reader, Sequence[Batch]]], left: Sequence[Outcome]) -> None:
        """Write down where readers stand, with the deliveries of those who did not succeed: all of it or nothing."""
        lates = [batches[-1].end.late for _, batches in moved]
        values: dict[str, Any] = {
            "readers": [reader.id for reader, _ in moved],
            "numbers": [reader.number + 1 for reader, _ in moved],
            "positions": [batches[-1].end.position for _, batches in moved],
            "servers": [batches[-1].end.server.number for _, batches in moved],
            "snapshots": [batches[-1].end.snapshot for _, batches in moved],
            "late_positions": [late and late.position for late in lates],
            "late_snapshots": [late and late.snapshot for late in lates],
            "events": [reader.events + sum(batch.events for batch in batches) for reader, batches in moved],
        }
        statement = log.MOVE
        if left:
            statement = log.LEAVE_AND_MOVE
            values.update(_columns(left))
        if not await self.run(statement, **values):
            raise LeaseLost("the relay's lease has run out")

    async def tell_pauses(self, pauses: Mapping[str, Pause]) -> None:
        """Write down who stands still here, and why."""
        told = {
            name: {"reason": pause.reason, "since": pause.since.isoformat()} for name, pause in pauses.items()
        }
        await self.run(leases.TELL_PAUSES, pauses=json.dumps(told))

    # --- cursors ------------------------------------------------------------------------------------

    async def relays(self) -> dict[UUID, frozenset[str]]:
        """Return the live relays, with what each carries."""
        return {row["id"]: frozenset(row["carried"]) for row in await self.run(cursors.LIVE_RELAYS)}

    async def cursors(self, names: Collection[str]) -> list[Any]:
        """Return who owns the cursors of these subscriptions."""
        return await self.run(cursors.CURSORS, names=sorted(names))

    async def take(self, wanted: Iterable[tuple[str, int]]) -> list[Taken]:
        """Take cursors that nobody owns; return those that are ours now."""
        names, shards = _pairs(wanted)
        return _taken(await self.run(cursors.TAKE, names=names, shards=shards))

    async def take_back(self, wanted: Iterable[tuple[str, int]]) -> list[Taken]:
        """Take cursors that nobody owns and that are to go back, at the place where they begin anew.

        Where a relay has a delivery in its hands that is read again then, it is for another time.
        """
        names, shards = _pairs(wanted)
        turns = TURNS_DROPPED_MAX
        while turns >= TURNS_DROPPED_MAX:
            dropped = await self.run(
                cursors.DROP_AHEAD, names=names, shards=shards, turns_max=TURNS_DROPPED_MAX
            )
            turns = len({(row["handler"], row["order_key"]) for row in dropped})
        return _taken(await self.run(cursors.TAKE_BACK, names=names, shards=shards))

    async def give(self, reader: Reader, shards: Collection[int], to: UUID) -> None:
        """Let cursors of a reader stand where they are, under a reader of that id, until another relay takes them."""
        place = reader.place
        await self._reattach(
            cursors.GIVE,
            reader,
            shards,
            to=to,
            number=0,
            position=place.position,
            server=place.server.number,
            snapshot=place.snapshot,
            late_position=place.late and place.late.position,
            late_snapshot=place.late and place.late.snapshot,
        )

    async def join(self, reader: Reader, other: Reader) -> None:
        """Let a reader's cursors go with another reader's from its newest progress on."""
        await self._reattach(cursors.JOIN, reader, reader.shards, to=other.id, number=other.number)

    async def _reattach(
        self, statement: Statement, reader: Reader, shards: Collection[int], **values: Any
    ) -> None:
        if not await self.run(statement, reader=reader.id, shards=sorted(shards), **values):
            raise LeaseLost("the relay's lease has run out")


@attrs.frozen
class _Wanted:
    """What a read is for."""

    narrowed: Narrowed
    ordered: Sequence[str]
    events_max: int

    @property
    def look_max(self) -> int:
        """How many are looked at."""
        return max(self.events_max * LOOK_TIMES, LOOK_AT_LEAST)


def _check_held(report: Mapping[str, Any]) -> None:
    if not report["held"]:
        raise LeaseLost("the relay's lease has run out")


def _is_full(rows: Sequence[LoggedEvent], events_max: int) -> bool:
    """Whether a read has ended by what it may bring."""
    return len(rows) >= events_max or bool(rows and rows[-1]["bytes"] >= READ_BYTES_MAX)


def _place(row: Any) -> Place:
    late = None if row["late_position"] is None else Late(row["late_position"], row["late_snapshot"])
    return Place(row["position"], row["snapshot"], Server(row["server"], row["floor"]), late)


def _position(row: LoggedEvent) -> int:
    position: int = row["position"]
    return position


def _taken(rows: Iterable[Any]) -> list[Taken]:
    return [
        Taken(
            row["subscription"],
            row["shard"],
            row["takeovers"],
            row["reader"],
            _place(row),
        )
        for row in rows
    ]


def _pairs(found: Iterable[tuple[str, int]]) -> tuple[list[str], list[int]]:
    every = list(found)
    return [name for name, _ in every], [shard for _, shard in every]


def _columns(left: Sequence[Outcome]) -> dict[str, list[Any]]:
    return {
        "event_ids": [each.row["event_id"] for each in left],
        "places": [each.row["position"] for each in left],
        "handlers": [each.handler for each in left],
        "order_keys": [each.order_key for each in left],
        "states": [each.status for each in left],
        "attempts": [each.attempts for each in left],
        "takeovers": [each.takeovers for each in left],
        "on_dead": [each.on_dead for each in left],
        "delays": [each.delay_seconds for each in left],
        "not_before": [each.row["not_before"] for each in left],
        "errors": [each.error_message for each in left],
    }
