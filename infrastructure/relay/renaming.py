"""Renaming: what handlers had under former names becomes theirs, for as long as old relays may run (R2, R13)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outbox_kernel.infrastructure.relay.line import Line
    from outbox_kernel.infrastructure.relay.store import Store

WINDOW_ROWS = 2_000
_FIRST_ID = UUID(int=0)


@attrs.define(eq=False)
class Renaming:
    """Remembers what is left to move, so that a name that changed long ago costs next to nothing."""

    store: Store
    names: Sequence[str]
    former: Sequence[str]
    _is_due: bool = True
    """Whether relays of older code may have been at work the last time: what they left is to be moved."""
    _receipts_after: UUID = _FIRST_ID

    async def step(self, line: Line) -> None:
        """Move what relays of older code have written since the last time, and a window of receipts."""
        if not self.names:
            return
        at_work = await self.store.former_at_work(line, self.former)
        if at_work or self._is_due:
            await self.store.rename_deliveries(line, self.names, self.former)
        self._is_due = at_work
        await self.move_receipts(line)

    async def move_receipts(self, line: Line) -> None:
        """Move one window of receipts, round and round."""
        if self.names:
            last = await self.store.rename_receipts(
                line, self.names, self.former, after=self._receipts_after, limit=WINDOW_ROWS
            )
            self._receipts_after = last or _FIRST_ID
