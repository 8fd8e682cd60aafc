"""Sessions with capture, and the unit of work on them: what a use case and a wiring are given (K12, C8).

`session_factory` makes sessions that write the events of their aggregates. `SqlAlchemyUnitOfWork` is the kernel's
port `UnitOfWork` on such a session: `async with uow`, then `await uow.commit()`; its repositories are
`SqlAlchemyRepository`. At the exit of its block it tells of what was recorded and never committed.

Wirings of contexts and the object `Outbox` call it. Its conformance suite, tests/conformance, holds it against the
unit of work in memory, which is the other adapter of that port.

It may import the kernel, `postgres` and `outbox`.
"""

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
