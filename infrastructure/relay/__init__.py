"""The relay: delivers every event, in order, once per effect, whatever happens."""

from outbox_kernel.infrastructure.relay.relay import OutboxRelay
from outbox_kernel.infrastructure.relay.settings import RelaySettings

__all__ = ["OutboxRelay", "RelaySettings"]
