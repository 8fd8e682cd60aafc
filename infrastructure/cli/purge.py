"""`outbox purge`: let go of what was delivered long ago."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from outbox_kernel.infrastructure.cli.at_desk import DAYS, ask_first, at_desk, yes_option
from outbox_kernel.infrastructure.cli.output import json_option, print_json, progress
from outbox_kernel.infrastructure.operations import purging
from outbox_kernel.infrastructure.plain_text import count
from outbox_kernel.infrastructure.relay import RelaySettings

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.operations import Desk
    from outbox_kernel.infrastructure.operations.purging import Purged


@click.command("purge")
@click.option(
    "--older-than",
    "days",
    type=DAYS,
    metavar="DAYS",
    help="Written so long ago; without it, as OUTBOX_CLEANUP_DAYS says.",
)
@yes_option
@json_option
def command(*, days: float | None, yes: bool, as_json: bool) -> None:
    """Delete delivered events with their deliveries and receipts; what is not delivered stays.

    Relays do so by themselves, after OUTBOX_CLEANUP_DAYS. Receipts stay for seven days at least.
    """
    limit = RelaySettings.from_environment().cleanup_days if days is None else days
    if limit is None:
        raise click.UsageError(
            "OUTBOX_CLEANUP_DAYS is never: say --older-than DAYS", click.get_current_context()
        )

    ask_first(f"purge what was written more than {limit:g} days ago and is delivered?", unasked=yes)

    async def work(desk: Desk) -> Purged:
        with progress("purge") as begin:
            return await purging.purge(desk, limit, begin)

    purged = at_desk(work)
    if as_json:
        gone = {name: getattr(purged, name) for name in ("events", "deliveries", "receipts")}
        print_json({"older_than_days": limit, **gone})
        return
    click.echo(
        f"{count(purged.events, 'event')} written more than {limit:g} days ago purged, "
        f"with {count(purged.deliveries, 'delivery', 'deliveries')} and {count(purged.receipts, 'receipt')}"
    )
