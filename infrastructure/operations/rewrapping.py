"""Rewrapping: the keys of subjects are encrypted anew by the active master key, so that the others can go (O6)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import attrs

from outbox_kernel.infrastructure.errors import MasterKeyUnfit
from outbox_kernel.infrastructure.operations.limits import REWRAPPED_BATCH_MAX
from outbox_kernel.infrastructure.outbox.sealing.keys import StoredKey
from outbox_kernel.infrastructure.outbox.sql.subject_keys import BY_MASTER_KEY, KEYS_TO_REWRAP, REWRAP

if TYPE_CHECKING:
    from collections.abc import Callable

    from outbox_kernel.infrastructure.master_keys import MasterKeys
    from outbox_kernel.infrastructure.operations.desk import Desk

_FIRST = UUID(int=0)


@attrs.frozen
class Rewrapped:
    """What became of the keys."""

    active: str
    rewrapped: int
    left: dict[str, int]
    """How many stay encrypted by which other master keys, since these are not at hand."""


async def rewrap(
    desk: Desk,
    masters: MasterKeys,
    begin: Callable[[int], Callable[[int], None]] = lambda _: lambda _: None,
) -> Rewrapped:
    """Encrypt anew what another master key than the active one encrypts, a batch at a time; once more is no harm."""
    others = {
        row["master_key"]: row["keys"]
        for row in await desk.run(BY_MASTER_KEY)
        if row["master_key"] != masters.active
    }
    at_hand = sorted(others.keys() & masters.by_id.keys())
    advance, done, after = begin(sum(others[name] for name in at_hand)), 0, _FIRST
    while at_hand:
        batch = await _rewrap_batch(desk, masters, at_hand, after)
        if not batch:
            break
        done, after = done + len(batch), batch[-1]
        advance(len(batch))
    left = {name: number for name, number in others.items() if name not in at_hand}
    return Rewrapped(masters.active, done, left)


async def _rewrap_batch(desk: Desk, masters: MasterKeys, names: list[str], after: UUID) -> list[UUID]:
    async with desk.connection.transaction():
        rows = await desk.run(KEYS_TO_REWRAP, masters=names, after=after, most=REWRAPPED_BATCH_MAX)
        keys = [StoredKey(row["id"], row["subject"], row["master_key"], row["wrapped"]) for row in rows]
        if keys:
            await desk.run(
                REWRAP,
                master_key=masters.active,
                ids=[key.id for key in keys],
                wrapped=[key.rewrapped(masters) for key in keys],
            )
    return [key.id for key in keys]


async def unfit_master_keys(desk: Desk, masters: MasterKeys | None) -> list[tuple[str, int, MasterKeyUnfit]]:
    """Return the master keys by which keys are encrypted and cannot be opened here, each with how many and why."""
    found = []
    for row in await desk.run(BY_MASTER_KEY):
        key = StoredKey(row["id"], row["subject"], row["master_key"], row["wrapped"])
        try:
            key.unwrapped(masters)
        except MasterKeyUnfit as error:
            found.append((row["master_key"], row["keys"], error))
    return found
