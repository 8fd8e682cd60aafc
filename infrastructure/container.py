"""Put the application together: settings, engine, sessions, then what each context registers."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lagom import Container, Singleton
from lagom.definitions import ConstructionWithContainer
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from outbox_kernel.infrastructure.database.session import session_factory
from outbox_kernel.infrastructure.discovery import context_folder, context_packages, lacking
from outbox_kernel.infrastructure.errors import BadContext
from outbox_kernel.infrastructure.outbox.dispatcher import OutboxEventDispatcher
from outbox_kernel.infrastructure.outbox.forgotten import tell_uncommitted
from outbox_kernel.infrastructure.outbox.sealing.requiring import in_force, require_master_keys
from outbox_kernel.infrastructure.postgres.engine import create_engine
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.infrastructure.wired import Wired
from outbox_kernel.kernel import check_upcasters
from outbox_kernel.kernel.dispatching import EventDispatcher
from outbox_kernel.kernel.errors import KernelError

if TYPE_CHECKING:
    from types import TracebackType

    from lagom.interfaces import ReadableContainer


def build_container(
    settings: Settings, engine: AsyncEngine | None = None, given: Container | None = None
) -> Container:
    """Give a container with the settings, one `AsyncEngine`, one `async_sessionmaker`, all contexts wired.

    What `given` defines, a container of the application's own, it gives as that does.
    """
    container = Wired(given)
    ours: dict[Any, Any] = {
        Settings: settings,
        AsyncEngine: Singleton(lambda: engine or create_engine(settings.required_database_url)),
        async_sessionmaker: Singleton(
            lambda found: session_factory(
                found[AsyncEngine],
                schema=settings.outbox_schema,
                channel=settings.channel,
                master_keys=settings.master_keys,
            )
        ),
    }
    for key in ours.keys() - (given.defined_types if given is not None else ()):
        container[key] = ours[key]
    for package in context_packages(settings):
        _wire(package, container)
    # By now each context's events are defined, and whoever builds a container is starting up (K9, O6).
    check_upcasters()
    require_master_keys(in_force(settings.master_keys))
    return container


class scope:  # noqa: N801 - read as a verb
    """A container for one request or one run of a handler, with one session that ends with it.

    Not lagom's own scope: that would make an `AsyncSession` something to await, while a constructor wants it made.
    """

    # A class, and definitions that say how they are called: what lagom would find out by reading signatures, anew for
    # each run, costs more than all the rest of a scope.
    __slots__ = ("_container", "_session")

    def __init__(self, container: Container) -> None:
        self._container = container
        self._session: AsyncSession | None = None

    async def __aenter__(self) -> Container:
        """Begin."""
        inner = self._container.clone()
        inner[AsyncSession] = ConstructionWithContainer(self._open)
        inner[EventDispatcher] = _DISPATCHER  # type: ignore[type-abstract]
        return inner

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End, and with it the session."""
        if self._session is not None:
            if error is None:
                tell_uncommitted(self._session.sync_session)
            await self._session.__aexit__(kind, error, traceback)

    def _open(self, found: ReadableContainer) -> AsyncSession:
        if self._session is None:
            self._session = found[async_sessionmaker]()
        return self._session


_DISPATCHER: ConstructionWithContainer[EventDispatcher] = ConstructionWithContainer(
    lambda found: OutboxEventDispatcher(found[AsyncSession])
)


def _wire(package: str, container: Wired) -> None:
    """Call the context's `wiring.register`; a context without a `wiring` module has nothing to register."""
    context_folder(package)
    try:
        if find_spec(f"{package}.wiring") is None:
            return
        wiring = import_module(f"{package}.wiring")
    except ModuleNotFoundError as error:
        raise lacking(package, error) from error
    except Exception as error:
        raise BadContext(
            package,
            f"cannot be imported ({type(error).__name__}: {error}): mend it, "
            "or leave it out of OUTBOX_CONTEXTS",
        ) from error
    if not callable(getattr(wiring, "register", None)):
        raise BadContext(package, "has a wiring module without `register(container)`: add that function")
    container.begin(package)
    try:
        wiring.register(container)
    except KernelError:
        raise
    except Exception as error:
        raise BadContext(
            package,
            f"cannot be wired ({type(error).__name__}: {error}): mend `register` in its wiring module",
        ) from error
