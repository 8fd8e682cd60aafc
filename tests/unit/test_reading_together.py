"""Who reads together, and where each stands then (R2b)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import attrs

from outbox_kernel.infrastructure.relay.cursor import Late, Place, Reader, Server
from outbox_kernel.infrastructure.relay.log import Found
from outbox_kernel.infrastructure.relay.ownership import Ownership, falls_to
from outbox_kernel.infrastructure.relay.rate import Bounds
from outbox_kernel.infrastructure.relay.reading import Reading

SERVER = Server(1, 0)
ALL = frozenset(range(32))


@attrs.define
class Subscriber:
    """Takes whatever it is given."""

    readers: list[Reader]
    subscription: Any = attrs.Factory(lambda: SimpleNamespace(paused=False, patterns=("*",), source=None))
    carried: Any = attrs.Factory(lambda: SimpleNamespace(name="h", renamed_from=None, is_bounded=False))
    is_going: bool = True
    read: int = 0
    bounds: Bounds = attrs.Factory(lambda: Bounds(1, 100))

    def take(self, reader: Reader, rows: Any, start: Place, end: Place) -> None:
        reader.ahead = end


@attrs.define
class Log:
    """Finds what it is told to, after something has happened."""

    found: Found
    happens: Any = None

    async def read(self, *_: Any) -> Found:
        if self.happens is not None:
            self.happens()
        return self.found


def at(position: int, running_from: int = 100) -> Place:
    return Place(position, f"{running_from}:{running_from}:", SERVER)


def reader(name: str, position: int) -> Reader:
    return Reader(uuid4(), name, ALL, at(position), is_at_head=True)


def read_for(log: Log, *readers: Reader) -> None:
    subscribers: Any = {each.subscription: Subscriber([each]) for each in readers}
    asyncio.run(Reading(log, subscribers, SERVER, 1).step(readers))  # type: ignore[arg-type]


def test_one_that_is_further_than_a_full_read_has_come_stays_where_it_is() -> None:
    behind, ahead = reader("behind", 10), reader("ahead", 50)
    read_for(Log(Found([], at(30, 200), is_full=True, revision=1)), behind, ahead)
    assert (behind.ahead, ahead.ahead) == (at(30, 200), at(50))
    assert (ahead.is_at_head, ahead.is_due) == (False, True)


def test_one_that_is_further_than_the_last_for_others_keeps_its_position() -> None:
    behind, ahead = reader("behind", 10), reader("ahead", 50)
    read_for(Log(Found([], at(30, 200), is_full=False, revision=1)), behind, ahead)
    assert (behind.ahead, ahead.ahead) == (at(30, 200), at(50, 200))


def test_those_who_are_behind_at_one_place_are_read_for_together() -> None:
    """R1: ten new handlers of a long log read it once."""
    one, other, further = reader("one", 10), reader("other", 10), reader("further", 20)
    for each in (one, other, further):
        each.is_at_head = False
    read_for(Log(Found([], at(30, 200), is_full=True, revision=1)), one, other, further)
    assert (one.ahead, other.ahead, further.ahead) == (at(30, 200), at(30, 200), at(20))


def test_one_that_has_seen_more_reads_for_itself_what_was_late() -> None:
    """What another stands at in the middle of that says nothing of what this one has passed by its own snapshot."""
    one, other = reader("one", 10), reader("other", 10)
    other.ahead = at(10, 150)
    end = attrs.evolve(at(10), late=Late(5, "200:200:"))
    read_for(Log(Found([], end, is_full=True, revision=1)), one, other)
    assert (one.ahead, other.ahead) == (end, at(10, 150))
    assert [(each.is_at_head, each.is_due) for each in (one, other)] == [(False, True)] * 2


def test_what_was_read_for_one_that_went_back_meanwhile_is_read_again() -> None:
    one = reader("one", 10)
    one.ahead = at(20)
    read_for(Log(Found([], at(30), is_full=False, revision=1), happens=lambda: one.go_back([])), one)
    assert (one.ahead, one.is_due) == (at(10), True)


def test_what_is_let_go_of_is_not_counted_as_passed() -> None:
    """O4: what was done behind it is read again, and counts then."""
    one = reader("one", 10)
    batch = one.begin(1, at(20))
    batch.positions, batch.open = [11, 12, 13, 14], 1
    undone: Any = SimpleNamespace(batch=batch, row=SimpleNamespace(position=12))
    one.go_back([undone])
    assert (one.ahead, batch.positions) == (at(11), [11])


def test_what_stands_at_or_below_the_floor_is_passed_whatever_its_transaction() -> None:
    """R2b: it was written under the ids of another server."""
    place = Place(10, "100:100:", Server(2, 5))
    assert [place.has_passed(position, 1_000) for position in (5, 6)] == [True, False]


@attrs.define
class BusyLog:
    """Lets something else go on while it reads, or while cursors change their reader."""

    while_reading: Any = None
    while_joining: Any = None

    async def read(self, *_: Any) -> Found:
        if self.while_reading is not None:
            await self.while_reading()
        return Found([], at(30), is_full=False, revision=1)

    async def join(self, *_: Any) -> None:
        if self.while_joining is not None:
            await self.while_joining()


def halves() -> tuple[Reader, Reader]:
    """Two readers of one subscription that stand at one place."""
    one, other = reader("h", 10), reader("h", 10)
    one.shards, other.shards, other.is_due = frozenset(range(16)), frozenset(range(16, 32)), False
    return one, other


def works_of(log: BusyLog, *readers: Reader) -> tuple[Reading, Ownership]:
    subscribers: Any = {"h": Subscriber(list(readers))}
    reading = Reading(log, subscribers, SERVER, 1)  # type: ignore[arg-type]
    return reading, Ownership(log, subscribers, takes_all=False, channel="")  # type: ignore[arg-type]


def test_what_was_read_before_two_became_one_is_read_again() -> None:
    """That read knows nothing of the other's shards."""
    log, (one, other) = BusyLog(), halves()
    reading, ownership = works_of(log, one, other)
    log.while_reading = ownership.join
    asyncio.run(reading.step([one]))
    assert (one.shards, one.ahead, one.is_due) == (ALL, at(10), True)


