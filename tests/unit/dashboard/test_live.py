"""Whoever listens hears when something has happened, and nobody looks for nobody (O3)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from outbox_kernel.infrastructure.dashboard import live
from outbox_kernel.infrastructure.dashboard.live import Live
from outbox_kernel.infrastructure.errors import DatabaseUnreachable


class World:
    """What is looked at; each look waits to be let."""

    def __init__(self) -> None:
        self.seen: object = 0
        self.looks = 0
        self.error: Exception | None = None
        self.turn = asyncio.Semaphore(0)
        self.live = Live(self.look, pause=self.pause)

    async def look(self) -> object:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.seen

    async def pause(self, _: float) -> None:
        await self.turn.acquire()

    async def has_looked(self, times: int) -> None:
        while self.looks < times:  # noqa: ASYNC110 - a turn of the loop away
            await asyncio.sleep(0)


def tick(number: int) -> str:
    return f"event: tick\ndata: {number}\n\n"


async def test_a_change_is_told_to_all_who_listen() -> None:
    world = World()
    async with aclosing(world.live.listen()) as one, aclosing(world.live.listen()) as other:
        for each in (one, other):
            assert (await anext(each)).startswith("retry: ")
            # At once, whatever has happened since the page was made.
            assert await anext(each) == tick(0)
        # The first look finds something new, whatever it is.
        assert [await anext(one), await anext(other)] == [tick(1)] * 2
        waiting = asyncio.ensure_future(anext(one))
        world.turn.release()
        await world.has_looked(2)
        assert not waiting.done()
        world.seen = 1
        world.turn.release()
        assert await waiting == tick(2)
        assert await anext(other) == tick(2)


async def test_while_nobody_listens_nobody_looks() -> None:
    world = World()
    assert world.looks == 0
    async with aclosing(world.live.listen()) as words:
        await anext(words)
        await world.has_looked(1)
        assert world.live.listeners == 1
    assert world.live.listeners == 0
    world.turn.release()
    await asyncio.sleep(0)
    assert world.looks == 1


async def test_a_database_that_is_away_is_waited_for() -> None:
    world = World()
    world.error = DatabaseUnreachable("nothing answers")
    async with aclosing(world.live.listen()) as words:
        await anext(words)
        await anext(words)
        waiting = asyncio.ensure_future(anext(words))
        await world.has_looked(1)
        world.error = None
        world.turn.release()
        assert await waiting == tick(1)


async def test_a_look_that_fails_for_a_reason_nobody_thought_of_is_told_and_not_the_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As while somebody migrates: a page that stands still and says that it is live is worse than none."""
    world = World()
    world.error = ValueError("no such column")
    async with aclosing(world.live.listen()) as words:
        await anext(words)
        await anext(words)
        waiting = asyncio.ensure_future(anext(words))
        await world.has_looked(1)
        world.error = None
        world.turn.release()
        async with asyncio.timeout(5):
            assert await waiting == tick(1)
    [record] = caplog.records
    assert vars(record)["action"] == "dashboard.live.failed"
    assert "no such column" in caplog.text


async def test_a_quiet_while_is_told_of_too_since_times_on_a_page_grow_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "QUIET_SECONDS_MAX", 0.0)
    world = World()
    async with aclosing(world.live.listen()) as words:
        await anext(words)
        assert (await anext(words)).startswith("event: tick")
        assert (await anext(words)).startswith("event: tick")


async def test_a_stream_ends_after_a_while_so_that_a_browser_is_asked_again_who_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "STREAM_SECONDS_MAX", 0.0)
    async with aclosing(World().live.listen()) as words:
        assert [word async for word in words] == ["retry: 2000\n\n"]


async def test_a_server_that_stops_ends_all_streams() -> None:
    world = World()
    async with aclosing(world.live.listen()) as words:
        for _ in range(3):
            await anext(words)
        waiting = asyncio.ensure_future(anext(words, "the end"))
        await asyncio.sleep(0)
        world.live.close()
        assert await waiting == "the end"
    async with aclosing(world.live.listen()) as words:
        assert [word async for word in words] == ["retry: 2000\n\n"]


async def test_more_than_so_many_may_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LISTENERS_MAX", 1)
    world = World()
    assert not world.live.is_full
    async with aclosing(world.live.listen()) as words:
        await anext(words)
        assert world.live.is_full
