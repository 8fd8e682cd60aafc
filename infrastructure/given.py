"""What an application gives to `Outbox`: refused in a sentence where it can be nothing of what is asked for (D2)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

from lagom import Container
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.errors import ArgumentRefused
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.infrastructure.settings import Settings

Own = Callable[[Any], AbstractAsyncContextManager[Any]]

_BY_URL = (
    "give it the URL, as postgresql://user:password@host:5432/database, or an AsyncEngine over asyncpg, and let "
    "`attach` have the maker of your own sessions"
)


def check_given(url_or_engine: object, container: object, settings: object, relay_settings: object) -> None:
    """Refuse what is of another type: read as if it were not there, it would mean another database."""
    if not isinstance(url_or_engine, AsyncEngine | URL | str | None):
        raise ArgumentRefused("url_or_engine", f"is {_kind(url_or_engine)}: {_BY_URL}")
    if container is not None and not isinstance(container, Container) and not callable(container):
        raise ArgumentRefused(
            "container",
            f"is {_kind(container)}: give a lagom container, or what takes a class and gives an instance",
        )
    for name, given, cls in (
        ("settings", settings, Settings),
        ("relay_settings", relay_settings, RelaySettings),
    ):
        if given is not None and not isinstance(given, cls):
            raise ArgumentRefused(
                name, f"is {_kind(given)}: give {cls.__name__}(…), or leave it out to have the environment's"
            )


def packages_of(contexts: object) -> tuple[str, ...]:
    """Return the names of the packages, or refuse what names none."""
    found = (
        (contexts,) if isinstance(contexts, str) or not isinstance(contexts, Iterable) else tuple(contexts)
    )
    if not all(isinstance(each, str) for each in found):
        raise ArgumentRefused(
            "contexts", f"is {contexts!r:.80}: name packages, such as ['shop.orders', 'shop.billing']"
        )
    return found


def check_lifespan(own: object) -> None:
    """Refuse what cannot be an application's own lifespan, as far as it shows before it is called."""
    if own is None:
        return
    if callable(own) and inspect.iscoroutinefunction(type(own).__call__):  # as an ASGI application is
        raise ArgumentRefused(
            "lifespan",
            "is called with the application itself: write `lifespan=outbox.lifespan()`, with brackets",
        )
    if not callable(own):
        raise ArgumentRefused(
            "own",
            f"is {_kind(own)}: give the function under @asynccontextmanager that is the application's lifespan",
        )
    if (
        inspect.isasyncgenfunction(own)
        or inspect.isgeneratorfunction(own)
        or inspect.iscoroutinefunction(own)
    ):
        raise _undecorated(own)


def entered(own: Own, app: object) -> AbstractAsyncContextManager[Any]:
    """Return what an application's own lifespan makes for it, or say that it can be entered by nobody."""
    made: object = own(app)
    if not isinstance(made, AbstractAsyncContextManager):
        raise _undecorated(own)
    return made


def _undecorated(own: object) -> ArgumentRefused:
    name = getattr(own, "__qualname__", repr(own))
    return ArgumentRefused(
        "own", f"is {name}, which makes nothing that `async with` enters: put @asynccontextmanager above it"
    )


def _kind(given: object) -> str:
    cls = type(given)
    return (
        f"of type {cls.__qualname__}"
        if cls.__module__ == "builtins"
        else f"of type {cls.__module__}.{cls.__qualname__}"
    )
