"""Every cell by its name."""

from __future__ import annotations

from tests.faults.cell import Cell
from tests.faults.cells.brokers import BROKER_CELLS
from tests.faults.cells.database import DATABASE_CELLS
from tests.faults.cells.disks import DISK_CELLS
from tests.faults.cells.fleets import FLEET_CELLS
from tests.faults.cells.mixtures import MIXTURE_CELLS
from tests.faults.cells.moves import MOVE_CELLS
from tests.faults.cells.processes import PROCESS_CELLS
from tests.faults.cells.refusals import REFUSAL_CELLS
from tests.faults.cells.rows import ROW_CELLS
from tests.faults.cells.spells import SPELL_CELLS

CELLS: dict[str, Cell] = {
    cell.name: cell
    for cell in (
        *PROCESS_CELLS,
        *FLEET_CELLS,
        *DATABASE_CELLS,
        *REFUSAL_CELLS,
        *DISK_CELLS,
        *ROW_CELLS,
        *MOVE_CELLS,
        *SPELL_CELLS,
        *MIXTURE_CELLS,
        *BROKER_CELLS,
    )
}
