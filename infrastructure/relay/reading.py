"""Reading on: who stands at the head of the log, or at one place, is read for together (R1, R2b).

Together are only those of one source: what is written here, or what one queue brings. How far a read goes, and what
is visible to it, is decided in `log` and in `outbox/sql/reading`.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.outbox.sql.fragments import SHARDS
from outbox_kernel.infrastructure.outbox.sql.reading import as_like
from outbox_kernel.infrastructure.relay.cursor import Place
from outbox_kernel.infrastructure.relay.limits import GLANCE_EVENTS_MAX, LOOK_TIMES_MAX
from outbox_kernel.infrastructure.relay.log import Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from outbox_kernel.infrastructure.relay.cursor import Reader, Server
    from outbox_kernel.infrastructure.relay.log import Found, Log
    from outbox_kernel.infrastructure.relay.subscriber import Subscriber


@attrs.define(eq=False)
class Reading:
    """Reads for the subscribers of a relay."""

    log: Log
    subscribers: Mapping[str, Subscriber]
    server: Server
    """Whose transaction ids count now."""
    revision: int = -1
    """Of the subscriptions as this relay knows them."""
    reads: int = 0
    _wanted_last: tuple[object, Wanted] | None = None
    """By whom, and by which subscriptions, it was asked for."""
    _is_quiet: bool = False
    """Whether the last read brought little: a glance may do."""

    def look(self) -> None:
        """Look for new events: somebody has said that there are some, or it is time."""
        for subscriber in self.subscribers.values():
            for reader in subscriber.readers:
                reader.is_due = True

    def wanting(self) -> list[Reader]:
        """Return who has reason and room to read on."""
        return [
            reader
            for subscriber in self.subscribers.values()
            if subscriber.is_going
            for reader in subscriber.readers
            if reader.is_due and not reader.is_leaving and reader.has_room(subscriber.bounds.batch_max)
        ]

    def groups(self) -> Iterator[list[Reader]]:
        """Give each reader that wants to read one turn."""
        left = self.wanting()
        while left:
            group = self._together(left)
            yield group
            left = [reader for reader in left if reader not in group]

    async def step(self, wanting: Sequence[Reader]) -> bool:
        """Read once for who has waited longest, and all that can be read for with it.

        It counts for nothing, and False is returned, where subscriptions have changed since it was known who is due: it
        may have brought what nobody here is due for any more, or left out what somebody is due for.
        """
        known = self.revision
        together = self._together(wanting)
        stood = [reader.ahead for reader in together]
        start = reduce(Place.before_both, stood)
        self.reads += 1
        for reader in together:
            # Before it is read: whoever says meanwhile that there is more may be too late for this.
            reader.is_due = False
            reader.read = self._subscriber_of(reader).read = self.reads
        counts = False
        try:
            found = await self.read_for(together, start)
            counts = found.revision == known == self.revision
        finally:
            for reader in together:
                reader.is_due = reader.is_due or not counts
        if counts:
            for reader, place in zip(together, stood, strict=True):
                self._take(reader, found, start, place)
        return counts

    async def read_for(self, together: Sequence[Reader], start: Place) -> Found:
        """Read, after a glance where that may do."""
        wanted, found = self._wanted(together), None
        if self._is_quiet and all(reader.is_at_head for reader in together) and wanted.source is None:
            found = await self.log.glance(start, self.server, wanted)
        if found is None:
            found = await self.log.read(start, self.server, wanted)
        self._is_quiet = len(found.rows) < GLANCE_EVENTS_MAX
        for reader in together:
            reader.look_times = _look_times(wanted, found)
        return found

    def _take(self, reader: Reader, found: Found, start: Place, stood: Place) -> None:
        if reader.is_leaving or reader.ahead is not stood:
            reader.is_due = True
            return  # it stands still, is given over, or went back since this read began
        end = found.end
        is_behind = end.position < stood.position
        # Somebody has too much to read that was late: what it stands at then says less of what this one has passed. Or
        # the read has not come as far as this one: what is between would be read again.
        if (end.late is not None and start != stood) or (is_behind and found.is_full):
            reader.is_at_head, reader.is_due = False, True
            return
        if is_behind:
            end = attrs.evolve(end, position=stood.position)
        reader.is_at_head, reader.is_due = not found.is_full, reader.is_due or found.is_full
        if found.rows or end.position > stood.position:
            self.subscribers[reader.subscription].take(reader, found.rows, start, end)
        else:
            reader.ahead = end

    def _together(self, wanting: Sequence[Reader]) -> list[Reader]:
        """Return who is read for at once: those of one source at the head or at one place; one with a bound alone."""
        first = min(wanting, key=lambda reader: reader.read)
        if self._subscriber_of(first).carried.is_bounded:
            return [first]
        source = self._source_of(first)
        return [
            each
            for each in wanting
            if (each.ahead == first.ahead or (each.is_at_head and first.is_at_head))
            and self._source_of(each) == source
            and not self._subscriber_of(each).carried.is_bounded
        ]

    def _source_of(self, reader: Reader) -> str | None:
        return self._subscriber_of(reader).subscription.source

    def _subscriber_of(self, reader: Reader) -> Subscriber:
        return self.subscribers[reader.subscription]

    def _wanted(self, together: Sequence[Reader]) -> Wanted:
        """Return what they want, made anew only where it may have changed."""
        look_times = max(reader.look_times for reader in together)
        of = self.revision, look_times, [(reader.subscription, reader.shards) for reader in together]
        if self._wanted_last is None or self._wanted_last[0] != of:
            self._wanted_last = of, self._wanted_by(together, look_times)
        return self._wanted_last[1]

    def _wanted_by(self, together: Sequence[Reader], look_times: int) -> Wanted:
        every = list(map(self._subscriber_of, together))
        patterns = {pattern for each in every for pattern in each.subscription.patterns}
        loose = {pattern for pattern in patterns if "*" in pattern}
        shards = frozenset[int]().union(*(reader.shards for reader in together))
        names = (name for each in every for name in (each.carried.name, each.carried.renamed_from))
        return Wanted(
            self._source_of(together[0]),
            () if "*" in loose else tuple(sorted(patterns - loose)),
            () if "*" in loose else tuple(map(as_like, sorted(loose))),
            None if len(shards) == SHARDS else shards,
            [*dict.fromkeys(name for name in names if name is not None)],
            min(each.bounds.batch_max for each in every),
            look_times,
        )


def _look_times(wanted: Wanted, found: Found) -> int:
    """Return how far the next read is to look: the fewer are for who asks, the further, and the dearer it is."""
    if found.is_full and len(found.rows) < wanted.events_max / 2:
        return min(wanted.look_times * 2, LOOK_TIMES_MAX)
    return max(1, wanted.look_times // 2)
