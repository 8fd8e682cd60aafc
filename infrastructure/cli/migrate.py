"""`outbox migrate`: make or bring up to date the tables of the outbox and of the contexts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
from sqlalchemy.pool import NullPool

from infrastructure.cli.output import json_option, print_json, print_rows
from infrastructure.database.engine import create_engine
from infrastructure.outbox.migrator import Step, downgrade, migrate, migration_sql
from infrastructure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence


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
@json_option
def command(*, as_sql: bool, target: str | None, as_json: bool) -> None:
    """Create the outbox's tables and those of the contexts, or bring them up to date.

    Any number of machines may do so at once, and a second run changes nothing.
    """
    settings = Settings.from_environment()
    if as_sql and target:
        raise click.UsageError("--sql and --down do not go together")
    if as_sql:
        script = migration_sql(settings)
        print_json({"sql": script}) if as_json else click.echo(script, nl=False)
        return
    steps = asyncio.run(_run(settings, target))
    if as_json:
        print_json({"undone" if target else "applied": [_row(step) for step in steps]})
    else:
        _tell(steps, undone=target is not None)


async def _run(settings: Settings, target: str | None) -> list[Step]:
    engine = create_engine(settings.required_database_url, poolclass=NullPool)
    try:
        return await (downgrade(engine, target, settings) if target else migrate(engine, settings))
    finally:
        await engine.dispose()


def _tell(steps: Sequence[Step], *, undone: bool) -> None:
    if not steps:
        click.echo("nothing to do, the database is there already")
        return
    print_rows([_row(step) for step in steps])
    click.echo(
        f"{len(steps)} {'migration' if len(steps) == 1 else 'migrations'} {'undone' if undone else 'applied'}"
    )


def _row(step: Step) -> dict[str, object]:
    return {"branch": step.branch, "revision": step.revision, "summary": step.summary}
