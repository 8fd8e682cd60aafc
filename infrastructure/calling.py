"""How a handler is called: in a scope of its own, with all that it asks for (K5, R5).

A class is made by the container, its constructor's parameters with it. A function is called with its event and what
its further parameters ask the container for, made in that same scope; one that is not `async` runs in a thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, get_args, get_origin

from lagom import Container
from sqlalchemy.ext.asyncio import async_scoped_session
from sqlalchemy.orm import scoped_session

from outbox_kernel.infrastructure.scopes import scopes_of
from outbox_kernel.kernel.calling import asked_for, awaitable
from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.wire.types import is_union, unwrapped

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.scopes import AnyContainer, Make
    from outbox_kernel.kernel.handlers import HandlerRegistration

Call = Callable[[Any], Awaitable[None]]


def caller(registration: HandlerRegistration, container: AnyContainer) -> Call:
    """Return what calls a handler with an event."""
    handler: Any = registration.handler
    if not isinstance(handler, type):
        return _of_function(handler, container, registration.name)
    if needs_nothing(handler, container):
        # It is made once, and pays for no scope.
        handle: Call = handler().handle
        return handle
    open_scope = scopes_of(container)

    async def call(event: Any) -> None:
        async with open_scope() as make:
            made = await make(handler)
            await made.handle(event)

    return call


def _of_function(function: Callable[..., Any], container: AnyContainer, name: str) -> Call:
    asked, run = asked_for(function), awaitable(function, name)
    if not asked:
        return run
    open_scope = scopes_of(container)

    async def call(event: Any) -> None:
        async with open_scope() as make:
            await run(event, **{name: await make(kind) for name, kind in asked.items()})

    return call


def needs_nothing(handler: type, container: AnyContainer) -> bool:
    """Whether its class says all there is to say; an application's own callable is asked all the same."""
    return isinstance(container, Container) and not inspect.signature(handler).parameters


async def made_once(registration: HandlerRegistration, container: AnyContainer) -> Any:
    """Make all that a run needs, and return the handler if it is a class's; for start-up."""
    handler: Any = registration.handler
    if isinstance(handler, type) and needs_nothing(handler, container):
        return handler()
    async with scopes_of(container)() as make:
        if isinstance(handler, type):
            return await make(handler)
        for name, kind in asked_for(handler).items():
            made = await _made(make, name, kind)
            _check_kind(handler, name, kind, made)
            _check_usable(handler, name, made)
    return None


class NotMade(Exception):
    """A parameter could not be made; the reason is the `__cause__`, `what` says which."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(what)


async def _made(make: Make, name: str, kind: Any) -> Any:
    try:
        return await make(kind)
    except Exception as error:
        raise NotMade(f"{_shown(kind)}, as its {name!r} asks for") from error


def _check_kind(function: Callable[..., Any], name: str, kind: Any, made: object) -> None:
    """Refuse what is nothing of what was asked for, as far as that can be told."""
    if not _is_of(unwrapped(kind), made):
        raise DefinitionError(
            f"{function.__qualname__} asks for {name!r}, of type {_shown(kind)}, and the container gives {made!r:.80}: "
            "let it return an instance"
        )


# They lead to sessions, and are given in the place of one.
_STANDING_IN = (async_scoped_session, scoped_session)


def _is_of(kind: Any, made: object) -> bool:
    if is_union(kind):
        return any(_is_of(unwrapped(each), made) for each in get_args(kind))
    cls = get_origin(kind) or kind
    # A plain protocol says by no class what it takes, nor do numbers: an int is a float to a type checker.
    says = isinstance(cls, type) and cls not in (float, complex)
    if not says or (getattr(cls, "_is_protocol", False) and not getattr(cls, "_is_runtime_protocol", False)):
        return made is not None or kind in (None, Any, object)
    try:
        return isinstance(made, (cls, *_STANDING_IN))
    except TypeError:  # such as Any, which is a class by now, or a TypedDict
        return made is not None or kind is Any


def _shown(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _check_usable(function: Callable[..., Any], name: str, made: object) -> None:
    """Refuse what only `async` code can use: elsewhere its calls do nothing, and nobody would notice."""
    cls = type(made)
    if (
        not inspect.iscoroutinefunction(function)
        and hasattr(cls, "__aenter__")
        and not hasattr(cls, "__enter__")
    ):
        raise DefinitionError(
            f"{function.__qualname__} is not `async`, and its {name!r} is of no use there, being of {cls.__name__}; "
            "declare it `async def`, or let it ask for what blocks"
        )
