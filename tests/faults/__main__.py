"""`python -m tests.faults`: every cell, or those asked for; a table, and a last line of totals.

FAULTS_SEED repeats a run, FAULTS_EVENTS is how many events all cells have together, FAULTS_CELLS names some
of them, FAULTS_HANDLERS some of the handlers, FAULTS_SHORT=1 plays a few small ones chosen by the seed, and
FAULTS_KEEP=1 keeps the logs in any case.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import attrs

from tests.brokers import MESSAGE_BYTES_MAX, OwnBroker
from tests.faults.cell import Cell, Report, play, prepare
from tests.faults.cells import CELLS
from tests.faults.printing import print_heading, print_left_out, print_report, print_totals, say
from tests.faults.rig import LONG, SHORT, Scale
from tests.faults.server import RestartableServer

EVENTS = 120_000
SHORT_CELLS = 3


def wanted_cells(seed: str, *, short: bool) -> list[Cell]:
    """The cells of this run: those named, some by the seed, or all."""
    if names := os.environ.get("FAULTS_CELLS"):
        return [CELLS[name] for name in names.split(",")]
    if short:
        quick = [cell for cell in CELLS.values() if cell.quick]
        return random.Random(seed).sample(quick, SHORT_CELLS)
    return list(CELLS.values())


def scale_of(cells: list[Cell], *, short: bool) -> Scale:
    """How large each cell is."""
    scale = SHORT if short else LONG
    events = os.environ.get("FAULTS_EVENTS") or (None if short else EVENTS)
    return scale if events is None else attrs.evolve(scale, events=int(events) // len(cells))


async def run(cells: list[Cell], scale: Scale, seed: str, folder: Path) -> list[Report]:
    """Play the cells one after the other on one server."""
    reports: list[Report] = []
    broker: OwnBroker | None = None
    with RestartableServer() as server, ExitStack() as stack:
        await prepare(server)
        for cell in cells:
            if cell.needs_broker and broker is None:
                broker = stack.enter_context(OwnBroker((f"max_message_size = {MESSAGE_BYTES_MAX}",)))
            report = await play(cell, server, folder, scale, seed, broker)
            print_report(report)
            reports.append(report)
    return reports


def main() -> int:
    """Run, print, and say by the exit code whether all promises were kept."""
    parser = argparse.ArgumentParser(
        "python -m tests.faults",
        description=__doc__,
        epilog=f"cells: {', '.join(CELLS)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args()
    short = os.environ.get("FAULTS_SHORT", "") not in ("", "0")
    seed = os.environ.get("FAULTS_SEED") or str(random.randrange(2**32))
    try:
        asked = wanted_cells(seed, short=short)
    except KeyError as unknown:
        parser.error(f"FAULTS_CELLS names {unknown}, which is no cell: --help has their names")
    folder = Path(tempfile.mkdtemp(prefix="outbox-faults-"))
    say(f"FAULTS_SEED={seed}; logs in {folder}")
    print_left_out(asked)
    cells = [cell for cell in asked if cell.missing() is None]
    if not cells:
        return 1
    print_heading()
    reports = asyncio.run(run(cells, scale_of(cells, short=short), seed, folder))
    clean = print_totals(reports)
    if clean and not os.environ.get("FAULTS_KEEP"):
        shutil.rmtree(folder)
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
