"""Put the application together: settings, engine, sessions, then what each context registers."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from lagom import Container, Singleton
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

from infrastructure.database.engine import create_engine
from infrastructure.database.session import session_factory
from infrastructure.discovery import context_folder, context_packages
from infrastructure.errors import BadContext
from infrastructure.installation import require_our_kernel
from infrastructure.settings import Settings


def build_container(settings: Settings) -> Container:
    """Give a container with the settings, one `AsyncEngine`, one `async_sessionmaker`, all contexts wired."""
    require_our_kernel()
    container = Container()
    container[Settings] = settings
    container[AsyncEngine] = Singleton(lambda: create_engine(settings.required_database_url))
    container[async_sessionmaker] = Singleton(
        lambda found: session_factory(found[AsyncEngine], schema=settings.outbox_schema)
    )
    for package in context_packages(settings):
        _wire(package, container)
    return container


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
    wiring.register(container)
