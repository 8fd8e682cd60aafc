"""The table of a run."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tests.faults.cell import Cell, Report

COLUMNS = "{:<25} {:>7} {:>8} {:>6} {:>5} {:>9} {:>11} {:>6} {:>6} {:>10} {:>8}"
REMARKS_SHOWN = 10


def say(line: str) -> None:
    """Print at once, since a run is long."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_left_out(cells: Iterable[Cell]) -> None:
    """Say in one line which cells this machine cannot play, and what would let it."""
    reasons: dict[str, list[str]] = {}
    for cell in cells:
        if reason := cell.missing():
            reasons.setdefault(reason, []).append(cell.name)
    if reasons:
        told = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
        say(f"left out: {told}")


def print_heading() -> None:
    """Name the columns."""
    names = ("cell", "events", "effects", "faults", "lost", "repeated", "inversions", "stuck", "wrong")
    say(COLUMNS.format(*names, "reclaim s", "seconds"))


def print_report(report: Report) -> None:
    """Show how a cell went, and what was wrong with it."""
    _print_row(report.cell, [report])
    for remark in report.judgement.remarks[:REMARKS_SHOWN]:
        say(f"    {remark}")


def print_totals(reports: list[Report]) -> bool:
    """Show all cells together; return whether each kept its promises."""
    _print_row("total", reports)
    return not any(report.judgement.broken for report in reports)


def _print_row(name: str, reports: Iterable[Report]) -> None:
    every = list(reports)
    found = [report.judgement for report in every]
    say(
        COLUMNS.format(
            name,
            sum(each.events for each in found),
            sum(each.effects for each in found),
            sum(report.injected for report in every),
            sum(each.lost for each in found),
            sum(each.repeated for each in found),
            sum(each.inversions for each in found),
            sum(each.stuck for each in found),
            sum(each.wrong for each in found),
            f"{max((report.moved_seconds for report in every), default=0):.1f}",
            f"{sum(report.seconds for report in every):.0f}",
        )
    )
