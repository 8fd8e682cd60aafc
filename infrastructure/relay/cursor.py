"""Cursors: a place in the log, what it has passed, and the readers that stand there with what they have in hand (R2b).

Passed is what stands at or below a place's position and is visible to its snapshot. A reader is those cursors of one
subscription that stand at one place.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Self

import attrs

from outbox_kernel.infrastructure.outbox.sql.fragments import SHARDS
from outbox_kernel.infrastructure.postgres.snapshots import common_to, sees
from outbox_kernel.infrastructure.relay.limits import IN_HAND_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from outbox_kernel.infrastructure.outbox.delivery import Outcome
    from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
    from outbox_kernel.infrastructure.relay.workers import Work

# A snapshot that sees every transaction of a server that is gone: what is here of it, had committed there.
SEES_ALL = "9223372036854775807:9223372036854775807:"


@attrs.frozen
class Server:
    """Whose transaction ids count."""

    number: int
    """Of `outbox_servers`."""
    floor: int
    """Nothing at or below this position is ever late: what may stand there, stood there when the server was found."""


@attrs.frozen
class Late:
    """How far one is with what was late when a snapshot was taken: up to a position all that it sees is passed."""

    position: int
    snapshot: str


@attrs.frozen
class Place:
    """Passed is what stands at or below the position and is visible to the snapshot."""

    position: int
    snapshot: str
    """As PostgreSQL writes it: `xmin:xmax:running,…`."""
    server: Server
    """By whose transaction ids the snapshot counts."""
    late: Late | None = None
    """And what is passed of that which was late, where it is too much for one read."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return the place of a reader's progress."""
        late = None if row["late_position"] is None else Late(row["late_position"], row["late_snapshot"])
        return cls(row["position"], row["snapshot"], Server(row["server"], row["floor"]), late)

    def columns(self) -> dict[str, int | str | None]:
        """Return it as a reader's progress has it."""
        return {
            "position": self.position,
            "server": self.server.number,
            "snapshot": self.snapshot,
            "late_position": None if self.late is None else self.late.position,
            "late_snapshot": None if self.late is None else self.late.snapshot,
        }

    def has_passed(self, position: int, xid: int) -> bool:
        """Whether an event that is committed by now has been passed."""
        if position > self.position:
            return False
        if position <= self.server.floor or sees(self.snapshot, xid):
            return True
        return self.late is not None and position <= self.late.position and sees(self.late.snapshot, xid)

    def before_both(self, other: Place) -> Place:
        """Return a place from which a read finds what either has not passed; both count by one server's ids.

        Two places in the middle of what was late are the same: who is there is behind, and reads with its likes alone.
        """
        if self == other:
            return self
        snapshot = common_to(self.snapshot, other.snapshot)
        return Place(min(self.position, other.position), snapshot, self.server)


@attrs.define(eq=False)
class Batch:
    """What one read brought for a reader: it ends when each event is done or has a delivery."""

    read: int
    """The number of the read: what is written before a later one begins, that one sees."""
    end: Place
    positions: list[int] = attrs.Factory(list)
    """Of its events."""
    open: int = 0
    bytes: int = 0
    left: list[Outcome] = attrs.Factory(list)
    is_being_written: bool = False
    """From then on what is late is a delivery's affair."""

    def cut(self, undone: Sequence[int], start: Place) -> bool:
        """End before the first position that is not done; return whether that is behind the place it began at."""
        first = min(undone, default=0)
        if first <= start.position:
            return False  # it was late: whatever else was read would be passed with it
        self.end = attrs.evolve(self.end, position=first - 1)
        self.left = [each for each in self.left if each.row.position < first]
        self.positions = [each for each in self.positions if each < first]
        self.open = 0
        return True


@attrs.define(eq=False)
class Reader:
    """Reads on from a place, and moves it behind what is done."""

    id: UUID
    subscription: str
    shards: frozenset[int]
    place: Place
    """Where it stands in the database."""
    takeovers: int = 0
    """How many relays have vanished over what it reads next."""
    number: int = 0
    """Of its newest progress."""
    events: int = 0
    """How many it has passed since it began."""
    ahead: Place = attrs.field(default=attrs.Factory(lambda self: self.place, takes_self=True))
    """Up to where it has read."""
    batches: deque[Batch] = attrs.Factory(deque)
    is_leaving: bool = False
    """It reads no further: its cursors are given over, or meet others, once its hands are empty."""
    is_due: bool = True
    """Whether there may be something to read."""
    read: int = 0
    """The number of its newest read: who has waited longest is next."""
    is_at_head: bool = False
    """Whether its last read came to the end of the log."""
    look_times: int = 1
    """How far its next read looks, as multiples of what that may bring."""

    def begin(self, read: int, end: Place) -> Batch:
        """Take note of a read; its events are added to the batch."""
        batch = Batch(read, end)
        self.ahead = end
        self.batches.append(batch)
        return batch

    @property
    def in_hand(self) -> int:
        """How many events are not done."""
        return sum(batch.open for batch in self.batches)

    def has_room(self, events_max: int) -> bool:
        """Whether it may read on beside what it has; a batch is as large as ever until nothing of it is there."""
        size = sum(batch.bytes for batch in self.batches if batch.open or batch.left)
        return self.in_hand <= events_max and size < IN_HAND_BYTES_MAX

    def ended(self) -> list[Batch]:
        """Return the batches that have ended, with all before them."""
        found = []
        for batch in self.batches:
            if batch.open:
                break
            found.append(batch)
        return found

    def moved(self, batches: Iterable[Batch]) -> None:
        """Take note that the place behind these batches is in the database."""
        for batch in batches:
            self.batches.popleft()
            self.place = batch.end
            self.events += len(batch.positions)
        self.number += 1
        self.takeovers = 0

    def go_back(self, undone: Collection[Work]) -> None:
        """Let go of what is not done, so that it is read again, from the first such event on."""
        ended = self.ended()
        self.ahead = ended[-1].end if ended else self.place
        if len(ended) < len(self.batches):
            batch = self.batches[len(ended)]
            if batch.cut([work.row.position for work in undone if work.batch is batch], self.ahead):
                ended.append(batch)
                self.ahead = batch.end
        self.batches = deque(ended)
        self.is_due, self.is_at_head = True, False

    @property
    def is_all(self) -> bool:
        """Whether it has all shards."""
        return len(self.shards) == SHARDS

    def is_for(self, row: LoggedEvent) -> bool:
        """Whether an event, which a read from a place at or before this one's has found, is still to be read here."""
        if not self.is_all and row.shard not in self.shards:
            return False
        return not self.ahead.has_passed(row.position, row.xid)
