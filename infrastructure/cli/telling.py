"""What a command that serves tells of itself while it does: metrics at an address, and OpenTelemetry (O4)."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import TYPE_CHECKING

import attrs
import click

from outbox_kernel.infrastructure.addresses import listen, url_of
from outbox_kernel.infrastructure.telemetry.pushing import pushed
from outbox_kernel.infrastructure.telemetry.serving import PATH, MetricsServer
from outbox_kernel.infrastructure.telemetry.settings import Address, TelemetrySettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from outbox_kernel.infrastructure.application import Outbox

_log = logging.getLogger("outbox.start")

OPTION = "--metrics"
_SETTING = f"{OPTION}, or OUTBOX_METRICS"


def metrics_option(function: Callable[..., None]) -> Callable[..., None]:
    """Take --metrics."""
    option = click.option(
        OPTION,
        metavar="HOST:PORT",
        help="Where to serve /metrics, such as 127.0.0.1:9464; a port alone is this machine's own. OUTBOX_METRICS.",
    )
    return option(function)


def telemetry_settings(metrics: str | None) -> TelemetrySettings:
    """Read the settings; what the command line says wins."""
    settings = TelemetrySettings.from_environment()
    return settings if metrics is None else attrs.evolve(settings, metrics=Address.of(metrics, OPTION))


@asynccontextmanager
async def told_of(outbox: Outbox, service: str) -> AsyncIterator[None]:
    """Tell of this process while the block runs; an address that cannot be had is a sentence."""
    address = outbox.telemetry.metrics
    async with AsyncExitStack() as ending:
        if address is not None:
            listening = ending.enter_context(
                closing(listen(address.host, address.port, host_setting=_SETTING, port_setting=_SETTING))
            )
            server = MetricsServer(outbox.metrics().text)
            ending.push_async_callback(server.close)
            await server.start(listening)
            _log.info(
                "metrics are served", extra={"action": "metrics.served", "url": url_of(listening) + PATH}
            )
        await ending.enter_async_context(pushed(outbox.metrics, service))
        yield
