"""What the commands that speak to the broker themselves have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from outbox_kernel.infrastructure.brokers import carrying
from outbox_kernel.infrastructure.brokers.limits import NAME_BYTES_MAX
from outbox_kernel.infrastructure.telemetry import silence_clients

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.brokers.operated import OperatedBroker
    from outbox_kernel.infrastructure.settings import Settings


def broker_of(settings: Settings) -> OperatedBroker:
    """Return the broker of the settings, or say what is missing for it."""
    silence_clients()
    return carrying.broker_of(settings)


class QueueName(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3 only
    """A name that a queue can have, a stranger's too."""

    name = "queue"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what no broker can have."""
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            size = 0
        if not 0 < size <= NAME_BYTES_MAX:
            self.fail(
                f"{value[:40]!r} can be no queue's name: it has 1 to {NAME_BYTES_MAX} bytes, in UTF-8",
                param,
                ctx,
            )
        return value


QUEUE_NAME = QueueName()
