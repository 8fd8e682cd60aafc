"""What a running process tells of itself: lines in the log, numbers for graphs, spans for traces (O4).

`logs` sets up what is logged, for commands alone: an application that has logs of its own gets the records of the
loggers `outbox.…`. `tracebacks` tells each once in a while, and counts what comes again. `instruments` names every
number. `counting` is where they are counted, on the way of each event and so in plain integers; `metrics` puts those
of a process together, `prometheus` makes a text of them, and `serving` and `asgi` hand it out. `spans` and
`run_spans` make spans where somebody takes them, which `tracing` knows; `pushing` sets up both for commands, with
what the extra `telemetry` brings. `grafana` and `alerts` are what is drawn and watched.

Whoever does something worth telling imports it, relay, capture and inbox; it asks nobody back, and is handed what only
they know. It may import the settings, the errors and what is beside them.
"""

from outbox_kernel.infrastructure.telemetry.asgi import MetricsApp
from outbox_kernel.infrastructure.telemetry.logs import LOG_LEVEL_VARIABLE, set_up_logs, silence_clients
from outbox_kernel.infrastructure.telemetry.metrics import Metrics
from outbox_kernel.infrastructure.telemetry.settings import TelemetrySettings

__all__ = [
    "LOG_LEVEL_VARIABLE",
    "Metrics",
    "MetricsApp",
    "TelemetrySettings",
    "set_up_logs",
    "silence_clients",
]
