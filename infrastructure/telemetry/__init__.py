"""What a running process tells of itself."""

from outbox_kernel.infrastructure.telemetry.logs import LOG_LEVEL_VARIABLE, set_up_logs, silence_clients

__all__ = ["LOG_LEVEL_VARIABLE", "set_up_logs", "silence_clients"]
