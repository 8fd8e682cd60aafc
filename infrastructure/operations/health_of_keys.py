"""Doctor's look at what sealed fields need: a master key for each key that is stored (O6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.errors import BadSetting, MissingExtra
from outbox_kernel.infrastructure.operations.rewrapping import unfit_master_keys
from outbox_kernel.infrastructure.operations.verdicts import Check, fail, halves, ok, warn
from outbox_kernel.infrastructure.outbox.sealing.requiring import in_force, require_master_keys, required
from outbox_kernel.infrastructure.outbox.sql.subject_keys import BY_MASTER_KEY
from outbox_kernel.infrastructure.plain_text import count

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.settings import Settings


async def examine_keys(desk: Desk, settings: Settings) -> list[Check]:
    """Check that what is sealed can be opened here, and whether a master key could go."""
    masters = in_force(settings.master_keys)
    rows = await desk.run(BY_MASTER_KEY)
    try:
        require_master_keys(masters)
        if rows:
            required(masters)
    except (BadSetting, MissingExtra) as error:
        return [fail("master keys", *halves(error))]
    if masters is None:
        return [ok("master keys", "none is set, and nothing is sealed")]
    unfit = await unfit_master_keys(desk, masters)
    if unfit:
        return [
            fail("master keys", f"{count(number, 'subject key')}: {happened}", remedy)
            for _, number, error in unfit
            for happened, remedy in [halves(error)]
        ]
    others = sum(row["keys"] for row in rows if row["master_key"] != masters.active)
    if others:
        return [
            warn(
                "master keys",
                f"{count(others, 'subject key')} of {sum(row['keys'] for row in rows)} encrypted by another master key "
                f"than the active one, {masters.active!r}",
                "`outbox keys rotate` encrypts them anew",
            )
        ]
    return [
        ok(
            "master keys",
            f"{masters.active!r} encrypts {count(sum(row['keys'] for row in rows), 'subject key')}",
        )
    ]
