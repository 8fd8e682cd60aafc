"""Objects known by who they are: an aggregate may be compared by its values, and a dataclass cannot be hashed."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

K = TypeVar("K")
V = TypeVar("V")


def is_among(sought: object, objects: Iterable[object]) -> bool:
    """Tell whether this very object is one of them."""
    return any(each is sought for each in objects)


class WeakIdentityMap(Generic[K, V]):
    """Values kept for objects as long as these live, whatever their own idea of equality."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[K], V]] = {}

    def get(self, key: K) -> V | None:
        """Return the value kept for this very object, if there is one."""
        entry = self._entries.get(id(key))
        return None if entry is None or entry[0]() is not key else entry[1]

    def put(self, key: K, value: V) -> None:
        """Keep a value for an object, until it is gone."""
        identity, entries = id(key), self._entries

        def forget(_gone: weakref.ref[K]) -> None:
            # It is told before another object can have the number, so that the entry is none of another's.
            entries.pop(identity, None)

        entries[identity] = (weakref.ref(key, forget), value)

    def drop(self, key: K) -> None:
        """Keep nothing for this object any more."""
        if self.get(key) is not None:
            del self._entries[id(key)]

    def copy(self) -> WeakIdentityMap[K, V]:
        """Return another with what this one keeps."""
        twin = WeakIdentityMap[K, V]()
        for reference, value in list(self._entries.values()):
            key = reference()
            if key is not None:
                twin.put(key, value)
        return twin
