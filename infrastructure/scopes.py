"""How a handler is made, and all that it asks for: within the scope of one run, by lagom or by whatever makes it here.

An application that has a container of its own gives a callable: `container(HandlerClass) -> instance`. It may be
`async`; and it may be a function under `@asynccontextmanager`, whose rest is then what ends with the run.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncContextDecorator, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from lagom import Container

from outbox_kernel.infrastructure.container import scope
from outbox_kernel.infrastructure.wired import Wired

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

AnyContainer = Container | Callable[[Any], Any]
"""What may make handlers: lagom's container, or a callable."""

Make = Callable[[Any], Awaitable[Any]]
"""Makes one thing in the scope of a run: a handler by its class, a parameter by what it is annotated with."""

OpenScope = Callable[[], AbstractAsyncContextManager[Make]]


def scopes_of(container: AnyContainer) -> OpenScope:
    """Return what opens a scope for one run; what was made in it ends with it."""
    if isinstance(container, Container):
        return partial(_InContainer, container if isinstance(container, Wired) else Wired(container))
    return partial(_by_callable, container)


class _InContainer:
    # A class, since a generator's context manager costs more than the rest of it.
    __slots__ = ("_scope",)

    def __init__(self, container: Container) -> None:
        self._scope = scope(container)

    async def __aenter__(self) -> Make:
        inner = await self._scope.__aenter__()

        async def make(kind: Any) -> Any:
            return inner[kind]

        return make

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._scope.__aexit__(kind, error, traceback)


@asynccontextmanager
async def _by_callable(container: Callable[[Any], Any]) -> AsyncIterator[Make]:
    async with AsyncExitStack() as ending:

        async def make(kind: Any) -> Any:
            made = container(kind)
            if inspect.isawaitable(made):
                made = await made
            # What `@asynccontextmanager` makes is both; an AsyncSession, say, is to be given as it is.
            if isinstance(made, AsyncContextDecorator) and isinstance(made, AbstractAsyncContextManager):
                made = await ending.enter_async_context(made)
            return made

        yield make
