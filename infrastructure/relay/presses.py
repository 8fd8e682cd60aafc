"""All publishers of a relay (R2, R7)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.relay.publishing import TAKEN_MAX, Press

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outbox_kernel.infrastructure.relay.lanes import Turn
    from outbox_kernel.infrastructure.relay.pausing import Pause
    from outbox_kernel.infrastructure.relay.work import EventWork


@attrs.define(eq=False)
class Presses:
    """A press for each publisher that this relay carries."""

    each: dict[str, Press] = attrs.Factory(dict)
    others: Mapping[str, Pause] = attrs.Factory(dict)
    """What else is paused in this process."""
    changed: asyncio.Event = attrs.Factory(asyncio.Event)
    """Set when a pause has begun or ended."""

    def open(self) -> None:
        """Begin to connect."""
        for press in self.each.values():
            press.pausing.open()

    async def known(self) -> None:
        """Return when it is known which brokers are there."""
        for press in self.each.values():
            await press.pausing.known.wait()

    @property
    def room(self) -> int:
        """How much more the fullest of them may take."""
        return min((press.room for press in self.each.values()), default=TAKEN_MAX)

    @property
    def at_rest(self) -> bool:
        """Whether nothing is on its way."""
        return all(press.at_rest for press in self.each.values())

    @property
    def pauses(self) -> dict[str, Pause]:
        """Who is paused, and why."""
        found = {name: press.pausing.pause for name, press in self.each.items() if press.pausing.pause}
        return {**found, **self.others}

    def take(self, works: Iterable[EventWork]) -> None:
        """Publish events out of their first pass."""
        for work in works:
            for carried in work.posts:
                self.each[carried.name].take(work)

    def take_turns(self, turns: Iterable[Turn]) -> None:
        """Publish deliveries."""
        for turn in turns:
            self.each[turn.items[0].carried.name].take_turn(turn)

    def watch(self) -> None:
        """Watch them all."""
        for press in self.each.values():
            press.watch()

    def release(self) -> None:
        """Begin nothing more."""
        for press in self.each.values():
            press.release()

    async def end_all(self) -> None:
        """End what is on its way."""
        for press in self.each.values():
            await press.end_all()

    def forget(self) -> None:
        """Let go of everything: the lease is lost."""
        for press in self.each.values():
            press.forget()

    async def close(self) -> None:
        """Hang up."""
        for press in self.each.values():
            await press.close()
