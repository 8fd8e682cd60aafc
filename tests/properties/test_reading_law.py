"""Reading by position and snapshot neither loses, repeats nor inverts an event, whoever writes and reads (R2b, R4)."""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from hypothesis import settings

from tests.bank import engine_of
from tests.domain import Announced, Noted
from tests.properties.reading_law import INNOCENT, Book
from tests.properties.wild import Wild, committed
from tests.relaying import Stage, handler
from tests.serving import serving

if TYPE_CHECKING:
    from outbox_kernel.kernel.handlers import HandlerRegistration

LONG = settings.get_current_profile_name() == "long"
EVENTS = int(os.environ.get("OUTBOX_LAW_EVENTS") or (1_000_000 if LONG else 10_000))
STAYS = 5
DRAIN_SECONDS_MAX = 300.0


def carried(book: Book) -> list[HandlerRegistration]:
    """A handler that waits for nothing, one that lets others go first, and one that is for half of it."""

    async def think(event: Any) -> None:
        await asyncio.sleep(0)

    return [
        handler("plain", book.of("plain"), Noted, Announced),
        handler("thoughtful", book.of("thoughtful", think), Noted, Announced),
        handler("narrow", book.of("narrow"), Noted),
    ]


async def come_and_go(stage: Stage, book: Book, wild: Wild) -> None:
    """Another relay joins and leaves, again and again; it is never cut off, which may repeat what was in hand."""
    for turn in range(STAYS):
        await wild.reached(turn / STAYS)
        async with serving(
            stage.relay(*carried(book), at=None, poll_interval_seconds=0.05, batch_size_max=20)
        ):
            await wild.reached((turn + 0.5) / STAYS)


@pytest.mark.asyncio
async def test_nothing_is_lost_repeated_or_inverted(bank_url: str, request: pytest.FixtureRequest) -> None:
    """R2b: OUTBOX_LAW_EVENTS says with how many."""
    seed = str(request.config.getoption("--hypothesis-seed"))
    book, witness, engine = Book(), await asyncpg.connect(bank_url), engine_of(bank_url)
    stage = await Stage.on(engine, witness)
    wild = Wild(bank_url, random.Random(seed), EVENTS)
    staying = stage.relay(*carried(book), at=None, poll_interval_seconds=0.05, batch_size_max=20)
    async with serving(staying):
        await asyncio.gather(wild.write(), come_and_go(stage, book, wild))
    async with asyncio.timeout(DRAIN_SECONDS_MAX):
        await stage.relay(*carried(book), at=None).run_until_idle()
    there = await committed(witness)
    await stage.close()
    await witness.close()
    await engine.dispose()
    assert len(there) > EVENTS / 2
    due = {"plain": there, "thoughtful": there, "narrow": {each for each in there if each.is_noted}}
    assert {name: book.judge(name, due[name]) for name in due} == dict.fromkeys(due, INNOCENT)
