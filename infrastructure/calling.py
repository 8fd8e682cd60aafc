"""How a handler is called: in a scope of its own, with all that it asks for (K5, R5).

A class is made by the container, its constructor's parameters with it. A function is called with its event and what
its further parameters ask the container for, made in that same scope; one that is not `async` runs in a thread.

A thread cannot be ended. A run that is cancelled leaves its thread behind, and with it its scope: to close a session
under a thread would undo the half of its effect that is written, and let it commit the other. A handler may also cancel
the task that it is called in, and leave it so: whoever calls the next one in that task bears with it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, get_args, get_origin

from lagom import Container
from lagom.exceptions import UnresolvableType
from sqlalchemy.ext.asyncio import async_scoped_session
from sqlalchemy.orm import scoped_session

from outbox_kernel.infrastructure.errors import HandlerNotBuilt
from outbox_kernel.infrastructure.outbox.receipts import current_run
from outbox_kernel.infrastructure.outbox.sealing.scrubbing import secrets_of, traceback_of
from outbox_kernel.infrastructure.scopes import scopes_of
from outbox_kernel.kernel.calling import asked_for, awaitable
from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.wire.types import is_union, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outbox_kernel.infrastructure.scopes import AnyContainer, Make
    from outbox_kernel.kernel.handlers import HandlerRegistration

Call = Callable[[Any], Awaitable[None]]

_log = logging.getLogger("outbox.handlers")

# The scopes of threads that have outlived their event loop: to let go of one would close it.
_outlived: list[AsyncExitStack] = []


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
    if not inspect.iscoroutinefunction(function):
        return _in_thread(function, container, name)
    asked, run = asked_for(function), awaitable(function, name)
    if not asked:
        return run
    open_scope = scopes_of(container)

    async def call(event: Any) -> None:
        async with open_scope() as make:
            await run(event, **{name: await make(kind) for name, kind in asked.items()})

    return call


def _in_thread(function: Callable[..., Any], container: AnyContainer, name: str) -> Call:
    asked, run = asked_for(function), awaitable(function, name)
    open_scope = scopes_of(container)

    async def work(event: Any, begun: asyncio.Event) -> BaseException | None:
        try:
            async with AsyncExitStack() as ending:
                make = await ending.enter_async_context(open_scope()) if asked else None
                given = {name: await make(kind) for name, kind in asked.items()} if make else {}
                begun.set()
                await _with_its_thread(run(event, **given), ending)
        except BaseException as error:  # noqa: BLE001 - it is raised again in the run, and not in this task
            return error
        return None

    async def call(event: Any) -> None:
        begun = asyncio.Event()
        # A task of its own, which goes on when the run is cancelled.
        task = asyncio.create_task(work(event, begun))
        try:
            failure = await asyncio.shield(task)
        except asyncio.CancelledError:
            await _leave(task, begun, name, event)
            raise
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # which has this frame in its traceback

    return call


async def _with_its_thread(running: Awaitable[None], ending: AsyncExitStack) -> None:
    try:
        await running
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            _outlived.append(ending.pop_all())  # the loop ends, and the thread does not
        raise


async def _leave(
    task: asyncio.Task[BaseException | None], begun: asyncio.Event, name: str, event: Any
) -> None:
    """Leave a thread behind for which the run has no more time; one that has not begun never does."""
    if not begun.is_set():
        task.cancel()
        await asyncio.wait([task])
    elif not task.done():
        run = current_run()
        if run is not None:
            run.left_behind = task
        # A relay knows what was sealed of whatever it gives; of an event that is handled at once its class says so.
        told = () if run is None else run.secrets()
        task.add_done_callback(partial(_tell_end, name, told or secrets_of(event)))


def _tell_end(name: str, secrets: Sequence[str], task: asyncio.Task[BaseException | None]) -> None:
    failure = task.result()
    if not isinstance(failure, asyncio.CancelledError):
        _log.warning(
            "the thread of handler %s ended after its run had been given up",
            name,
            extra={"action": "handler.thread.ended", "handler": name},
            exc_info=traceback_of(failure, secrets),
        )


def has_left(task: asyncio.Task[object]) -> bool:
    """Whether this code is not run by its task: the loop has ended, and the garbage collector closes what is left."""
    try:
        return asyncio.current_task() is not task
    except RuntimeError:
        return True


async def bear_cancellation(task: asyncio.Task[object]) -> None:
    """Whoever cancelled it, its time, a stop or the handler itself: that was this run's, not the next one's."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # where one arrives that the handler asked for and did not wait for
    while task.cancelling():
        task.uncancel()


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


async def check_buildable(registrations: Iterable[HandlerRegistration], container: AnyContainer) -> None:
    """Raise HandlerNotBuilt unless the container can make every handler; for start-up (R14)."""
    for registration in registrations:
        handler, is_class = registration.handler, isinstance(registration.handler, type)
        try:
            made = await made_once(registration, container)
        except DefinitionError as error:
            raise HandlerNotBuilt(f"handler {registration.name!r} cannot be called: {error}") from error
        except Exception as error:
            asking = "its constructor asks" if is_class else "it asks"
            own = error.what if isinstance(error, NotMade) else handler.__name__
            reason = error.__cause__ if isinstance(error, NotMade) else error
            ours = isinstance(container, Container)
            remedy = f"register what {asking} for in a wiring module" if ours else f"let it make {own}"
            raise HandlerNotBuilt(
                f"handler {registration.name!r} cannot be made by the container ({_lacking(reason)}): {remedy}"
            ) from error
        if is_class and not callable(getattr(made, "handle", None)):
            raise HandlerNotBuilt(
                f"for handler {registration.name!r} the container gives {made!r:.80}, which has no `handle`: let it "
                f"return an instance of {handler.__name__}"
            )


def _lacking(error: BaseException | None) -> str:
    """Say what there is not: the container names only what was asked for, and the rest in its causes."""
    path: list[str] = []
    while isinstance(error, UnresolvableType):
        if error.dep_type not in path:
            path.append(error.dep_type)
        error = error.__cause__ or error.__context__
    words = [" needs ".join(path)] if path else []
    return ": ".join(words if error is None else [*words, f"{type(error).__name__}: {error}"])
