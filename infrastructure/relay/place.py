"""A place in the log: a position and a snapshot (R2b)."""

from __future__ import annotations

from functools import lru_cache

import attrs

# A snapshot that sees every transaction of a server that is gone: what is here of it, had committed there.
SEES_ALL = "9223372036854775807:9223372036854775807:"


@attrs.frozen
class Server:
    """Whose transaction ids count."""

    number: int
    """Of `outbox_servers`."""
    floor: int
    """Nothing at or below this position is ever late: what may stand there, stood there when the server was found."""


@attrs.frozen
class Late:
    """How far one is with what was late when a snapshot was taken: up to a position all that it sees is passed."""

    position: int
    snapshot: str


@attrs.frozen
class Place:
    """Passed is what stands at or below the position and is visible to the snapshot."""

    position: int
    snapshot: str
    """As PostgreSQL writes it: `xmin:xmax:running,…`."""
    server: Server
    """By whose transaction ids the snapshot counts."""
    late: Late | None = None
    """And what is passed of that which was late, where it is too much for one read."""

    def has_passed(self, position: int, xid: int) -> bool:
        """Whether an event that is committed by now has been passed."""
        if position > self.position:
            return False
        if position <= self.server.floor or _sees(self.snapshot, xid):
            return True
        return self.late is not None and position <= self.late.position and _sees(self.late.snapshot, xid)

    def before_both(self, other: Place) -> Place:
        """Return a place from which a read finds what either has not passed; both count by one server's ids.

        Two places in the middle of what was late are the same: who is there is behind, and reads with its likes alone.
        """
        if self == other:
            return self
        (_, xmax, running), (_, other_xmax, other_running) = _parsed(self.snapshot), _parsed(other.snapshot)
        lowest_xmax = min(xmax, other_xmax)
        both = sorted(xid for xid in running | other_running if xid < lowest_xmax)
        xmin = min([*both, lowest_xmax])
        snapshot = f"{xmin}:{lowest_xmax}:{','.join(map(str, both))}"
        return Place(min(self.position, other.position), snapshot, self.server)


@lru_cache(maxsize=64)
def _parsed(snapshot: str) -> tuple[int, int, frozenset[int]]:
    xmin, xmax, running = snapshot.split(":")
    return int(xmin), int(xmax), frozenset(map(int, filter(None, running.split(","))))


def _sees(snapshot: str, xid: int) -> bool:
    """Whether a transaction was over for a snapshot."""
    xmin, xmax, running = _parsed(snapshot)
    return xid < xmin or (xid < xmax and xid not in running)