def test_nothing_is_read_while_two_become_one() -> None:
    log, (one, other) = BusyLog(), halves()
    reading, ownership = works_of(log, one, other)

    async def read_meanwhile() -> None:
        await reading.step([one])
        assert reading.wanting() == []

    log.while_joining = read_meanwhile
    asyncio.run(ownership.join())
    assert (one.shards, one.ahead, one.is_due) == (ALL, at(10), True)


def test_the_fewer_events_are_for_one_the_further_its_reads_look() -> None:
    """R13: what a read looks at and does not bring is what it costs the server; a log of one's own has none of it."""
    one, looked = reader("one", 10), []

    @attrs.define
    class Noting(Log):
        async def read(self, *asked: Any) -> Found:
            looked.append(asked[-1].look_times)
            return self.found

    few = Noting(Found([], at(30), is_full=True, revision=1))
    for _ in range(5):
        read_for(few, one)
    many = Noting(Found([object()] * 100, at(40), is_full=True, revision=1))  # type: ignore[list-item]
    for _ in range(5):
        read_for(many, one)
    assert looked == [1, 2, 4, 8, 8, 8, 4, 2, 1, 1]


def test_what_is_one_relays_as_a_whole_is_that_of_the_newest_code() -> None:
    """R9, R16: nobody else would take what older code leaves of it."""
    older, newer = (
        {"a.made": 1, "a.sent": 2},
        [{"a.made": 1, "a.sent": 3}, {"a.made": 1, "a.sent": 2, "a.new": 1}, {"a.sent": 3}],
    )
    for abilities in newer:
        carriers: dict[UUID, dict[str, int]] = {uuid4(): older for _ in range(20)}
        newest = uuid4()
        carriers[newest] = abilities
        assert falls_to("h", 0, carriers, as_a_whole=True) == newest
        assert {falls_to("h", shard, carriers, as_a_whole=False) for shard in range(32)} == {*carriers}


def test_of_which_code_is_newer_than_the_next_in_a_ring_any_is_as_good() -> None:
    """R9: every relay finds the same."""
    ring: dict[UUID, dict[str, int]] = {
        uuid4(): abilities for abilities in ({"a": 2, "b": 1}, {"b": 2, "c": 1}, {"c": 2, "a": 1})
    }
    assert falls_to("h", 0, ring, as_a_whole=True) in ring
    assert len({falls_to("h", shard, ring, as_a_whole=True) for shard in range(32)}) == 1
