"""Cancellation: an end that is meant, and one that other code has brought about (R11)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from outbox_kernel.infrastructure.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Generator


class EndsWhenCancelled(Coroutine[Any, Any, None]):
    """A coroutine for which a cancellation before its first step is an end as good as any.

    A coroutine function cannot see that one: it is thrown in before its first line.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine = coroutine
        self._begun = False

    def __await__(self) -> Generator[Any, Any, None]:
        """Run as part of another coroutine."""
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Go on."""
        self._begun = True
        return self._coroutine.send(value)

    def throw(self, error: Any, *rest: Any) -> Any:
        """Go on with an exception; end if that is a cancellation and nothing has begun."""
        if self._begun or not isinstance(error, asyncio.CancelledError):
            self._begun = True
            return self._coroutine.throw(error, *rest)
        self._coroutine.close()
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        raise StopIteration

    def close(self) -> None:
        """End without having run to the end."""
        self._coroutine.close()


class CancelledByOthers(InfrastructureError):
    """Code of the same process, a handler's maybe, has cancelled what a relay or a consumer is made of."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was cancelled by other code of this process, so this service ends, and its supervisor is to start "
            "it again: look for a handler that cancels tasks which are not its own"
        )


def raise_failure(task: asyncio.Task[Any]) -> None:
    """Raise what a task that has ended has failed over."""
    # A cancellation of one of these would pass for one of the whole service, which ends without a word.
    if task.cancelled():
        raise CancelledByOthers(f"task {task.get_name()}")
    task.result()
