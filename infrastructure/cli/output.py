"""How commands print: tables for people at a terminal, plain lines into a pipe, JSON for programs."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

import click

from outbox_kernel.infrastructure.cli.limits import COLUMN_CHARACTERS_MIN
from outbox_kernel.infrastructure.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; errors too.")

_BORDER = 3


def print_json(value: object) -> None:
    """Print one JSON document; what JSON has no form for (ids, times) as text."""
    click.echo(json.dumps(value, indent=2, default=_plain))


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def print_rows(rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows of the same columns: a table on a terminal, else tab-separated lines to cut and grep."""
    if not is_at_terminal():
        for row in rows:
            click.echo("\t".join(printable(_text(value)) for value in row.values()))
        return
    if not rows:
        return
    from rich.console import Console

    console = Console()
    widths = {name: _width(name, rows) for name in rows[0]}
    if len(widths) > 2 and sum(widths.values()) + _BORDER * len(widths) + 1 > console.width:  # noqa: PLR2004 - a pair
        console.print(_blocks(rows))
    else:
        console.print(_table(rows, widths))


def _width(name: str, rows: Sequence[Mapping[str, object]]) -> int:
    """Say how narrow a column may become. Cut at the end of a line, an id can be neither read nor copied."""
    ids = [len(str(row[name])) for row in rows if isinstance(row[name], UUID)]
    longest = max(len(name), *(len(_text(row[name])) for row in rows))
    return max(ids, default=min(longest, COLUMN_CHARACTERS_MIN))


def _table(rows: Sequence[Mapping[str, object]], widths: Mapping[str, int]) -> RenderableType:
    from rich.table import Table

    table = Table()
    for name, width in widths.items():
        table.add_column(name, min_width=width, overflow="fold")
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    return table


def _blocks(rows: Sequence[Mapping[str, object]]) -> RenderableType:
    """Put each row on lines of its own, where the columns would not fit beside one another."""
    from rich.table import Table

    table = Table("", "", show_header=False)
    for row in rows:
        for name, value in row.items():
            if _text(value):
                table.add_row(name, _cell(value))
        table.add_section()
    table.columns[1].overflow = "fold"
    return table


def _cell(value: object) -> RenderableType:
    from rich.text import Text

    # As `Text`, since a value in brackets would be taken for rich's markup.
    return Text("\n".join(map(printable, _text(value).split("\n"))))


def _text(value: object) -> str:
    return "" if value is None else str(value)


def is_at_terminal() -> bool:
    """Whether a person reads along; without any standard output, as after `>&-`, there is no file to ask."""
    return sys.stdout is not None and sys.stdout.isatty()


def print_title(title: str) -> None:
    """Head what follows, for people: into a pipe the lines speak for themselves only if each is of one kind."""
    click.echo(f"\n{title}" if is_at_terminal() else f"# {title}")


def when(moment: datetime | None) -> str:
    """Write a moment for people, in UTC as the database says it."""
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


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
