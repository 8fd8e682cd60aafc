"""Searching events: the log is walked, the newest first, for a moment, and what was found says how far that was (O3).

Where an aggregate is named its own stream is walked, which the index has, however many events lie between its own.

Nothing is promised of what was not looked at: an answer has the moment up to which it holds, and where to look further.
What an event says is searched in what may be seen of it, or whoever may search could guess a secret letter by letter.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.operations.limits import (
    FOUND_EMITTED_MAX,
    FOUND_EVENTS_MAX,
    PAYLOADS_MAX,
    SEARCH_SECONDS_MAX,
    STRETCH_EVENTS,
)
from outbox_kernel.infrastructure.operations.masking import presentable, read
from outbox_kernel.infrastructure.operations.selection import type_pattern
from outbox_kernel.infrastructure.operations.stories import Event
from outbox_kernel.infrastructure.outbox.sql.searching import (
    BEHIND_LAST,
    HAS_MANY_EMITTED,
    PAYLOADS,
    WALK,
    WALK_STREAM,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.operations.selection import AggregateKey, Moment
    from outbox_kernel.infrastructure.outbox.sql.named import Statement


@attrs.frozen(kw_only=True)
class Query:
    """What is looked for; nothing said: any event."""

    event_type: str | None = None
    aggregate: AggregateKey | None = None
    status: str | None = None
    words: str | None = None
    """Somewhere in the payload."""
    since: Moment | None = None
    until: Moment | None = None

    @property
    def asks(self) -> bool:
        """Whether it leaves anything out."""
        return any(attrs.astuple(self, recurse=False))


@attrs.frozen
class Found:
    """Some events, the newest first, and how far was looked for them."""

    events: list[Event]
    next: int | None
    """The position before which to look on; None: there is nothing more."""
    looked_at: int
    reached_at: datetime | None
    """When the last that was looked at was stored."""

    @property
    def is_short(self) -> bool:
        """Whether there may be more although the page is not full."""
        return self.next is not None and len(self.events) < FOUND_EVENTS_MAX


@attrs.define
class _Walk:
    """Where a search is."""

    before: int
    first: int
    by: Statement
    asked: Mapping[str, Any]
    events: list[Event] = attrs.Factory(list)
    looked_at: int = 0
    reached_at: datetime | None = None
    is_over: bool = False


async def search(
    desk: Desk,
    query: Query,
    before: int | None = None,
    *,
    now: Callable[[], float] = time.monotonic,
) -> Found:
    """Look for events before a position, or from the newest on, until a page is full or the time is over."""
    by, whose = await _stream_of(desk, query.aggregate)
    walk = _Walk(
        before=before or await _end(desk, query),
        first=await query.since.position(desk) if query.since else 0,
        by=by,
        asked={
            **whose,
            "pattern": type_pattern([query.event_type]) if query.event_type else None,
            "words": [_like(each) for each in _writings(query.words)] if query.words else None,
            "status": query.status,
        },
    )
    until = now() + SEARCH_SECONDS_MAX
    # What nothing is asked of is found at once.
    look_max = STRETCH_EVENTS if query.asks else FOUND_EVENTS_MAX
    while not walk.is_over and len(walk.events) < FOUND_EVENTS_MAX:
        await _step(desk, walk, query.words, look_max)
        if now() >= until:
            break
    return Found(walk.events, None if walk.is_over else walk.before, walk.looked_at, walk.reached_at)


async def _stream_of(desk: Desk, aggregate: AggregateKey | None) -> tuple[Statement, dict[str, Any]]:
    """Return by what to walk, and whose events: an aggregate's own stream is the shortest way to them."""
    if aggregate is None:
        return WALK, {"types": None, "ids": None}
    whose = {"types": await aggregate.types(desk), "ids": aggregate.ids}
    if (await desk.run_one(HAS_MANY_EMITTED, **whose, emitted_max=FOUND_EMITTED_MAX))["has_many"]:
        return WALK, whose
    return WALK_STREAM, {**whose, "emitted_max": FOUND_EMITTED_MAX}


async def _end(desk: Desk, query: Query) -> int:
    if query.until is not None:
        return await query.until.position(desk)
    position: int = (await desk.run_one(BEHIND_LAST))["position"]
    return position


async def _step(desk: Desk, walk: _Walk, words: str | None, look_max: int) -> None:
    """Look at one stretch; with a full page it ends at the last that is on it."""
    wanted = FOUND_EVENTS_MAX - len(walk.events)
    rows = [
        dict(row)
        for row in await desk.run(
            walk.by,
            before=walk.before,
            first=walk.first,
            look_max=look_max,
            events_max=look_max if words else wanted,
            **walk.asked,
        )
    ]
    # The same in each row, of which there is one at least.
    [(reached, reached_at, looked_at), *_] = [
        (row.pop("reached"), row.pop("reached_at"), row.pop("looked_at")) for row in rows
    ]
    found = [Event(**row) for row in rows if row["position"] is not None]
    if words:
        found = await _saying(desk, found, words, wanted)
    walk.events += found
    walk.looked_at += looked_at
    walk.reached_at = reached_at or walk.reached_at
    if len(found) == wanted:
        walk.before, walk.reached_at = found[-1].position, found[-1].created_at
    elif looked_at < look_max:
        walk.is_over = True
    else:
        walk.before = reached


async def _saying(desk: Desk, found: Sequence[Event], words: str, wanted: int) -> list[Event]:
    """Return those, up to so many, that say it where everybody may read it."""
    kept: list[Event] = []
    for start in range(0, len(found), PAYLOADS_MAX):
        some = found[start : start + PAYLOADS_MAX]
        rows = await desk.run(PAYLOADS, positions=[event.position for event in some])
        said = {row["position"] for row in rows if _says(row, words)}
        kept += [event for event in some if event.position in said]
        if len(kept) >= wanted:
            return kept[:wanted]
    return kept


def _says(row: Mapping[str, Any], words: str) -> bool:
    payload, _ = presentable(row["event_type"], read(row["payload"]))
    # As the server writes it, which has found it so.
    text = json.dumps(payload, ensure_ascii=False, default=str).casefold()
    return any(each.casefold() in text for each in _writings(words))


def _writings(words: str) -> set[str]:
    """Return the words as they are, which may be a piece of JSON, and as JSON writes them within a text."""
    return {words, json.dumps(words, ensure_ascii=False)[1:-1]}


def _like(words: str) -> str:
    r"""Return what ILIKE finds these words by, whatever is in them."""
    escaped = words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
