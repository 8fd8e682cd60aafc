"""The law of reading, and its judge: per handler nothing lost, nothing repeated, no aggregate inverted (R2b, R4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import attrs

from tests.properties.wild import Written

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection


@attrs.frozen
class Verdict:
    """How often a handler did not get what it should."""

    lost: int = 0
    invented: int = 0
    repeated: int = 0
    inverted: int = 0


INNOCENT = Verdict()


@attrs.frozen
class Book:
    """What each handler has done, in the order in which it was."""

    done: defaultdict[str, list[Written]] = attrs.Factory(lambda: defaultdict(list))

    def of(
        self, name: str, act: Callable[[Any], Awaitable[None]] | None = None
    ) -> Callable[[Any], Awaitable[None]]:
        """Return what a handler of that name does; it has done it only if `act` does not fail."""

        async def note(event: Any) -> None:
            if act is not None:
                await act(event)
            self.done[name].append(Written.of(event.what))

        return note

    def judge(self, name: str, committed: Collection[Written]) -> Verdict:
        """Compare what a handler has done with what there was to do."""
        times, due = Counter(self.done[name]), set(committed)
        return Verdict(
            lost=len(due - set(times)),
            invented=len(set(times) - due),
            repeated=sum(count - 1 for count in times.values()),
            inverted=_inverted(self.done[name]),
        )


def _inverted(done: Collection[Written]) -> int:
    """Count what was done after a later one of its aggregate."""
    newest: dict[int, int] = {}
    found = 0
    for each in done:
        found += each.version < newest.get(each.aggregate, 0)
        newest[each.aggregate] = max(each.version, newest.get(each.aggregate, 0))
    return found
