"""What the server's processes use of the processor, where it runs on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.relay.ground import Ground

PROC = Path("/proc")
# Fields of /proc/PID/stat after the name in brackets: parent; own time and that of children who have ended.
_PARENT, _OWN, _ENDED = 1, slice(11, 13), slice(13, 15)


async def server_cpu_seconds(ground: Ground) -> float | None:
    """Return what all processes of the server have used so far; None where they are not to be seen from here."""
    backend = await ground.ask("SELECT pg_backend_pid()")
    name = await ground.ask("SELECT current_database()::text")
    if not _is_backend_of(name, backend):
        return None
    every = _every_stat()
    server = int(every[backend][_PARENT])
    own = [fields[_OWN] for fields in every.values() if int(fields[_PARENT]) == server]
    used = [*own, every[server][_OWN], every[server][_ENDED]]
    return sum(int(ticks) for each in used for ticks in each) / os.sysconf("SC_CLK_TCK")


def _is_backend_of(database: str, pid: int) -> bool:
    """Whether it is this machine's process of that number: it has the name of the database in its title."""
    title = PROC / str(pid) / "cmdline"
    return title.exists() and database.encode() in title.read_bytes()


def _every_stat() -> dict[int, list[str]]:
    found = {}
    for each in PROC.iterdir():
        if each.name.isdigit():
            try:
                text = (each / "stat").read_text()
            except OSError:
                continue  # it has ended since
            found[int(each.name)] = text.rpartition(")")[2].split()
    return found
