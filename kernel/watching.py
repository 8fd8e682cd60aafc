"""What a unit of work tells as it is left: events that nobody committed, aggregates that nobody added (C8)."""

from __future__ import annotations

import sys
import warnings
from contextvars import ContextVar
from typing import TYPE_CHECKING

from outbox_kernel.kernel.errors import UncommittedWork
from outbox_kernel.kernel.limits import NAMED_COUNT_MAX, NOTED_COUNT_MIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import FrameType

    from outbox_kernel.kernel.aggregate import AggregateRoot

# Neither we nor what calls `__aexit__` in the application's place is where the application left.
_NOT_THE_PLACE = ("contextlib", "outbox_kernel")


class Watch:
    """Watches over one open unit of work: `without_place` picks from aggregates those that no unit or session has."""

    __slots__ = ("_committed", "_noted", "_noted_count_max", "_open", "_outer", "_token", "_without_place")

    def __init__(self, without_place: Callable[[Sequence[AggregateRoot]], list[AggregateRoot]]) -> None:
        self._without_place = without_place
        self._noted: dict[int, AggregateRoot] = {}
        self._noted_count_max = NOTED_COUNT_MIN
        self._open, self._committed = True, False
        # One unit inside another: what the inner one does not know the outer one may.
        self._outer = watch.get()
        self._token = watch.set(self)

    def note(self, aggregate: AggregateRoot) -> None:
        """Note that an aggregate has recorded here."""
        if not self._open:
            return
        self._noted[id(aggregate)] = aggregate
        if len(self._noted) > self._noted_count_max:
            left = self._left()
            self._noted = {id(each): each for each in left}
            self._noted_count_max = max(NOTED_COUNT_MIN, 2 * len(left))

    def committed(self) -> None:
        """Note that the unit has committed."""
        self._committed = True

    def rolled_back(self) -> None:
        """Forget what has recorded until now: whoever rolls back says that it is given up."""
        self._noted.clear()

    def end(self) -> Sequence[AggregateRoot]:
        """End, and return what has recorded, is held by nobody, and is none of an outer unit's to tell."""
        self._open = False
        try:
            # As if it had never been: a relay gives what leaves something in its context a worker of its own each time.
            watch.reset(self._token)
        except ValueError:  # a fixture leaves in another context than it has entered in
            watch.set(self._outer)
        forgotten = [each for each in self._left() if each.recorded_events]
        self._noted.clear()
        if self._outer is None or not self._outer._open:
            return forgotten
        for each in forgotten:
            self._outer.note(each)
        return ()

    def tell(self, uncommitted: Sequence[str], forgotten: Iterable[AggregateRoot]) -> None:
        """Warn once of each, at the place where the unit is left."""
        if uncommitted:
            missed = "a commit of what it recorded since the last one" if self._committed else "a commit"
            _warn(
                f"a unit of work was left without {missed}, so these events are gone with the changes they tell of: "
                f"{_shown(uncommitted)}; end its block with `await uow.commit()`, or with `await uow.rollback()` where "
                "that is meant"
            )
        if names := _shown(repr(each) for each in forgotten):
            _warn(
                f"{names} recorded inside a unit of work and was never added to it, so nothing of it is stored; "
                "call `uow.repository(…).add(…)` before the commit"
            )

    def _left(self) -> list[AggregateRoot]:
        return self._without_place(list(self._noted.values()))


watch: ContextVar[Watch | None] = ContextVar("outbox_watch", default=None)
"""The watch over the innermost unit of work that is open here."""


def _shown(names: Iterable[str]) -> str:
    every = list(dict.fromkeys(names))
    more = len(every) - NAMED_COUNT_MAX
    return ", ".join(every[:NAMED_COUNT_MAX]) + (f" and {more} more" if more > 0 else "")


def _nowhere_else(_sentence: str, _place: str) -> bool:
    return False


tell_elsewhere: Callable[[str, str], bool] = _nowhere_else
"""Takes a sentence and the place that it is of, if there is a better one to tell it than Python's warnings."""


def _warn(sentence: str) -> None:
    frame = _place()
    if tell_elsewhere(sentence, f"{frame.f_code.co_filename}:{frame.f_lineno}"):
        return
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__")
    warnings.warn_explicit(
        sentence, UncommittedWork, frame.f_code.co_filename, frame.f_lineno, module, registry
    )


def _place() -> FrameType:
    """Return the frame of the block that is being left."""
    here: FrameType = sys._getframe(1)
    frame: FrameType | None = here
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _NOT_THE_PLACE:
        frame = frame.f_back
    return frame or here
