"""Engines, sessions with capture, the unit of work on them, and a PostgreSQL to try it all on."""

from outbox_kernel.infrastructure.database.embedded import EmbeddedPostgres
from outbox_kernel.infrastructure.database.engine import create_engine
from outbox_kernel.infrastructure.database.session import session_factory
from outbox_kernel.infrastructure.database.unit_of_work import SqlAlchemyRepository, SqlAlchemyUnitOfWork

__all__ = [
    "EmbeddedPostgres",
    "SqlAlchemyRepository",
    "SqlAlchemyUnitOfWork",
    "create_engine",
    "session_factory",
]
