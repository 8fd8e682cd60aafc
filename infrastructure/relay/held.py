"""Aggregates of which a handler has something unsettled: later events of them are not run straight (R4)."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable


class Held:
    """Remembers what the database does not know yet; what it knows, each read is told by it."""

    def __init__(self) -> None:
        self._unwritten: dict[Hashable, int] = {}
        self.keys: dict[Hashable, float] = {}
        """What is held, each until a read."""

    def hold(self, key: Hashable) -> None:
        """Hold an aggregate: a delivery of it is about to be written."""
        self._unwritten[key] = self._unwritten.get(key, 0) + 1
        self.keys[key] = inf

    def release(self, key: Hashable, read: int) -> None:
        """Take note that the delivery is written, or needs not be; reads after this one see it."""
        left = self._unwritten[key] - 1
        if left:
            self._unwritten[key] = left
        else:
            del self._unwritten[key]
            self.keys[key] = read

    def holds(self, key: Any, read: int) -> bool:
        """Whether an event that this read brought must wait."""
        return read <= self.keys.get(key, -1)

    def forget(self, read: int) -> None:
        """Forget what every later read is told by the database; no event of this read or an earlier one is in hand."""
        for key in [key for key, until in self.keys.items() if until <= read]:
            del self.keys[key]
