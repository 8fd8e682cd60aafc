"""A signal lets go on who waits for it, and nobody waits for longer than he wants to (R12)."""

from __future__ import annotations

import asyncio

from outbox_kernel.infrastructure.waiting import Signal


async def test_who_waits_goes_on_when_it_is_set() -> None:
    signal = Signal()
    waiting = [asyncio.create_task(signal.wait(seconds)) for seconds in (None, 3600)]
    await asyncio.sleep(0)
    signal.set()
    assert await asyncio.gather(*waiting) == [True, True]
    assert signal.is_set()
    assert await signal.wait()


async def test_who_has_waited_for_so_long_is_told_that_it_is_not_set() -> None:
    signal = Signal()
    assert not await signal.wait(0)
    assert not await signal.wait(-1)


async def test_once_cleared_it_is_waited_for_again() -> None:
    signal = Signal()
    signal.set()
    signal.clear()
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    signal.set()
    assert await waiting


async def test_who_was_let_go_on_is_so_even_if_it_is_cleared_at_once() -> None:
    signal = Signal()
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    signal.set()
    signal.clear()
    assert await waiting


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    signal = Signal()
    waiting = asyncio.create_task(signal.wait(3600))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    signal.set()
    assert await signal.wait(0)
