"""A history in which each sentence of the law of reading is needed, told step by step to a relay of the product."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.outbox.sql import reading as sql
from outbox_kernel.infrastructure.outbox.sql.named import Statement
from outbox_kernel.infrastructure.relay.log import Log
from tests.domain import Announced, Noted
from tests.properties.reading_law import Book, Verdict
from tests.properties.wild import committed, put
from tests.relaying import connected, handler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from outbox_kernel.infrastructure.relay.shift import Shift
    from tests.relaying import Stage

# Some need that no transaction of another database of this server ends in between; not each time is one so unlucky.
TIMES = 10
HOURS_LATER = 7200.0
# In the end, so that whatever waits has its turn.
ROUNDS = 5
NAME = "h"


@attrs.define(eq=False)
class Hardships:
    """What a relay goes through, and what it did."""

    stage: Stage
    writers: list[Any]
    book: Book = attrs.Factory(Book)
    after_read: list[Callable[[], Awaitable[None]]] = attrs.Factory(list)
    """What happens between a read and what is made of it."""
    cuts: bool = False
    """Whether the connection breaks when rows are written."""
    _fails: set[str] = attrs.Factory(set)
    _hangs: set[str] = attrs.Factory(set)
    _hung: asyncio.Event = attrs.Factory(asyncio.Event)
    _aggregates: int = 0

    @classmethod
    @asynccontextmanager
    async def on(
        cls, stage: Stage, url: str, monkeypatch: pytest.MonkeyPatch, *, glances: bool
    ) -> AsyncIterator[Hardships]:
        async with AsyncExitStack() as stack:
            writers = [await connected(url) for _ in range(3)]
            for each in writers:
                stack.push_async_callback(each.close)
            told = cls(stage, writers)
            told._stand_between(monkeypatch, glances=glances)
            yield told

    def _stand_between(self, monkeypatch: pytest.MonkeyPatch, *, glances: bool) -> None:
        read, glance, run = Log.read, Log.glance, Log.run

        async def read_on(log: Log, *arguments: Any) -> Any:
            return await self._read_on(await read(log, *arguments))

        async def glance_on(log: Log, *arguments: Any) -> Any:
            found = await glance(log, *arguments) if glances else None
            return found and await self._read_on(found)

        async def run_or_break(log: Log, statement: Any, *arguments: Any, **values: Any) -> Any:
            if self.cuts and "places" in values:
                self.cuts = False
                raise DatabaseUnreachable("the connection broke")
            return await run(log, statement, *arguments, **values)

        monkeypatch.setattr(Log, "read", read_on)
        monkeypatch.setattr(Log, "glance", glance_on)
        monkeypatch.setattr(Log, "run", run_or_break)

    async def _read_on(self, found: Any) -> Any:
        while self.after_read:
            await self.after_read.pop()()
        return found

    # --- the whole of it ----------------------------------------------------------------------------

    async def go_through(self) -> Verdict:
        """Go through all of it, and return what the law says."""
        for _ in range(TIMES):
            async with self._relay() as shift:
                await self._late_and_in_the_list(shift)
                await self._late_and_in_no_list(shift)
                await self._late_between_read_and_snapshot(shift)
            await self._more_is_late_than_is_read_at_once()
        if (verdict := await self._judged()).repeated:
            return verdict  # what stands twice in a batch cannot even be written, should it fail
        await self._cut_off_in_a_run()
        await self._cut_off_at_writing()
        async with self._relay() as shift:
            await self._parked(shift)
        for later in range(ROUNDS):
            # Not until it is idle: who repeats never is.
            await self.stage.relay(self._handler(), at=(later + 1) * HOURS_LATER).run_once()
        return await self._judged()

    async def _judged(self) -> Verdict:
        return self.book.judge(NAME, await committed(self.stage.witness))

    async def _late_and_in_the_list(self, shift: Shift) -> None:
        late, other, another = self.writers
        async with _committed_at_the_end(late):
            await put(late, self._aggregate(), 1)
            await put(other, self._aggregate(), 1)
            await put(another, self._aggregate(), 1)
            await _read(shift)
            await shift.finish_in_hand()
        await _read(shift)
        await shift.finish_in_hand()

    async def _late_and_in_no_list(self, shift: Shift) -> None:
        """It has the newest transaction id of all, and a lower position than one that committed before it."""
        late, other, _ = self.writers
        async with _committed_at_the_end(late):
            async with _committed_at_the_end(other):
                await other.fetchval("SELECT pg_current_xact_id()")
                await put(late, self._aggregate(), 1)
                await put(other, self._aggregate(), 1)
            await _read(shift)
        await _read(shift)
        await shift.finish_in_hand()

    async def _late_between_read_and_snapshot(self, shift: Shift) -> None:
        late, other, _ = self.writers
        transaction = late.transaction()
        await transaction.start()
        await put(late, self._aggregate(), 1)
        await put(other, self._aggregate(), 1)
        self.after_read.append(transaction.commit)
        for _ in range(2):
            await _read(shift)
            await shift.finish_in_hand()

    async def _more_is_late_than_is_read_at_once(self) -> None:
        """Two commit late, the second while what the first has written is read."""
        first, second, other = self.writers
        async with self._relay(batch_size_max=2) as shift, _committed_at_the_end(second):
            async with _committed_at_the_end(first):
                aggregate = self._aggregate()
                for version in range(1, 6):
                    await put(first, aggregate, version)
                await put(second, self._aggregate(), 1)
                await put(other, self._aggregate(), 1)
                await _read(shift)
                await shift.finish_in_hand()
            await _read(shift)
            await shift.finish_in_hand()
        async with self._relay(batch_size_max=2) as shift:
            await put(first, aggregate, 6)
            for _ in range(6):
                await _read(shift)
                await shift.finish_in_hand()

    async def _cut_off_in_a_run(self) -> None:
        aggregate = self._aggregate()
        self._hangs.add(f"{aggregate}:1")
        async with self._relay() as shift:
            await put(self.writers[0], aggregate, 1)
            await _read(shift)
            await self._hung.wait()

    async def _cut_off_at_writing(self) -> None:
        aggregate = self._aggregate()
        async with self._relay() as shift:
            await _read(shift)
            await shift.finish_in_hand()
            self._fails.add(f"{aggregate}:1")
            await put(self.writers[0], aggregate, 1)
            await _read(shift)
            self.cuts = True
            with pytest.raises(DatabaseUnreachable):
                await shift.finish_in_hand()

    async def _parked(self, shift: Shift) -> None:
        """One event fails; the next of its aggregate is in the same batch, one more comes when both are rows."""
        aggregate = self._aggregate()
        self._fails.add(f"{aggregate}:1")
        for version in (1, 2):
            await put(self.writers[0], aggregate, version)
        await _read(shift)
        await shift.finish_in_hand()
        await put(self.writers[0], aggregate, 3)
        await _read(shift)
        await shift.finish_in_hand()

    # --- its parts ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _relay(self, **settings: Any) -> AsyncIterator[Shift]:
        """A relay under one lease, which does nothing by itself; at the end it lets go of what it has."""
        relay = self.stage.relay(self._handler(), **settings)
        async with relay._shift_begun(takes_all=True) as shift:  # noqa: SLF001 - to lead it by the hand
            yield shift
        await relay._end()  # noqa: SLF001 - as above

    def _handler(self) -> Any:
        return handler(NAME, self.book.of(NAME, self._act), Noted, Announced)

    async def _act(self, event: Any) -> None:
        if event.what in self._fails:
            self._fails.remove(event.what)
            raise ValueError("not today")
        if event.what in self._hangs:
            self._hangs.remove(event.what)
            self._hung.set()
            await asyncio.Event().wait()

    def _aggregate(self) -> int:
        self._aggregates += 1
        return self._aggregates


async def _read(shift: Shift) -> None:
    shift.reading.look()
    for wanting in shift.reading.groups():
        await shift.reading.step(wanting)


@asynccontextmanager
async def _committed_at_the_end(connection: Any) -> AsyncIterator[None]:
    async with connection.transaction():
        yield


def rewrite_read(monkeypatch: pytest.MonkeyPatch, old: str, new: str, *, read: str = "read") -> None:
    """Read by another statement."""
    written = getattr(sql, read)

    def rewritten(**narrowed: bool) -> Statement:
        text = written(**narrowed).text
        assert old in text, old
        return Statement(text.replace(old, new))

    monkeypatch.setattr(sql, read, rewritten)


def rewrite_glance(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """Glance by another statement."""
    assert old in sql.GLANCE.text, old
    monkeypatch.setattr(sql, "GLANCE", Statement(sql.GLANCE.text.replace(old, new)))
