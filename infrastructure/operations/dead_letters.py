"""Dead letters by what they died of: counted, listed, and let run again or let go, a batch at a time (O3, R7)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.operations.limits import (
    BATCH_MAX,
    BEHIND_MAX,
    GROUPS_MAX,
    LETTERS_MAX,
    LOOK_MAX,
    WORK_SECONDS_MAX,
)
from outbox_kernel.infrastructure.operations.mending import Chosen, change
from outbox_kernel.infrastructure.operations.selection import type_pattern
from outbox_kernel.infrastructure.outbox.sql import dead_letters as sql
from outbox_kernel.infrastructure.outbox.sql.operations import RETRY, RETRY_AGAIN, SKIP

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.operations.selection import AggregateKey, Moment
    from outbox_kernel.infrastructure.outbox.sql.named import Statement

_END = 2**62


@attrs.frozen(kw_only=True)
class Group:
    """Dead letters of one handler that died of the same."""

    handler: str
    kind: str
    """Their error without its numbers and ids."""
    deliveries: int
    position: int
    """Of the newest, as are the next two."""
    event_id: UUID
    error_message: str
    updated_at: datetime
    first_at: datetime
    """When the first of them died."""


@attrs.frozen(kw_only=True)
class Meant:
    """Which dead letters somebody means: all of a handler's, or fewer."""

    handler: str
    kind: str | None = None
    event_type: str | None = None
    aggregate: AggregateKey | None = None
    since: Moment | None = None
    """Died since."""

    @property
    def asks_of_events(self) -> bool:
        """Whether the index alone does not tell them."""
        return any((self.event_type, self.aggregate, self.since))

    async def arguments(self, desk: Desk) -> dict[str, Any]:
        """Return what the statements take of it."""
        of_kind = {} if self.kind is None else {"kind": self.kind}
        return {
            **of_kind,
            "handler": self.handler,
            "since": await self.since.resolved(desk) if self.since else None,
            "pattern": type_pattern([self.event_type]) if self.event_type else None,
            "types": await self.aggregate.types(desk) if self.aggregate else None,
            "ids": self.aggregate and self.aggregate.ids,
        }


@attrs.frozen(kw_only=True)
class Letter:
    """A dead letter."""

    position: int
    event_id: UUID
    handler: str
    order_key: str
    settled: bool
    """Whether later events of its order pass it."""
    attempts: int
    failed_at: datetime
    error_message: str | None
    kind: str
    half_done: bool
    event_type: str
    aggregate_type: str | None
    aggregate_id: UUID | None
    aggregate_key: str | None
    behind: int
    """How many wait for it to be settled, up to a limit."""


@attrs.frozen
class Letters:
    """A page of dead letters, the first of their turns first."""

    letters: list[Letter]
    next: int | None
    """The position beyond which the next page begins; None: there is none."""
    looked_at: int


@attrs.frozen
class Mended:
    """What was done about dead letters."""

    changed: int
    half_done: int
    """How many were left because their first effect would happen again."""
    left: int
    """How many had gone on meanwhile."""
    is_over: bool
    """Whether there was time for all that was meant."""


async def groups(desk: Desk, *, handler: str | None = None, groups_max: int = GROUPS_MAX) -> list[Group]:
    """Count dead letters by handler and error, the largest group first, and not more than so many."""
    return [Group(**row) for row in await desk.run(sql.GROUPS, handler=handler, groups_max=groups_max)]


async def counts(desk: Desk, handler: str | None = None) -> dict[str, int]:
    """Count dead letters by handler, all of them: groups may be more than anybody looks at."""
    return {row["handler"]: row["deliveries"] for row in await desk.run(sql.COUNTS, handler=handler)}


async def count_of(desk: Desk, handler: str, kind: str | None = None) -> int:
    """Count a handler's dead letters, by the index alone."""
    number: int = (await desk.run_one(sql.COUNT, handler=handler, kind=kind))["letters"]
    return number


