"""Engines, sessions with capture, and the unit of work on them."""

from infrastructure.database.engine import create_engine
from infrastructure.database.session import session_factory
from infrastructure.database.unit_of_work import SqlAlchemyRepository, SqlAlchemyUnitOfWork

__all__ = ["SqlAlchemyRepository", "SqlAlchemyUnitOfWork", "create_engine", "session_factory"]
