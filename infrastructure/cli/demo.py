"""`outbox demo`: the contexts' scenes on a PostgreSQL of their own, with nothing installed."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import attrs
import click

from outbox_kernel.infrastructure.cli.output import json_option, print_json
from outbox_kernel.infrastructure.demo.play import play, scenes_of
from outbox_kernel.infrastructure.master_keys import VARIABLE, new_master_key
from outbox_kernel.infrastructure.postgres.embedded import EmbeddedPostgres
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.demo.play import Scenes
    from outbox_kernel.infrastructure.demo.stage import Printer


@click.command("demo")
@json_option
def command(*, as_json: bool) -> None:
    """Show it at work on an embedded PostgreSQL, which is thrown away afterwards.

    Plays the scenes of each context's `demo` module and closes with an account of what was committed.
    Every figure is read from the database. The exit code is 0 only if every promise held.
    """
    # A scene tells of failures itself; Python would print what nobody listens to.
    logging.getLogger("outbox").addHandler(logging.NullHandler())
    if Settings.from_environment().master_keys is None:
        # Of this process, and of the relays that scenes start; it goes with the database.
        os.environ[VARIABLE] = new_master_key("demo")
    settings = Settings.from_environment()
    scenes = scenes_of(settings)
    record = asyncio.run(_on_embedded(settings, scenes, _printer(as_json=as_json)))
    if as_json:
        print_json(record)
    else:
        _farewell(record)
    if not record["holds"]:
        raise SystemExit(1)


async def _on_embedded(settings: Settings, scenes: Scenes, printer: Printer) -> dict[str, Any]:
    async with EmbeddedPostgres() as server:
        return await play(attrs.evolve(settings, database_url=server.url), scenes, printer)


def _printer(*, as_json: bool) -> Printer:
    from outbox_kernel.infrastructure.demo.printing import RichPrinter, SilentPrinter

    # Where the output cannot carry a mark or a line of a table, a question mark is better than a failure.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return SilentPrinter() if as_json else RichPrinter()


def _farewell(record: dict[str, Any]) -> None:
    click.echo()
    click.echo(
        f"On an embedded {record['server']}, now thrown away, with {len(record['migrations'])} migrations."
    )
    click.echo("Where `pos` skips a number, a transaction that failed had taken it.")
    click.echo("Every promise held." if record["holds"] else "A promise was broken: see the ✗ above.")
