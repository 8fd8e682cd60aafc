"""Snapshots as PostgreSQL writes them, `xmin:xmax:running,…`: which transactions were over when one was taken."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=64)
def _parsed(snapshot: str) -> tuple[int, int, frozenset[int]]:
    xmin, xmax, running = snapshot.split(":")
    return int(xmin), int(xmax), frozenset(map(int, filter(None, running.split(","))))


def sees(snapshot: str, xid: int) -> bool:
    """Whether a transaction was over for a snapshot."""
    xmin, xmax, running = _parsed(snapshot)
    return xid < xmin or (xid < xmax and xid not in running)


def common_to(snapshot: str, other: str) -> str:
    """Return the snapshot for which only that was over which was so for both."""
    (_, xmax, running), (_, other_xmax, other_running) = _parsed(snapshot), _parsed(other)
    lowest_xmax = min(xmax, other_xmax)
    both = sorted(xid for xid in running | other_running if xid < lowest_xmax)
    xmin = min([*both, lowest_xmax])
    return f"{xmin}:{lowest_xmax}:{','.join(map(str, both))}"
