"""What a scene may use: the container, and a few ways to show what the database holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from outbox_kernel.infrastructure.operations.desk import desk
from outbox_kernel.infrastructure.operations.opening import opened
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from lagom import Container

    from outbox_kernel.infrastructure.demo.readings import Readings
    from outbox_kernel.kernel import DomainEvent


class Printer(Protocol):
    """Shows things as they happen, to people; programs get the record when all is over."""

    def title(self, number: int, title: str) -> None:
        """A scene begins."""

    def say(self, sentence: str) -> None:
        """A sentence."""

    def counts(self, caption: str, counts: dict[str, int]) -> None:
        """How many rows each table has."""

    def events(self, rows: list[dict[str, Any]]) -> None:
        """Rows of the outbox."""

    def check(self, sentence: str, *, holds: bool) -> None:
        """A promise, kept or not."""


class Stage:
    """Where scenes are played: it shows, and remembers what was shown."""

    _readings: Readings

    def __init__(self, container: Container, printer: Printer) -> None:
        self.container = container
        self.record: list[dict[str, Any]] = []
        self.holds = True
        self._printer = printer
        self._shown_up_to = 0

    async def begin(self, title: str, readings: Readings) -> None:
        """Raise the curtain on the next scene, which shows what these read and is committed from now on."""
        self._readings = readings
        async with self.container[AsyncEngine].connect() as connection:
            self._shown_up_to = await readings.newest_position(connection)
        self.record.append({"title": title, "shown": []})
        self._printer.title(len(self.record), title)

    def say(self, sentence: str) -> None:
        """Tell what is going on."""
        self._shown({"say": sentence})
        self._printer.say(sentence)

    async def show_counts(self, caption: str, connection: AsyncConnection | None = None) -> dict[str, int]:
        """Count the rows of each table, as a connection sees them or else as all do; return the counts."""
        if connection is None:
            async with self.container[AsyncEngine].connect() as committed:
                return await self.show_counts(caption, committed)
        counts = await self._readings.counts(connection)
        self._shown({"caption": caption, "counts": counts})
        self._printer.counts(caption, counts)
        return counts

    async def show_events(self) -> list[dict[str, Any]]:
        """Show the outbox rows that were committed since the last time in this scene, and return them."""
        async with self.container[AsyncEngine].connect() as connection:
            rows = await self._readings.events_after(connection, self._shown_up_to)
        if rows:
            self._shown_up_to = rows[-1]["position"]
        self._shown({"events": rows})
        self._printer.events(rows)
        return rows

    async def told(self, event_type: str) -> list[DomainEvent]:
        """Return all events of a type as a handler gets them, and show none."""
        settings = self.container[Settings]
        async with desk(settings, self.container[AsyncEngine]) as at:
            return await opened(at, event_type, settings.master_keys)

    def check(self, sentence: str, *, holds: bool) -> None:
        """Show whether a promise held; the demo succeeds only if all did."""
        self.holds = self.holds and holds
        self._shown({"check": sentence, "holds": holds})
        self._printer.check(sentence, holds=holds)

    def _shown(self, what: dict[str, Any]) -> None:
        self.record[-1]["shown"].append(what)


Scene = Callable[[Stage], Awaitable[None]]
