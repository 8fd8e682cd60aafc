"""Put the application together: settings, engine, sessions, then what each context registers."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from lagom import Container, Singleton
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from infrastructure.database.engine import create_engine
from infrastructure.database.session import session_factory
from infrastructure.discovery import context_folder, context_packages
from infrastructure.errors import BadContext
from infrastructure.installation import require_our_kernel
from infrastructure.outbox.dispatcher import OutboxEventDispatcher
from infrastructure.settings import Settings
from kernel import KernelError, check_upcasters
from kernel.dispatching import EventDispatcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lagom.interfaces import ReadableContainer


def build_container(settings: Settings, engine: AsyncEngine | None = None) -> Container:
    """Give a container with the settings, one `AsyncEngine`, one `async_sessionmaker`, all contexts wired."""
    require_our_kernel()
    container = Container()
    container[Settings] = settings
    container[AsyncEngine] = Singleton(lambda: engine or create_engine(settings.required_database_url))
    container[async_sessionmaker] = Singleton(
        lambda found: session_factory(found[AsyncEngine], schema=settings.outbox_schema)
    )
    for package in context_packages(settings):
        _wire(package, container)
    # By now each context's events are defined, and whoever builds a container is starting up (K9).
    check_upcasters()
    return container


@asynccontextmanager
async def scope(container: Container) -> AsyncIterator[Container]:
    """Give a container for one request or one run of a handler, with one session that ends with it.

    Not lagom's own scope: that would make an `AsyncSession` something to await, while a constructor wants it made.
    """
    inner = container.clone()
    async with AsyncExitStack() as ending:

        def session(found: ReadableContainer) -> AsyncSession:
            made: AsyncSession = found[async_sessionmaker]()
            ending.push_async_exit(made)
            return made

        inner[AsyncSession] = Singleton(session)
        inner[EventDispatcher] = lambda found: OutboxEventDispatcher(found[AsyncSession])  # type: ignore[type-abstract]
        yield inner


def _wire(package: str, container: Container) -> None:
    """Call the context's `wiring.register`; a context without a `wiring` module has nothing to register."""
    context_folder(package)
    try:
        if find_spec(f"{package}.wiring") is None:
            return
        wiring = import_module(f"{package}.wiring")
    except Exception as error:
        raise BadContext(
            package,
            f"cannot be imported ({type(error).__name__}: {error}): mend it, "
            "or leave it out of OUTBOX_CONTEXTS",
        ) from error
    if not callable(getattr(wiring, "register", None)):
        raise BadContext(package, "has a wiring module without `register(container)`: add that function")
    try:
        wiring.register(container)
    except KernelError:
        raise
    except Exception as error:
        raise BadContext(
            package,
            f"cannot be wired ({type(error).__name__}: {error}): mend `register` in its wiring module",
        ) from error
