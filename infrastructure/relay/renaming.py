"""Renaming: what handlers had under former names becomes theirs, for as long as old relays may run (R2, R13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self
from uuid import UUID

import attrs

from outbox_kernel.infrastructure.outbox.sql import cursors
from outbox_kernel.infrastructure.outbox.sql import subscriptions as sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from outbox_kernel.infrastructure.relay.line import Step
    from outbox_kernel.infrastructure.relay.log import Log
    from outbox_kernel.infrastructure.relay.roster import CarriedAny

WINDOW_ROWS = 2_000
_FIRST_ID = UUID(int=0)


@attrs.define(eq=False)
class Renaming:
    """Remembers what is left to move, so that a name that changed long ago costs next to nothing."""

    log: Log
    names: Sequence[str]
    former: Sequence[str]
    _is_due: bool = True
    """Whether relays of older code may have been at work the last time: what they left is to be moved."""
    _receipts_after: UUID = _FIRST_ID

    @classmethod
    def of(cls, log: Log, carried: Iterable[CarriedAny]) -> Self:
        """Return what is to be moved for those that were renamed."""
        renamed = [(each.name, each.renamed_from) for each in carried if each.renamed_from is not None]
        return cls(log, [name for name, _ in renamed], [former for _, former in renamed])

    def steps(self) -> list[Step]:
        """Return the statements, all of one transaction, that move cursors and deliveries and end the former names.

        A relay of older code that owns cursors keeps them until its hands are empty: then it gives them, where they
        stand.
        """
        if not self.names:
            return []
        pairs = {"names": self.names, "former": self.former}
        return [
            self.log.step(cursors.RENAME_CURSORS, **pairs),
            self.log.step(sql.RETIRE, former=self.former),
            self.log.step(cursors.DROP_CURSORS),
            self.log.step(sql.RENAME_DELIVERIES, **pairs),
            self.log.step(sql.DROP_FORMER_DELIVERIES, **pairs),
        ]

    async def step(self) -> None:
        """Move what relays of older code have written since the last time, and a window of receipts."""
        if not self.names:
            return
        [row] = await self.log.run(sql.FORMER_AT_WORK, former=self.former)
        if row["found"] or self._is_due:
            await self.log.line.transact(self.steps())
        self._is_due = row["found"]
        await self.move_receipts()

    async def move_receipts(self) -> None:
        """Move one window of receipts, round and round."""
        if self.names:
            [row] = await self.log.run(
                sql.RENAME_RECEIPTS,
                names=self.names,
                former=self.former,
                after=self._receipts_after,
                rows_max=WINDOW_ROWS,
            )
            self._receipts_after = row["last"] or _FIRST_ID
