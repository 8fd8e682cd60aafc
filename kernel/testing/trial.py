"""What one handler under test has committed: one effect, or with atomic=True all that it did when it returns (R6)."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.kernel.errors import SecondCommit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from outbox_kernel.kernel.testing.store import InMemoryStore


@attrs.define(eq=False)
class Trial:
    """One run of one handler, as the units of work in memory see it."""

    handler: str
    event_id: UUID
    atomic: bool = False
    has_effect: bool = False
    second: SecondCommit | None = None
    _undo: dict[InMemoryStore, Callable[[], None]] = attrs.field(factory=dict, init=False)

    def check(self, store: InMemoryStore) -> None:
        """Raise SecondCommit unless the run may commit an effect to this store."""
        if self.atomic and store not in self._undo:
            self._undo[store] = store.mark()
        if self.has_effect and not self.atomic:
            self.second = SecondCommit(self.handler, self.event_id)
            raise self.second

    def take_back(self) -> None:
        """Undo what an atomic run has committed."""
        for undo in self._undo.values():
            undo()


_trial: ContextVar[Trial | None] = ContextVar("outbox_trial", default=None)


def current_trial() -> Trial | None:
    """Return the run under test, if there is one."""
    return _trial.get()


@contextmanager
def trying(trial: Trial) -> Iterator[None]:
    """Run a handler inside; a second effect is raised even if the handler swallows it."""
    token = _trial.set(trial)
    try:
        yield
    except BaseException:
        trial.take_back()
        raise
    finally:
        _trial.reset(token)
    if trial.second is not None:
        raise trial.second
