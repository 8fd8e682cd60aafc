"""Playing: the sample goes on, so that pages have something to show live."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.outbox.sql import sample as sql
from outbox_kernel.infrastructure.sample.limits import BEAT_SECONDS, LEASE_SECONDS, WEEK_ORDERS
from outbox_kernel.infrastructure.sample.shop import SUBSCRIPTIONS, Fate
from outbox_kernel.infrastructure.sample.story import Story, columns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outbox_kernel.infrastructure.operations import Desk

_CHANCE = 0.05


async def play(desk: Desk, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    """Go on until cancelled: orders come in, relays live on, and what is retried succeeds."""
    # Beyond the numbers of the orders that are there, whenever it begins.
    number = WEEK_ORDERS + int((await desk.clock()).timestamp()) % 1_000_000
    while True:
        await beat(desk, number)
        number += 1
        await pause(BEAT_SECONDS)


async def beat(desk: Desk, number: int) -> None:
    """Let a moment pass."""
    fine = [each.name for each in SUBSCRIPTIONS if each.fate is Fate.FINE]
    async with desk.connection.transaction():
        await desk.run(sql.RENEW, lease_seconds=LEASE_SECONDS)
        if Random(number).random() < _CHANCE:  # noqa: S311 - nobody gains by guessing when somebody buys
            told = list(Story(await desk.clock(), number).order(number, 0.1))
            # An order is one aggregate that begins here; of a product nobody knows the number.
            told = [
                attrs.evolve(each, key=None, aggregate_type=None)
                if each.aggregate_type == "product"
                else each
                for each in told
            ]
            orders = [each for each in told if each.aggregate_type == "order"]
            for version, each in enumerate(orders, start=1):
                each.aggregate_version = version
            await desk.run(sql.EVENTS, **columns(told))
        await desk.run(sql.SUCCEED, names=fine)
    await desk.run(sql.MOVE, names=fine)
