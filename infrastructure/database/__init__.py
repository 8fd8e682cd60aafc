"""Engines, sessions with capture, the unit of work on them, and a PostgreSQL to try it all on."""

from outbox_kernel.infrastructure.database.session import session_factory
from outbox_kernel.infrastructure.database.unit_of_work import SqlAlchemyRepository, SqlAlchemyUnitOfWork
from outbox_kernel.infrastructure.postgres.embedded import EmbeddedPostgres
from outbox_kernel.infrastructure.postgres.engine import create_engine

__all__ = [
    "EmbeddedPostgres",
    "SqlAlchemyRepository",
    "SqlAlchemyUnitOfWork",
    "create_engine",
    "session_factory",
]
