"""Doing something at a desk, and telling of it whichever way it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from outbox_kernel.infrastructure.dashboard.audit import note_action
from outbox_kernel.infrastructure.dashboard.sealing import Notice
from outbox_kernel.infrastructure.dashboard.words import in_a_browser, sentence
from outbox_kernel.infrastructure.errors import DatabaseRefusal
from outbox_kernel.kernel.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.visit import Visit
    from outbox_kernel.infrastructure.operations import Desk

R = TypeVar("R")


async def done(
    visit: Visit,
    action: str,
    about: dict[str, object],
    work: Callable[[Desk], Awaitable[R]],
    told: Callable[[R], tuple[str, dict[str, object]]],
    back: tuple[str, dict[str, object]],
) -> Response:
    """Do it, write down who did it and what it came to, and lead back with a sentence."""
    path, query = back
    try:
        async with visit.board.acting() as desk:
            result = await work(desk)
    except KernelError as error:
        note_action(action, visit.request, visit.operator, **about, outcome="refused", error=str(error))
        if isinstance(error, DatabaseRefusal):
            raise
        return visit.done(Notice(sentence(in_a_browser(str(error))), is_good=False), path, **query)
    except BaseException:
        # What of it has committed is there: whoever looks for it later finds who began it.
        note_action(action, visit.request, visit.operator, **about, outcome="broken off")
        raise
    said, came_to = told(result)
    note_action(action, visit.request, visit.operator, **about, outcome="done", **came_to)
    return visit.done(Notice(sentence(said)), path, **query)