async def letters(desk: Desk, meant: Meant, beyond: int = 0) -> Letters:
    """List dead letters beyond a position."""
    look_max = LOOK_MAX if meant.asks_of_events else LETTERS_MAX
    rows = [
        dict(row)
        for row in await desk.run(
            sql.letters(of_kind=meant.kind is not None),
            **await meant.arguments(desk),
            beyond=beyond,
            letters_max=LETTERS_MAX,
            look_max=look_max,
            behind_max=BEHIND_MAX,
        )
    ]
    # The same in each row, of which there is one at least.
    [(reached, looked_at), *_] = [(row.pop("reached"), row.pop("looked_at")) for row in rows]
    found = [Letter(**row) for row in rows if row["position"] is not None]
    if len(found) == LETTERS_MAX:
        return Letters(found, found[-1].position, looked_at)
    return Letters(found, reached if looked_at == look_max else None, looked_at)


@attrs.frozen
class Matching:
    """How many dead letters are meant."""

    deliveries: int
    half_done: int = 0
    """Of these."""
    is_at_least: bool = False
    """Whether there may be more: not all was looked at."""

    @classmethod
    def of(cls, chosen: Sequence[Chosen], *, is_at_least: bool = False) -> Matching:
        """Count those that were chosen."""
        return cls(len(chosen), sum(each.half_done for each in chosen), is_at_least)


async def matching(desk: Desk, meant: Meant) -> Matching:
    """Count what is meant."""
    if meant.asks_of_events:
        batch = await _batch(desk, meant, await meant.arguments(desk), 0, look_max=LOOK_MAX)
        return Matching.of(batch.chosen, is_at_least=batch.next is not None)
    half_done = await desk.run_one(sql.HALF_DONE, handler=meant.handler, kind=meant.kind)
    return Matching(await count_of(desk, meant.handler, meant.kind), half_done["letters"])


@attrs.frozen
class _Batch:
    chosen: list[Chosen]
    next: int | None


async def _batch(
    desk: Desk,
    meant: Meant,
    arguments: dict[str, Any],
    beyond: int,
    *,
    backwards: bool = False,
    look_max: int,
) -> _Batch:
    """Choose those that are meant among the next ones."""
    statement = sql.chosen(of_kind=meant.kind is not None, backwards=backwards)
    rows = await desk.run(statement, **arguments, beyond=beyond, letters_max=look_max, look_max=look_max)
    chosen = [
        Chosen(row["position"], row["event_id"], row["handler"], "dead", row["half_done"])
        for row in rows
        if row["position"] is not None
    ]
    return _Batch(chosen, rows[0]["reached"] if rows[0]["looked_at"] == look_max else None)


async def retry_meant(
    desk: Desk, meant: Meant, *, again: bool = False, now: Callable[[], float] = time.monotonic
) -> Mended:
    """Let all that is meant run again, the first of their turns first; what is half done only `again`."""
    return await _mend(desk, meant, RETRY_AGAIN if again else RETRY, backwards=False, now=now)


async def skip_meant(desk: Desk, meant: Meant, *, now: Callable[[], float] = time.monotonic) -> Mended:
    """Let all that is meant go, the last first: none gets its turn while others are let go."""
    return await _mend(desk, meant, SKIP, backwards=True, now=now)


async def _mend(
    desk: Desk, meant: Meant, statement: Statement, *, backwards: bool, now: Callable[[], float]
) -> Mended:
    until, beyond = now() + WORK_SECONDS_MAX, _END if backwards else 0
    arguments, tried, half_done, changed = await meant.arguments(desk), 0, 0, 0
    position: int | None = beyond
    while position is not None and now() < until:
        batch = await _batch(desk, meant, arguments, position, backwards=backwards, look_max=BATCH_MAX)
        ready = [each for each in batch.chosen if statement is not RETRY or not each.half_done]
        if ready:
            changed += await change(desk, ready, statement)
        tried, half_done = tried + len(ready), half_done + len(batch.chosen) - len(ready)
        position = batch.next
    if changed:
        await desk.wake_relays()
    return Mended(changed, half_done, tried - changed, is_over=position is None)


async def chosen_of(desk: Desk, handler: str, event_ids: Sequence[UUID]) -> list[Chosen]:
    """Find a handler's dead letters of some events, in the order of their turns."""
    rows = await desk.run(sql.OF_EVENTS, handler=handler, event_ids=list(event_ids))
    return [Chosen(*row) for row in rows]
