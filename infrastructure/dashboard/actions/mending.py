"""Retry and skip: of one delivery, of those that were chosen, or of all that a filter means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.dashboard.actions.doing import done
from outbox_kernel.infrastructure.dashboard.pages.meant import ids_of, meant_of, said_of
from outbox_kernel.infrastructure.dashboard.visit import own_path
from outbox_kernel.infrastructure.operations import dead_letters, mending
from outbox_kernel.infrastructure.operations.dead_letters import Mended
from outbox_kernel.infrastructure.operations.selection import Selection
from outbox_kernel.infrastructure.plain_text import count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.visit import Form, Visit
    from outbox_kernel.infrastructure.operations import Desk
    from outbox_kernel.infrastructure.operations.dead_letters import Meant
    from outbox_kernel.infrastructure.operations.mending import Change, Chosen


async def retry(visit: Visit, form: Form) -> Response:
    """Let deliveries run again, in order."""
    meant, chosen, about = _what(form)
    again = form.get("again") is not None

    async def work(desk: Desk) -> Mended:
        if not chosen:
            return await dead_letters.retry_meant(desk, meant, again=again)
        found = await _chosen(desk, meant, chosen, is_retry=True)
        return _mended(await mending.retry(desk, found, again=again))

    return await done(
        visit, "retry", {**about, "again": again}, work, lambda result: _told(result, "retried"), _back(form)
    )


async def skip(visit: Visit, form: Form) -> Response:
    """Let deliveries go without their effect."""
    meant, chosen, about = _what(form)

    async def work(desk: Desk) -> Mended:
        if not chosen:
            return await dead_letters.skip_meant(desk, meant)
        return _mended(await mending.skip(desk, await _chosen(desk, meant, chosen, is_retry=False)))

    return await done(visit, "skip", about, work, lambda result: _told(result, "skipped"), _back(form))


def _what(form: Form) -> tuple[Meant, list[UUID], dict[str, object]]:
    said = said_of(form.get)
    chosen = ids_of(form.all("event"))
    about: dict[str, object] = {name: value for name, value in said.items() if value is not None}
    if chosen:
        about["events"] = [str(each) for each in chosen]
    return meant_of(said), chosen, about


async def _chosen(desk: Desk, meant: Meant, chosen: Sequence[UUID], *, is_retry: bool) -> list[Chosen]:
    """Find what was chosen: of a single event all that an operator may mend, of many what is dead."""
    if len(chosen) > 1:
        return await dead_letters.chosen_of(desk, meant.handler, chosen)
    selection = Selection(chosen[0], meant.handler)
    if is_retry:
        return await mending.choose_for_retry(desk, selection)
    return await mending.choose_for_skip(desk, selection)


def _mended(change: Change) -> Mended:
    return Mended(change.changed, change.half_done, change.left, is_over=True)


def _told(result: Mended, word: str) -> tuple[str, dict[str, object]]:
    parts = [f"{count(result.changed, 'delivery', 'deliveries')} {word}"]
    if word == "retried" and result.changed:
        parts[0] += ": a relay runs " + ("it at its turn" if result.changed == 1 else "each at its turn")
    if result.half_done:
        parts.append(
            f"{count(result.half_done, 'delivery', 'deliveries')} left half done: a first effect has committed, "
            "which happens once more if they are retried with the tick for what stopped halfway"
        )
    if result.left:
        parts.append(f"{count(result.left, 'delivery', 'deliveries')} had gone on meanwhile and were left")
    if not result.is_over:
        parts.append("there was no time for all: do it once more for the rest")
    numbers: dict[str, object] = {
        "changed": result.changed,
        "half_done": result.half_done,
        "left": result.left,
        "is_over": result.is_over,
    }
    return "; ".join(parts), numbers


def _back(form: Form) -> tuple[str, dict[str, object]]:
    return own_path(form.get("back"), "/dead-letters"), {}
