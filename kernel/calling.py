"""How a handler that is a function is called: its event first, what else it asks for by name (K5)."""

from __future__ import annotations

import inspect
import logging
import threading
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.wire.types import resolved

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Awaitable, Callable

_log = logging.getLogger("outbox.handlers")

THREADS = "outbox-handler"
"""How the names of the threads begin in which functions run."""

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def further_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return what a function needs beside its event; what has a default keeps it."""
    _, *others = inspect.signature(function).parameters.values()
    return [
        each for each in others if each.default is inspect.Parameter.empty and each.kind not in _ANY_NUMBER
    ]


def check_parameters(function: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called with its event and what the container makes."""
    name, parameters = function.__qualname__, [*inspect.signature(function).parameters.values()]
    if not parameters or parameters[0].kind in (inspect.Parameter.KEYWORD_ONLY, _ANY_NUMBER[1]):
        raise DefinitionError(f"{name} takes no event; give it one as its first parameter")
    for each in further_parameters(function):
        if each.annotation is inspect.Parameter.empty or each.kind not in _BY_NAME:
            raise DefinitionError(
                f"{name} asks for {each.name!r}, and the container fills what is named and has a type; "
                "annotate it, or give it a default"
            )


def asked_for(function: Callable[..., Any]) -> dict[str, Any]:
    """Return what a function asks the container for: the type of each further parameter, by its name."""
    asked = {
        each.name: resolved(each.annotation, function.__module__) for each in further_parameters(function)
    }
    for name, kind in asked.items():
        if kind is None:
            raise DefinitionError(
                f"the type of {name!r} of {function.__qualname__} is not known while the program runs: import it "
                f"in {function.__module__} for more than type checking"
            )
    return asked


def awaitable(function: Callable[..., Any], handler: str | None = None) -> Callable[..., Awaitable[Any]]:
    """Return a function that can be awaited: one that is not `async` runs in a thread.

    `handler` is the name that the log has for it.
    """
    if inspect.iscoroutinefunction(function):
        return function

    async def call(*given: Any, **named: Any) -> None:
        result = await _in_thread(handler or _name_of(function), partial(function, *given, **named))
        if inspect.isawaitable(result):
            getattr(result, "close", bool)()
            raise DefinitionError(
                f"{_name_of(function)} returned a coroutine, which nobody would await; "
                "declare it `async def`, and what is wrapped around it as well"
            )

    return call


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


async def _in_thread(name: str, work: Callable[[], Any]) -> Any:
    """Run a function in a thread of its own, in a copy of this context; cancelled, leave it behind.

    A daemon, and in no pool: one that hangs keeps neither the process from ending nor another from beginning.
    """
    from asyncio import get_running_loop  # noqa: PLC0415 - who only writes a domain does without

    loop, context = get_running_loop(), copy_context()
    ended: Future[tuple[Any, BaseException | None]] = loop.create_future()

    def run() -> None:
        result, failure = None, None
        try:
            result = context.run(work)
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, and it is raised again there
            failure = error
        with suppress(RuntimeError):  # the loop is closed, and with it whoever would want to know
            loop.call_soon_threadsafe(_tell, name, ended, result, failure)

    threading.Thread(target=run, name=f"{THREADS} {name}", daemon=True).start()
    result, failure = await ended
    if failure is None:
        return result
    try:
        raise failure
    finally:
        del failure  # which has this frame in its traceback


def _tell(name: str, ended: Future[Any], result: Any, failure: BaseException | None) -> None:
    if not ended.done():
        ended.set_result((result, failure))
    else:
        _log.warning(
            "the thread of handler %s ended after its run had been given up",
            name,
            extra={"action": "handler.thread.ended", "handler": name},
            exc_info=failure,
        )
