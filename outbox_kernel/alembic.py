"""What the env.py of an application's own Alembic says of the outbox: leave it as it is, and migrate it as well."""

from outbox_kernel.infrastructure.outbox.within_alembic import leave_outbox, migrate_outbox

__all__ = ["leave_outbox", "migrate_outbox"]
