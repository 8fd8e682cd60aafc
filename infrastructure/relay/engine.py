"""The engine of a relay's own: what its handlers ask the container for, and so no more connections than handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.postgres.engine import create_engine

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.relay.settings import RelaySettings
    from outbox_kernel.infrastructure.settings import Settings

# Handlers hold a connection for the length of a transaction; those that hold one for a whole run take turns.
POOL_SIZE_MAX = 20


def relay_engine(settings: Settings, relay_settings: RelaySettings) -> AsyncEngine:
    """Make the engine of a relay and of the handlers that it runs.

    A relay that is stopped within a transaction must not hold others up for longer than its lease: the server
    ends such a session by itself.
    """
    patience = f"{relay_settings.lease_seconds * 1_000:.0f}ms"
    return create_engine(
        settings.required_database_url,
        session_defaults={
            "application_name": "outbox-kernel relay",
            "idle_in_transaction_session_timeout": patience,
        },
        pool_size=min(relay_settings.concurrency, POOL_SIZE_MAX),
        max_overflow=0,
    )
