"""Ownership: which cursors are this relay's; taken, spread evenly, given over, and gone back with (R1, R17)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import uuid4
from zlib import crc32

import attrs

from outbox_kernel.infrastructure.outbox.sql import cursors as sql
from outbox_kernel.infrastructure.outbox.sql.fragments import SHARDS
from outbox_kernel.infrastructure.relay.listener import EVERYTHING, SAY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from uuid import UUID

    from outbox_kernel.infrastructure.relay.cursor import Place, Reader
    from outbox_kernel.infrastructure.relay.log import Log
    from outbox_kernel.infrastructure.relay.subscriber import Subscriber

EVERY = frozenset(range(SHARDS))


def falls_to(
    name: str, shard: int, carriers: Mapping[UUID, Mapping[str, int]], *, as_a_whole: bool
) -> UUID | None:
    """Return which of those that carry a subscription is to have its shard; every relay finds the same.

    What is one relay's as a whole is that of the newest code: nobody else takes what it leaves (R9).
    """
    if not carriers:
        return None
    others = carriers.values() if as_a_whole else ()
    newest = [each for each in carriers if not any(_is_newer(other, carriers[each]) for other in others)]
    every = sorted(newest or carriers)
    # No hash of Python's, which differs from process to process.
    return every[(crc32(name.encode()) if as_a_whole else shard) % len(every)]


def _is_newer(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Whether one can run newer versions of what both know, or as new ones, and more."""
    both = one.keys() & other.keys()
    return (sum(one[each] for each in both), len(one)) > (sum(other[each] for each in both), len(other))


@attrs.define(eq=False)
class Ownership:
    """Takes what falls to this relay, and gives what falls to another."""

    log: Log
    subscribers: Mapping[str, Subscriber]
    takes_all: bool
    """It takes whatever nobody has, and nothing falls to it by itself: it serves for a moment only."""
    channel: str
    is_held_up: bool = False
    """Whether something is to go back that a relay has in its hands."""

    @property
    def is_leaving(self) -> bool:
        """Whether something is to be given, or to go back, once nothing of it is in hand."""
        return self.is_held_up or any(
            reader.is_leaving for each in self.subscribers.values() for reader in each.readers
        )

    async def balance(self) -> bool:
        """Look once who is there; return whether anything has changed hands."""
        relays = {row["id"]: json.loads(row["abilities"]) for row in await self.log.run(sql.LIVE_RELAYS)}
        me = self.log.lease.relay
        wanted: list[tuple[str, int]] = []
        back: list[tuple[str, int]] = []
        leaving: dict[str, set[int]] = {}
        for row in await self.log.run(sql.CURSORS, names=sorted(self.subscribers)):
            name, shard = row["subscription"], row["shard"]
            carriers = {relay: abilities[name] for relay, abilities in relays.items() if name in abilities}
            owner = falls_to(name, shard, carriers, as_a_whole=row["bounded"])
            if row["lease_relay"] is None and (self.takes_all or owner == me):
                (back if row["is_to_go_back"] else wanted).append((name, shard))
            elif row["lease_relay"] == me and (row["is_to_go_back"] or owner not in (me, None)):
                leaving.setdefault(name, set()).add(shard)
        gave = [
            await self._leave(each, EVERY if each.subscription.retired else leaving.get(name, set()))
            for name, each in self.subscribers.items()
        ]
        if any(gave):
            await self.log.line.fetch(SAY, self.channel, EVERYTHING)
        took = await self.log.take(wanted) if wanted else []
        went_back = await self.log.take_back(back) if back else []
        self.is_held_up = sum(len(reader.shards) for reader in went_back) < len(back)
        for reader in (*took, *went_back):
            self.subscribers[reader.subscription].readers.append(reader)
        return bool(took or went_back) or any(gave)

    async def give_all(self) -> None:
        """Give back everything whose hands are empty, and say so: it stands where it is."""
        for subscriber in self.subscribers.values():
            await self._leave(subscriber, EVERY)
        await self.log.line.fetch(SAY, self.channel, EVERYTHING)

    async def _leave(self, subscriber: Subscriber, shards: Collection[int]) -> bool:
        """Read no further for shards, and give them once nothing of their reader is in hand."""
        gave = False
        for reader in list(subscriber.readers):
            going = reader.shards.intersection(shards)
            reader.is_leaving = bool(going)
            if not going:
                continue
            subscriber.note_pause()
            if subscriber.stands_still:
                subscriber.let_go()
            if reader.batches or (subscriber.carried.is_bounded and not subscriber.workers.at_rest):
                continue
            await self.log.give(reader, going, uuid4())
            gave = True
            reader.shards -= going
            if reader.shards:
                reader.is_leaving = False
            else:  # it leaves for good: what is being read for it comes too late
                subscriber.readers.remove(reader)
        subscriber.note_pause()
        return gave

    async def join(self) -> None:
        """Let readers of one subscription that have met, and have nothing in hand, become one."""
        for subscriber in self.subscribers.values():
            while pair := _met(subscriber.readers):
                await self._join(subscriber, *pair)

    async def _join(self, subscriber: Subscriber, reader: Reader, other: Reader) -> None:
        reader.is_leaving = other.is_leaving = True  # nothing is read for either meanwhile
        await self.log.join(reader, other)
        subscriber.readers.remove(reader)
        other.shards |= reader.shards
        other.takeovers = max(other.takeovers, reader.takeovers)
        # A place that only looks the same: what is being read from the former one knows nothing of these shards.
        other.ahead = attrs.evolve(other.ahead)
        other.is_leaving, other.is_due = False, True


def _met(readers: Iterable[Reader]) -> tuple[Reader, Reader] | None:
    """Return two that stand at one place with nothing in hand."""
    first: dict[tuple[Place, Place], Reader] = {}
    for reader in readers:
        if not (reader.is_leaving or reader.batches):
            other = first.setdefault((reader.place, reader.ahead), reader)
            if other is not reader:
                return reader, other
    return None
