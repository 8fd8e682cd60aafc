"""The connections of a shift: what was in one when it broke nobody knows, so none is opened a second time (R12)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

import attrs

from outbox_kernel.infrastructure.relay.line import Line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.ext.asyncio import AsyncEngine


@attrs.frozen
class Lines:
    """Each is for one kind of statement."""

    read: Line
    write: Line
    control: Line

    @classmethod
    @asynccontextmanager
    async def of(cls, engine: AsyncEngine) -> AsyncIterator[Self]:
        """Open each when it is first used, and close all at the end."""
        lines = cls(*(Line(engine, reopens=False) for _ in range(3)))
        try:
            yield lines
        finally:
            for line in lines.each:
                await line.close()

    @property
    def each(self) -> tuple[Line, ...]:
        """Return all of them."""
        return self.read, self.write, self.control

    def check(self) -> None:
        """Raise if one is lost."""
        for line in self.each:
            line.check()
