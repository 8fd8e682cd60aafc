"""The demo for people: plain text with tables, at a terminal or in a pipe."""

from __future__ import annotations

import json
import re
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

# A pipe has no width of its own; this one holds the widest table.
PIPE_COLUMNS = 110
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?\+00:00")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-([0-9a-f]{4})([0-9a-f]{8})")


class RichPrinter:
    """Prints on a console as the scenes go on."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        if not self.console.is_terminal:
            self.console.width = PIPE_COLUMNS

    def title(self, number: int, title: str) -> None:
        """Print a heading."""
        self.console.print()
        self.console.print(Text(f"{number}  {title}", style="bold"))

    def say(self, sentence: str) -> None:
        """Print a sentence, indented."""
        self._print(Text(sentence))

    def counts(self, caption: str, counts: dict[str, int]) -> None:
        """Print counts on one line."""
        shown = ", ".join(f"{name} {number}" for name, number in counts.items())
        self._print(Text.assemble((f"{caption}: ", "dim"), shown))

    def events(self, rows: list[dict[str, Any]]) -> None:
        """Print outbox rows as a table."""
        table = Table(
            "pos", "event", "aggregate, version", "payload, the rest", box=box.SIMPLE_HEAD, pad_edge=False
        )
        for row in rows:
            table.add_row(*(Text(_short(cell), overflow="fold") for cell in _cells(row)))
        self._print(table)

    def check(self, sentence: str, *, holds: bool) -> None:
        """Print a promise with its mark."""
        mark = ("✓ ", "green") if holds else ("✗ ", "bold red")
        self._print(Text.assemble(mark, sentence))

    def _print(self, what: Text | Table) -> None:
        self.console.print(Padding(what, (0, 0, 0, 3), expand=False))


class SilentPrinter:
    """Prints nothing; the record is what counts."""

    def title(self, number: int, title: str) -> None:
        """Print nothing."""

    def say(self, sentence: str) -> None:
        """Print nothing."""

    def counts(self, caption: str, counts: dict[str, int]) -> None:
        """Print nothing."""

    def events(self, rows: list[dict[str, Any]]) -> None:
        """Print nothing."""

    def check(self, sentence: str, *, holds: bool) -> None:
        """Print nothing."""


def _cells(row: dict[str, Any]) -> tuple[str, str, str, str]:
    """The columns that tell something; of the payload, what they do not say already."""
    said = {str(row["event_id"]), str(row["aggregate_id"]), row["occurred_at"].isoformat()}
    payload = {key: _in_words(value) for key, value in row["payload"].items() if key != "eventVersion"}
    stream = (row["aggregate_type"], row["aggregate_id"], row["aggregate_version"])
    return (
        str(row["position"]),
        row["event_type"],
        " ".join(str(part) for part in stream if part is not None),
        ", ".join(f"{key}: {words}" for key, words in payload.items() if words not in said),
    )


def _in_words(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == {"value"}:
        return _in_words(value["value"])  # as the layout `camel` writes a value object
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    """Shorten ids to the end, which is what tells two apart, and moments to the second; `--json` has them whole."""
    return _MOMENT.sub(r"\1Z", _UUID.sub(r"…\2", text))
