"""`outbox api`: serve the API of this application's contexts, until told to stop."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Any

import attrs
import click

from outbox_kernel.infrastructure.addresses import listen, url_of
from outbox_kernel.infrastructure.application import Outbox
from outbox_kernel.infrastructure.cli.limits import POOL_WAIT_SECONDS_MAX
from outbox_kernel.infrastructure.cli.numbers import Whole
from outbox_kernel.infrastructure.cli.output import json_option
from outbox_kernel.infrastructure.cli.serving import run_loop
from outbox_kernel.infrastructure.cli.telling import metrics_option, telemetry_settings, told_of
from outbox_kernel.infrastructure.cli.web_service import serve_until_stopped
from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.errors import NothingToDeliverTo
from outbox_kernel.infrastructure.http import BearerTokens, HttpSettings, create_app
from outbox_kernel.infrastructure.http.serving import ApiServer
from outbox_kernel.infrastructure.postgres.engine import create_engine
from outbox_kernel.infrastructure.readiness import database_ready
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.infrastructure.telemetry import TelemetrySettings, set_up_logs

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from fastapi import FastAPI
    from starlette.types import ASGIApp

    from outbox_kernel.infrastructure.cli.beside import Beside

_log = logging.getLogger("outbox.start")

HOST_VARIABLE = "OUTBOX_API_HOST"


def address_options(function: Callable[..., None]) -> Callable[..., None]:
    """Take --host and --port."""
    host = click.option("--host", help="Where to listen; OUTBOX_API_HOST, else 127.0.0.1.")
    port = click.option(
        "--port", type=Whole(0, 65_535), help="0 takes any that is free; OUTBOX_API_PORT, else 8000."
    )
    return host(port(function))


@click.command("api")
@address_options
@click.option(
    "--relay/--no-relay", default=None, help="Deliver in this process too; OUTBOX_API_RELAY, else not."
)
@click.option("--wait", is_flag=True, help="Wait for a database that does not answer or is not migrated yet.")
@metrics_option
@json_option
def command(
    *,
    host: str | None,
    port: int | None,
    relay: bool | None,
    wait: bool,
    metrics: str | None,
    as_json: bool,
) -> None:
    """Serve the API of the contexts, until SIGTERM or SIGINT.

    Every request needs a token signed with OUTBOX_API_TOKEN_KEY. Told to stop, it finishes what is under way;
    told twice, it ends at once. Logs go to standard error, as JSON lines unless that is a terminal or with --json.
    """
    settings, http = Settings.from_environment(), http_settings(host=host, port=port, relay=relay)
    service = Service(
        settings,
        http,
        RelaySettings.from_environment(),
        http.required_token_key,
        telemetry_settings(metrics),
    )
    set_up_logs(as_json=as_json or None)
    with closing(listen(http.host, http.port, host_setting=f"--host, or {HOST_VARIABLE}")) as listening:
        run_loop(service.run(listening, wait=wait, on_started=lambda _: _log_start(url_of(listening))))


def http_settings(**given: Any) -> HttpSettings:
    """Read the settings; what the command line says wins."""
    said = {name: value for name, value in given.items() if value is not None}
    return attrs.evolve(HttpSettings.from_environment(), **said)


def _log_start(url: str) -> None:
    _log.info("API starts", extra={"action": "api.started", "url": url})


@attrs.frozen
class Service:
    """The API, and if so set the relay, on one database."""

    settings: Settings
    http: HttpSettings
    relay_settings: RelaySettings
    token_key: str = attrs.field(repr=False)
    telemetry: TelemetrySettings = attrs.Factory(TelemetrySettings)

    async def run(
        self,
        listening: socket.socket,
        *,
        wait: bool,
        on_started: Callable[[FastAPI], None],
        beside: Beside | None = None,
    ) -> None:
        """Serve until a signal, with what stands beside it."""
        app: FastAPI | None = None

        async def assemble(ending: AsyncExitStack) -> ASGIApp:
            nonlocal app
            app = await self._assemble(ending, wait=wait)
            return app if beside is None else beside.begin(ending, app)

        def started() -> None:
            assert app is not None  # noqa: S101 - what serves has been assembled
            on_started(app)

        await serve_until_stopped(
            listening,
            assemble,
            lambda served: ApiServer(served, self.http),
            what="API",
            on_started=started,
            on_stop=(lambda: None) if beside is None else beside.stop,
        )

    async def _assemble(self, ending: AsyncExitStack, *, wait: bool) -> FastAPI:
        engine = create_engine(
            self.settings.required_database_url,
            session_defaults={"application_name": "outbox-kernel api"},
            pool_size=self.http.pool_size,
            max_overflow=0,
            pool_timeout=POOL_WAIT_SECONDS_MAX,
        )
        ending.push_async_callback(engine.dispose)
        authenticator = BearerTokens(
            self.token_key, issuer=self.http.token_issuer, audience=self.http.token_audience
        )
        container = build_container(self.settings, engine)
        # The relay has connections of its own, so that neither takes the other's.
        outbox = Outbox(settings=self.settings, relay_settings=self.relay_settings, telemetry=self.telemetry)
        ending.push_async_callback(outbox.close)
        await ending.enter_async_context(told_of(outbox, "outbox-api"))
        app = create_app(
            container, authenticator, self.http, is_alive=lambda: outbox.is_alive, metrics=outbox.counted
        )
        if self.http.relay:
            await _deliver(outbox, ending, wait=wait)
        await database_ready(engine, self.settings, wait=wait)
        return app


async def _deliver(outbox: Outbox, ending: AsyncExitStack, *, wait: bool) -> None:
    """Deliver until the end; not by the application's own lifespan, whose failures the server tells in its own way."""
    try:
        await ending.enter_async_context(outbox.delivering(wait=wait))
    except NothingToDeliverTo as error:
        # An API may be there before its first handler, for which what it commits waits.
        _log.warning("%s", error, extra={"action": "api.delivers_to_nobody"})
