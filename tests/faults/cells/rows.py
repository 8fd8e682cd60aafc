"""Rows that nobody can decode, among those that everybody can."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID, uuid4

import asyncpg
from attrs import frozen

from tests.faults.by_hand import COUNTER, NOW, write_step, write_unheard_of
from tests.faults.cell import Cell
from tests.faults.rig import Rig


@frozen
class Strange:
    """What is wrong with a row."""

    moment: str = NOW
    payload: str | None = None


BEFORE_YEAR_1 = "0044-03-15 00:00:00+00 BC"
MOMENTS = tuple(Strange(moment=each) for each in (BEFORE_YEAR_1, "10000-01-01 00:00:00+00", "infinity"))
PAYLOADS = tuple(Strange(payload=each) for each in ("[]", '"text"', "null"))
DEAD_OF = "SELECT count(*) FROM outbox_deliveries WHERE status = 'dead' AND event_id = ANY ($1)"


class StrangeRows(Cell):
    """Rows that were written past us with plain SQL.

    Each stands between two good ones of its counter: it is dead for every handler, and the one behind it waits
    for those handlers alone that keep the order.
    """

    strange: ClassVar[tuple[Strange, ...]]
    unheard_of: ClassVar[tuple[str, ...]]
    """When events happened of whose type nobody knows."""

    async def injure(self, rig: Rig) -> None:
        async with rig.connection() as connection, connection.transaction():
            for strange in rig.random.sample(self.strange, len(self.strange)):
                rig.undecodable.add(await self._among_good_ones(connection, strange))
            for moment in self.unheard_of:
                await write_unheard_of(connection, moment)

    @staticmethod
    async def _among_good_ones(connection: asyncpg.Connection, strange: Strange) -> UUID:
        counter = uuid4()
        await connection.execute(COUNTER, counter, 3)
        await write_step(connection, counter, 1)
        found = await write_step(connection, counter, 2, payload=strange.payload, moment=strange.moment)
        await write_step(connection, counter, 3)
        return found

    async def check(self, rig: Rig) -> None:
        dead = await rig.value(DEAD_OF, list(rig.undecodable))
        expected = len(rig.undecodable) * len(rig.carried)
        if dead != expected:
            rig.remarks.append(f"of {expected} deliveries that nobody can decode, {dead} are dead")
        if any(seat.exits for seat in rig.fleet.relays):
            rig.remarks.append("a relay has ended for a row that nobody can decode")
        await rig.nobody_is_charged("rows that are none of theirs")


class UndecodableMoments(StrangeRows):
    """Moments that Python does not have, of types known and unknown."""

    strange: ClassVar[tuple[Strange, ...]] = MOMENTS
    unheard_of: ClassVar[tuple[str, ...]] = (BEFORE_YEAR_1,)


class UndecodablePayloads(StrangeRows):
    """Payloads that are no objects, and types that nobody knows."""

    strange: ClassVar[tuple[Strange, ...]] = PAYLOADS
    unheard_of: ClassVar[tuple[str, ...]] = (NOW,)


ROW_CELLS = (UndecodableMoments(), UndecodablePayloads())
