"""One object for an application and its outbox: what the `outbox` command is built on (D2).

It finds the contexts by name, reads the settings, and refuses what cannot work in the sentences of the command. Nothing
of the contexts is imported before a relay or the container is asked for, so that their modules may import the object.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

import attrs
from lagom import Container
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.brokers.carrying import publishers_of
from outbox_kernel.infrastructure.brokers.discovery import undeclared_queues
from outbox_kernel.infrastructure.calling import check_buildable
from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.database.session import session_factory
from outbox_kernel.infrastructure.database.unit_of_work import SqlAlchemyUnitOfWork
from outbox_kernel.infrastructure.discovery import context_folder, context_packages
from outbox_kernel.infrastructure.environment import refuse_unknown_names
from outbox_kernel.infrastructure.errors import ArgumentRefused, BadSetting, EngineRefused, NothingToDeliverTo
from outbox_kernel.infrastructure.given import check_given, check_lifespan, entered, packages_of
from outbox_kernel.infrastructure.hosting import Hosted, about_relay, relay_engine
from outbox_kernel.infrastructure.limits import DASHBOARD_POOL_SECONDS_MAX, DASHBOARD_POOL_SIZE_MAX
from outbox_kernel.infrastructure.operations.desk import desk
from outbox_kernel.infrastructure.operations.gauges import Gauges
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.outbox.dispatcher import OutboxEventDispatcher
from outbox_kernel.infrastructure.outbox.install import install_capture
from outbox_kernel.infrastructure.outbox.record import map_outbox_table
from outbox_kernel.infrastructure.postgres.engine import create_engine, parse_url
from outbox_kernel.infrastructure.postgres.explain import explained
from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.infrastructure.telemetry import Metrics, MetricsApp, TelemetrySettings
from outbox_kernel.infrastructure.telemetry.tracing import tracing
from outbox_kernel.kernel import check_upcasters, discover_handlers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
    from sqlalchemy.orm import Session

    from outbox_kernel.infrastructure.brokers import Outlet, Publisher
    from outbox_kernel.infrastructure.dashboard import Dashboard
    from outbox_kernel.infrastructure.dashboard.app import Authorize
    from outbox_kernel.infrastructure.operations.overview import Overview
    from outbox_kernel.infrastructure.outbox.install import Target
    from outbox_kernel.infrastructure.outbox.migrator import Step
    from outbox_kernel.infrastructure.scopes import AnyContainer
    from outbox_kernel.kernel import DomainEvent
    from outbox_kernel.kernel.handlers import HandlerRegistration

A = TypeVar("A")
S = TypeVar("S")

_log = logging.getLogger("outbox.start")


class Outbox:
    """An application's outbox: sessions that capture, a relay, migrations and a look at it all.

    Without a URL or an engine it is DATABASE_URL; what is not given is read from the environment. `contexts` names the
    packages that have `handlers`, `wiring` and `topology`. `container` makes the handlers: a lagom container, or any
    callable that takes a class and gives an instance.
    """

    def __init__(
        self,
        url_or_engine: AsyncEngine | URL | str | None = None,
        *,
        contexts: str | Iterable[str] | None = None,
        container: AnyContainer | None = None,
        settings: Settings | None = None,
        relay_settings: RelaySettings | None = None,
        telemetry: TelemetrySettings | None = None,
    ) -> None:
        check_given(url_or_engine, container, settings, relay_settings)
        if settings is None or relay_settings is None:
            refuse_unknown_names()
        self._engine = url_or_engine if isinstance(url_or_engine, AsyncEngine) else None
        self._given = container
        self._engines: list[AsyncEngine] = []
        self._hosted: Hosted | None = None
        self._gauges: Gauges | None = None
        self.settings: Settings = _settings(settings or Settings.from_environment(), url_or_engine, contexts)
        """What holds for this outbox."""
        self.relay_settings: RelaySettings = relay_settings or attrs.evolve(
            RelaySettings.from_environment(), channel=self.settings.channel
        )
        """How its relays work."""
        self.telemetry: TelemetrySettings = telemetry or TelemetrySettings.from_environment()
        """What this process tells of itself."""
        tracing.mode = self.telemetry.traces
        self._metrics = Metrics()
        self._refuse_bad_addresses()

    def _refuse_bad_addresses(self) -> None:
        if self._engine is None:
            parse_url(self.settings.required_database_url)
        elif self._engine.url.get_driver_name() != "asyncpg":
            raise EngineRefused(self._engine.url.drivername)
        if self.relay_settings.listen_url is not None:
            parse_url(self.relay_settings.listen_url, "OUTBOX_LISTEN_URL")

    # --- sessions -----------------------------------------------------------------------------------

    @cached_property
    def engine(self) -> AsyncEngine:
        """The engine that was given, or one of its own."""
        return self._engine or self._made(create_engine(self.settings.required_database_url))

    @cached_property
    def sessions(self) -> async_sessionmaker[AsyncSession]:
        """The maker of sessions that capture."""
        return session_factory(self.engine, **self._capturing)

    def session(self) -> AsyncSession:
        """Open a session whose commits write the events of its aggregates."""
        return self.sessions()

    def unit_of_work(self) -> SqlAlchemyUnitOfWork:
        """Make a unit of work on such sessions."""
        return SqlAlchemyUnitOfWork(self.sessions)

    def attach(self, target: Target, *others: Target) -> Target:
        """Let the application's own sessions capture: makers of them, or classes; return the first."""
        for each in (target, *others):
            install_capture(each, **self._capturing)
        return target

    @property
    def _capturing(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "schema": settings.outbox_schema,
            "channel": settings.channel,
            "master_keys": settings.master_keys,
        }

    async def dispatch(self, session: AsyncSession | Session, events: Iterable[DomainEvent]) -> None:
        """Add events to what a session commits, one without capture too; it neither flushes nor commits."""
        if self.settings.outbox_schema is not None:
            map_outbox_table(self.settings.outbox_schema)
        await OutboxEventDispatcher(session, master_keys=self.settings.master_keys).dispatch(events)

    # --- the application ----------------------------------------------------------------------------

    @cached_property
    def container(self) -> AnyContainer:
        """What makes the application's parts: the callable that was given, or a container with all contexts wired."""
        return self._container_on(self.engine)

    def load(self) -> tuple[HandlerRegistration, ...]:
        """Import the handlers of all contexts and return them, those of queues included."""
        packages = context_packages(self.settings)
        for package in packages:
            context_folder(package)  # whose sentence says where it was looked for
        handlers = discover_handlers(packages)
        check_upcasters()
        return handlers

    # --- delivering ---------------------------------------------------------------------------------

    def relay(self, *, queues: Iterable[str] | None = None) -> OutboxRelay:
        """Make a relay that carries every handler and publisher found, or refuse to deliver to nobody.

        With `queues` it is one beside a consumer, and carries their handlers alone.
        """
        return self._relay_on(self._relay_engine(), queues)

    async def ready_relay(self, *, queues: Iterable[str] | None = None, wait: bool = False) -> OutboxRelay:
        """Make one on a database that answers and is migrated; with `wait`, as soon as it is."""
        from outbox_kernel.infrastructure.readiness import database_ready  # noqa: PLC0415 - as `migrate` says

        engine = self._relay_engine()
        relay = self._relay_on(engine, queues)
        await relay.check()
        await database_ready(engine, self.settings, wait=wait)
        return relay

    @asynccontextmanager
    async def delivering(
        self, *, wait: bool = False, on_end: Callable[[BaseException], object] | None = None
    ) -> AsyncIterator[None]:
        """Deliver while the block runs; `on_end` is called should the relay end before."""
        hosted = self._hosted = Hosted(await self.ready_relay(wait=wait), on_end)
        with explained(self.engine.url):
            await hosted.begin()
        _log.info("relay starts", extra={"action": "relay.started", **about_relay(self.relay_settings)})
        try:
            yield
        finally:
            await hosted.end()

    @property
    def is_alive(self) -> bool:
        """Whether the relay that this process delivers by has not ended by itself: what a health check asks."""
        return self._hosted is None or self._hosted.ended is None

    @overload
    def lifespan(
        self, *, wait: bool = False, on_end: Callable[[BaseException], object] | None = None
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]: ...

    @overload
    def lifespan(
        self,
        own: Callable[[A], AbstractAsyncContextManager[S]],
        *,
        wait: bool = False,
        on_end: Callable[[BaseException], object] | None = None,
    ) -> Callable[[A], AbstractAsyncContextManager[S]]: ...

    def lifespan(
        self,
        own: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None,
        *,
        wait: bool = False,
        on_end: Callable[[BaseException], object] | None = None,
    ) -> Callable[[Any], AbstractAsyncContextManager[Any]]:
        """Return a lifespan for FastAPI and Starlette that delivers while the application serves.

        The application's `own` is entered before, and left after the relay has given back what it had in hand. A relay
        that cannot start fails the start; one that ends later is logged, and `on_end` may end the process.
        """
        check_lifespan(own)

        @asynccontextmanager
        async def living(app: Any) -> AsyncIterator[Any]:
            async with AsyncExitStack() as ending:
                ending.push_async_callback(self.close)
                state = None if own is None else await ending.enter_async_context(entered(own, app))
                await ending.enter_async_context(self.delivering(wait=wait, on_end=on_end))
                yield state

        return living

    # --- operating ----------------------------------------------------------------------------------

    async def migrate(self) -> list[Step]:
        """Bring the tables of the outbox and of the contexts up to date; return the revisions that ran."""
        # It loads Alembic, which takes a command that only asks a sixth of its start.
        from outbox_kernel.infrastructure.outbox.migrator import migrate  # noqa: PLC0415

        return await migrate(self.engine, self.settings)

    async def status(self) -> Overview:
        """Look at the relays, the backlog and every subscription."""
        async with desk(self.settings, self._engine) as opened:
            return await overview(opened)

    def dashboard(
        self, *, authorize: Authorize | None = None, prefix: str = "", key: str | None = None
    ) -> Dashboard:
        """Make the dashboard as an ASGI application, to be mounted under any path.

        `authorize` says who asks, by an `Operator`; without it only this machine itself is answered. `prefix` is the
        path below which a proxy shows it. Several processes behind one address need one `key`.
        """
        # What it is made of is an extra, and so is asked for here alone.
        from outbox_kernel.infrastructure.dashboard import Dashboard  # noqa: PLC0415

        return Dashboard(self.settings, self._dashboard_engine(), authorize=authorize, prefix=prefix, key=key)

    @property
    def counted(self) -> Metrics:
        """Where this process counts, for whoever makes a relay or a consumer beside this object."""
        return self._metrics

    def metrics(self) -> MetricsApp:
        """Return this process's metrics: an ASGI application to mount, and by `await ….text()` what Prometheus reads.

        They tell handlers, queues and routes by name: mount them where only those come who may know these.
        """
        if self._gauges is None:
            self._gauges = Gauges(self.engine, self.settings.outbox_schema)
            self._metrics.asks(self._gauges)
        return MetricsApp(self._metrics)

    async def close(self) -> None:
        """Close the connections of the engines that this object made; what is asked of it later opens new ones."""
        if self._gauges is not None:
            await self._gauges.close()
        for engine in self._engines:
            await engine.dispose()

    # --- within -------------------------------------------------------------------------------------

    def _made(self, engine: AsyncEngine) -> AsyncEngine:
        self._engines.append(engine)
        return engine

    def _relay_engine(self) -> AsyncEngine:
        """Return the engine that was given, or one so that neither relay nor application takes the other's."""
        if self._engine is not None:
            return self._engine
        return self._made(relay_engine(self.settings, self.relay_settings))

    def _dashboard_engine(self) -> AsyncEngine:
        """Return the engine that was given, or a small one: whoever looks on takes no connection of the others."""
        if self._engine is not None:
            return self._engine
        return self._made(
            create_engine(
                self.settings.required_database_url,
                session_defaults={"application_name": "outbox-kernel dashboard"},
                pool_size=DASHBOARD_POOL_SIZE_MAX,
                max_overflow=0,
                pool_timeout=DASHBOARD_POOL_SECONDS_MAX,
            )
        )

    def _relay_on(self, engine: AsyncEngine, queues: Iterable[str] | None) -> OutboxRelay:
        container, handlers = self._container_on(engine), self.load()
        publishers = {} if queues is not None else publishers_of(self.settings)
        if queues is None:
            self._require_somebody(handlers, publishers)
        for sentence in undeclared_queues(self.settings, handlers):
            _log.warning("%s", sentence, extra={"action": "handler.queue.undeclared"})
        return OutboxRelay(
            engine,
            container,
            schema=self.settings.outbox_schema,
            handlers=handlers,
            publishers=publishers,
            queues=queues,
            settings=self.relay_settings,
            master_keys=self.settings.master_keys,
            metrics=self._metrics,
        )

    def _container_on(self, engine: AsyncEngine) -> AnyContainer:
        if self._given is None or isinstance(self._given, Container):
            return build_container(self.settings, engine, self._given)
        return self._given

    def _require_somebody(
        self, handlers: Iterable[HandlerRegistration], publishers: Mapping[Publisher, Outlet]
    ) -> None:
        if publishers or any(each.queue is None for each in handlers):
            return
        packages = ", ".join(context_packages(self.settings)) or "none"
        remedy = (
            "name the packages of the contexts in OUTBOX_CONTEXTS, or run this in the folder of `contexts`"
        )
        of_queues = {each.name: each.queue or "" for each in handlers}
        if of_queues:
            queues = " ".join(sorted({*of_queues.values()}))
            remedy = f"each handler is for a queue, so `outbox consume {queues}` runs {', '.join(of_queues)}"
        raise NothingToDeliverTo(
            "there is nothing to deliver events to, neither a handler nor, by RABBITMQ_URL, a publisher (contexts: "
            f"{packages}): {remedy}"
        )


async def buildable_handlers(
    settings: Settings, relay_settings: RelaySettings
) -> tuple[HandlerRegistration, ...]:
    """Find the handlers of all contexts and make each of them once, as a relay does before it starts."""
    outbox = Outbox(settings=settings, relay_settings=relay_settings)
    found = outbox.load()
    try:
        await check_buildable(found, outbox.container)
    finally:
        await outbox.close()
    return found


def _settings(
    settings: Settings, url_or_engine: AsyncEngine | URL | str | None, contexts: str | Iterable[str] | None
) -> Settings:
    changes: dict[str, Any] = {}
    if isinstance(url_or_engine, URL):
        changes["database_url"] = url_or_engine.render_as_string(hide_password=False)
    elif isinstance(url_or_engine, str):
        changes["database_url"] = url_or_engine
    if contexts is not None:
        changes["contexts"] = packages_of(contexts)
    try:
        return attrs.evolve(settings, **changes)
    except BadSetting as error:
        # All else has been read before: what is refused here is what `contexts=` names.
        raise ArgumentRefused("contexts", str(error).removeprefix(f"{error.name} ")) from error
