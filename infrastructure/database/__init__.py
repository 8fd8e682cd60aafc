"""Engines, sessions with capture, the unit of work on them, and a PostgreSQL to try it all on."""

from infrastructure.database.embedded import EmbeddedPostgres
from infrastructure.database.engine import create_engine
from infrastructure.database.session import session_factory
from infrastructure.database.unit_of_work import SqlAlchemyRepository, SqlAlchemyUnitOfWork

__all__ = [
    "EmbeddedPostgres",
    "SqlAlchemyRepository",
    "SqlAlchemyUnitOfWork",
    "create_engine",
    "session_factory",
]
