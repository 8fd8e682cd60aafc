"""OpenTelemetry for our commands: spans and numbers go to the collector that the environment names (O4).

`OTEL_EXPORTER_OTLP_ENDPOINT` and the other variables of OpenTelemetry are read by its own library, which the extra
`telemetry` brings. An application sets up a provider of its own, as for all that it traces.
"""

from __future__ import annotations

import logging
import os
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.telemetry.settings import OFF
from outbox_kernel.infrastructure.telemetry.tracing import tracing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from outbox_kernel.infrastructure.telemetry.asgi import MetricsApp

_log = logging.getLogger("outbox.telemetry")

_ENDPOINT = "OTEL_EXPORTER_OTLP_{}ENDPOINT"
_LIBRARIES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def wanted(signal: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment names a collector for a signal, `TRACES` or `METRICS`, and has not turned it off."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() == "none":
        return False
    return any(environ.get(_ENDPOINT.format(which), "").strip() for which in ("", f"{signal}_"))


@asynccontextmanager
async def pushed(metrics: Callable[[], MetricsApp], service: str) -> AsyncIterator[None]:
    """Push while the block runs, if the environment asks for it."""
    signals = [signal for signal in ("TRACES", "METRICS") if wanted(signal)]
    if tracing.mode == OFF:
        signals = [signal for signal in signals if signal != "TRACES"]
    if not signals:
        yield
        return
    if not all(map(_is_there, _LIBRARIES)):
        _log.warning(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, and nothing goes there: pip install 'outbox-kernel[telemetry]', or "
            "say OTEL_SDK_DISABLED=true",
            extra={"action": "telemetry.missing"},
        )
        yield
        return
    from outbox_kernel.infrastructure.telemetry.otlp import pushing  # noqa: PLC0415 - it needs the extra

    async with pushing(metrics, service, signals):
        yield


def _is_there(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # what it is a part of
        return False
