"""How commands print: tables for people at a terminal, plain lines into a pipe, JSON for programs."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from datetime import UTC
from typing import TYPE_CHECKING
from uuid import UUID

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; errors too.")


def print_json(value: object) -> None:
    """Print one JSON document; what JSON has no form for (ids, times) as text."""
    click.echo(json.dumps(value, indent=2, default=str))


def print_rows(rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows of the same columns: a table on a terminal, else tab-separated lines to cut and grep."""
    # Without any standard output, as after `>&-`, there is no file to ask.
    if sys.stdout is None or not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(_text(value) for value in row.values()))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name, value in rows[0].items() if rows else ():
        # Cut at the end of a line, an id can be neither read nor copied.
        table.add_column(name, min_width=len(str(value)) if isinstance(value, UUID) else None)
    for row in rows:
        # As `Text`, since a value in brackets would be taken for rich's markup.
        table.add_row(*(Text(_text(value)) for value in row.values()))
    Console().print(table)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def print_title(title: str) -> None:
    """Head what follows, for people: into a pipe the lines speak for themselves only if each is of one kind."""
    click.echo(f"\n{title}" if sys.stdout is not None and sys.stdout.isatty() else f"# {title}")


def when(moment: datetime | None) -> str:
    """Write a moment for people, in UTC as the database says it."""
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Write `1 event`, `2 events`, `2 deliveries`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


@contextmanager
def progress(title: str) -> Iterator[Callable[[int], Callable[[int], None]]]:
    """Show a bar on a terminal: give the total when it is known, then each step that is done."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _total: lambda _step: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def begin(total: int) -> Callable[[int], None]:
            bar.update(task, total=total)
            return lambda step: bar.advance(task, step)

        yield begin
