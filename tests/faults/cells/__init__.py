"""Every cell by its name."""

from __future__ import annotations

from tests.faults.cell import Cell
from tests.faults.cells.brokers import BROKER_CELLS
from tests.faults.cells.database import DATABASE_CELLS
from tests.faults.cells.mixtures import MIXTURE_CELLS
from tests.faults.cells.processes import PROCESS_CELLS
from tests.faults.cells.spells import SPELL_CELLS

CELLS: dict[str, Cell] = {
    cell.name: cell for cell in (*PROCESS_CELLS, *DATABASE_CELLS, *SPELL_CELLS, *MIXTURE_CELLS, *BROKER_CELLS)
}
