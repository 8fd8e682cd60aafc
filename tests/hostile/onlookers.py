"""All who look at an outbox, and what they do about what they see: each is to answer, whatever is in it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.dashboard import Dashboard
from outbox_kernel.infrastructure.operations import (
    Desk,
    Selection,
    dead_letters,
    glance,
    searching,
    series,
    stories,
)
from outbox_kernel.infrastructure.operations.gauges import Gauges
from outbox_kernel.infrastructure.operations.health_of_ground import examine_ground
from outbox_kernel.infrastructure.operations.health_of_tables import examine_tables
from outbox_kernel.infrastructure.operations.health_of_work import examine_work
from outbox_kernel.infrastructure.operations.lineage import lineage
from outbox_kernel.infrastructure.operations.mending import choose_for_retry, choose_for_skip, retry, skip
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.operations.purging import purge
from outbox_kernel.infrastructure.operations.selection import NothingFound
from outbox_kernel.infrastructure.outbox.views import EVENT_STATES
from outbox_kernel.infrastructure.settings import Settings
from tests.visiting import Page, visiting

SETTINGS = Settings(contexts=())
PAGES = (
    "/",
    "/?window=7d",
    "/events",
    "/events?text=bad",
    "/subscriptions",
    "/dead-letters",
    "/relays",
    "/confirm/purge",
)
PAGES_OF = ("/subscription?name={}", "/dead-letters/of?handler={}", "/confirm/skip?handler={}")
# The driver has no moments beyond Python's; who reads by psql has.
VIEWS = "SELECT status.*, outbox.* FROM outbox_status AS status JOIN outbox ON outbox.id = status.event_id"
READ_VIEWS = f"SELECT count(*) FROM ({VIEWS}) AS seen WHERE seen::text <> ''"


async def look(desk: Desk, event_ids: list[UUID], handlers: Sequence[str]) -> None:
    """Ask for all that there is to know of these events, as commands do, and as a reader of the views."""
    await desk.connection.fetchval(READ_VIEWS)
    for status in (None, *EVENT_STATES):
        await stories.events(desk, status=status, limit=1_000)
    await stories.failed(desk, 1_000)
    await searching.search(desk, searching.Query(words="bad"))
    await glance.glance(desk)
    await series.latencies(desk)
    for event_id in event_ids:
        assert (await stories.show(desk, event_id)).event_id == event_id
        await lineage(desk, event_id)
    for name in handlers:
        await dead_letters.letters(desk, dead_letters.Meant(handler=name))
    await dead_letters.groups(desk, groups_max=100)
    for check in (
        *await examine_ground(desk),
        *await examine_tables(desk),
        *await examine_work(desk, await overview(desk)),
    ):
        assert check.detail


async def browse(engine: AsyncEngine, event_ids: list[UUID], handlers: Sequence[str]) -> None:
    """Look at every page about these events, and at the numbers for graphs."""
    gauges = Gauges(engine)
    try:
        await gauges()
    finally:
        await gauges.close()
    async with visiting(Dashboard(SETTINGS, engine)) as visitor:
        waiting = [*PAGES, *(f"/events/{each}" for each in event_ids)]
        for name in map(quote, handlers):
            waiting += [path.format(name) for path in PAGES_OF]
        of_aggregates: set[str] = set()
        for path in waiting:
            answer = await visitor.client.get(path, follow_redirects=True)
            assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
            of_aggregates |= {each for each in Page(answer.text).links if each.startswith("/aggregate")}
        for path in of_aggregates:
            # A key may lie about the id that it stands beside.
            assert (await visitor.client.get(path)).status_code in (200, 404), path


async def mend(desk: Desk, handlers: Sequence[str]) -> None:
    """Have what is dead run again."""
    await _each(desk, handlers, choose_for_retry, retry)


async def let_go(desk: Desk, handlers: Sequence[str]) -> None:
    """Let all go that is dead, and have what is delivered deleted."""
    await _each(desk, handlers, choose_for_skip, skip)
    await purge(desk, 0)


async def _each(desk: Desk, handlers: Sequence[str], choose: Any, change: Any) -> None:
    for name in handlers:
        with suppress(NothingFound):
            await change(desk, await choose(desk, Selection(handler=name)))
