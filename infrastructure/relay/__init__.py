"""The relay: delivers every event, in order, once per effect, whatever happens."""

from infrastructure.relay.relay import OutboxRelay
from infrastructure.relay.settings import RelaySettings

__all__ = ["OutboxRelay", "RelaySettings"]
