"""What a running process tells of itself: log lines, for people at a terminal and for programs elsewhere (O4).

`logs` sets up both shapes, keeps other libraries from talking in between, and lets no line fail the process that
wrote it, nor command the terminal that shows it. `tracebacks` tells each once in a while, and counts what comes
again. Commands call `set_up_logs` once; an application that has logs of its own calls nothing, and gets the records
of the loggers `outbox.…`.

It may import the settings and the errors.
"""

from outbox_kernel.infrastructure.telemetry.logs import LOG_LEVEL_VARIABLE, set_up_logs, silence_clients

__all__ = ["LOG_LEVEL_VARIABLE", "set_up_logs", "silence_clients"]
