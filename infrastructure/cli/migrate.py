"""`outbox migrate`: make or bring up to date the tables of the outbox and of the contexts."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, TypeVar

import click

from outbox_kernel.infrastructure.application import Outbox
from outbox_kernel.infrastructure.cli.output import json_option, print_json, print_rows
from outbox_kernel.infrastructure.errors import BadSetting, InfrastructureError
from outbox_kernel.infrastructure.outbox.branches import folders_of_nobody
from outbox_kernel.infrastructure.outbox.migrator import downgrade, loss, migration_sql
from outbox_kernel.infrastructure.postgres.engine import parse_url
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from outbox_kernel.infrastructure.outbox.migrator import Loss, Step

T = TypeVar("T")


class NotConfirmed(InfrastructureError):
    """What would destroy data was not confirmed, and was not done."""


@click.command("migrate")
@click.option(
    "--sql", "as_sql", is_flag=True, help="Print the script for an empty database instead of running it."
)
@click.option(
    "--down",
    "target",
    metavar="BRANCH@REVISION",
    help="Undo down to there, such as outbox@-1; its data goes too.",
)
@click.option("--yes", is_flag=True, help="Undo without asking, as a script must.")
@json_option
def command(*, as_sql: bool, target: str | None, yes: bool, as_json: bool) -> None:
    """Create the outbox's tables and those of the contexts, or bring them up to date.

    Any number of machines may do so at once, and a second run changes nothing. --down says what would be
    lost and asks; where nobody can be asked, and with --json, it wants --yes.
    """
    if as_sql and target:
        raise click.UsageError("--sql and --down do not go together")
    if yes and not target:
        raise click.UsageError("--yes goes with --down alone")
    settings = Settings.from_environment()
    if as_sql:
        script = migration_sql(settings)
        print_json({"sql": script}) if as_json else click.echo(script, nl=False)
    elif target:
        _undo(settings, target, yes=yes, as_json=as_json)
    else:
        _apply(settings, as_json=as_json)


def _apply(settings: Settings, *, as_json: bool) -> None:
    steps = _on_database(settings, lambda outbox: outbox.migrate())
    ignored = folders_of_nobody(settings)
    if as_json:
        print_json({"applied": [_row(step) for step in steps], "ignored": ignored})
        return
    _tell(steps, "applied")
    for folder in ignored:
        click.echo(_ignored(folder), err=True)


def _undo(settings: Settings, target: str, *, yes: bool, as_json: bool) -> None:
    lost = _on_database(settings, lambda outbox: loss(outbox.engine, target, settings))
    if lost.steps and not yes:
        _confirm(lost, ask=sys.stdin is not None and sys.stdin.isatty() and not as_json)
    steps = _on_database(settings, lambda outbox: downgrade(outbox.engine, target, settings))
    if as_json:
        print_json({"undone": [_row(step) for step in steps], "undelivered_lost": lost.undelivered})
    else:
        _tell(steps, "undone")


def _confirm(lost: Loss, *, ask: bool) -> None:
    question = f"{_what_goes(lost)}, and nothing brings that back"
    if not ask:
        raise NotConfirmed(f"{question}: say --yes if that is meant")
    if not click.confirm(f"{question}. Go on?", err=True):
        raise NotConfirmed("nothing was undone, since you did not say yes")


def _what_goes(lost: Loss) -> str:
    undone = f"to undo {', '.join(step.revision for step in lost.steps)} drops its tables with their data"
    if lost.undelivered is None:
        return undone
    events = "1 event that is" if lost.undelivered == 1 else f"{lost.undelivered} events that are"
    return f"{undone}, among it {events} not delivered"


def _on_database(settings: Settings, work: Callable[[Outbox], Awaitable[T]]) -> T:
    _require_named_database(settings)
    return asyncio.run(_connected(settings, work))


async def _connected(settings: Settings, work: Callable[[Outbox], Awaitable[T]]) -> T:
    # How relays are set up is no business of a migration's.
    outbox = Outbox(settings=settings, relay_settings=RelaySettings())
    try:
        return await work(outbox)
    finally:
        await outbox.close()


def _require_named_database(settings: Settings) -> None:
    """Refuse to make tables in a database that nobody named: libpq would take the one named like the user."""
    url = parse_url(settings.required_database_url)
    # After a bare slash asyncpg takes the name for given, as empty, and looks nowhere else.
    elsewhere = {"dbname", "database"} & {*url.query} or os.environ.get("PGDATABASE")
    if not url.database and not (url.database is None and elsewhere):
        raise BadSetting(
            "DATABASE_URL", "names no database: write postgresql://user:password@host:5432/database"
        )


def _tell(steps: Sequence[Step], what_was_done: str) -> None:
    if not steps:
        click.echo("nothing to do, the database is up to date")
        return
    print_rows([_row(step) for step in steps])
    click.echo(f"{len(steps)} {'migration' if len(steps) == 1 else 'migrations'} {what_was_done}")


def _ignored(folder: Path) -> str:
    return (
        f"note: {folder} belongs to no context, so its migrations did not run: "
        f"name it like the package of its context, with contexts/{folder.name}/__init__.py beside it"
    )


def _row(step: Step) -> dict[str, object]:
    return {"branch": step.branch, "revision": step.revision, "summary": step.summary}
