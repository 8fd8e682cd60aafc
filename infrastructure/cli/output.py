"""How commands print: tables for people at a terminal, plain lines into a pipe, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; errors too.")


def print_json(value: object) -> None:
    """Print one JSON document; what JSON has no form for (ids, times) as text."""
    click.echo(json.dumps(value, indent=2, default=str))


def print_rows(rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows of the same columns: a table on a terminal, else tab-separated lines to cut and grep."""
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(_text(value) for value in row.values()))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*(rows[0] if rows else ()))
    for row in rows:
        # As `Text`, since a value in brackets would be taken for rich's markup.
        table.add_row(*(Text(_text(value)) for value in row.values()))
    Console().print(table)


def _text(value: object) -> str:
    return "" if value is None else str(value)
