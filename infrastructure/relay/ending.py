"""How a relay's task ends when it is cancelled before it has begun (R11)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType


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

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        """Go on with an exception; end if that is a cancellation and nothing has begun."""
        if not self._begun and isinstance(kind if value is None else value, asyncio.CancelledError):
            self._coroutine.close()
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            raise StopIteration
        self._begun = True
        if value is None:
            return self._coroutine.throw(kind)
        return self._coroutine.throw(kind, value, traceback)

    def close(self) -> None:
        """End without having run to the end."""
        self._coroutine.close()
