"""The outbox in an application that has an Alembic of its own: two lines of its env.py (D3).

The outbox's revisions are not among the application's: they have a version table of their own, and the schema of
OUTBOX_SCHEMA. So whichever runs them first, `alembic upgrade` or `outbox migrate`, the other finds them done, and no
`alembic downgrade` of the application's drops events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alembic import context

import outbox_kernel.infrastructure.outbox.relay_tables  # noqa: F401 - completes the metadata
from outbox_kernel.infrastructure.outbox.branches import VERSION_TABLE_ENDING, outbox_branch
from outbox_kernel.infrastructure.outbox.migrator import Step, upgrade_on
from outbox_kernel.infrastructure.outbox.tables import outbox_metadata
from outbox_kernel.infrastructure.outbox.views import LOG_VIEWS
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

_TABLES = frozenset(table.name for table in outbox_metadata.sorted_tables)
# A table called `outbox` is the application's; these are for tools that compare views as well.
_VIEWS = frozenset(LOG_VIEWS)
# What Alembic calls an `include_name` with; an `include_object` has more.
_NAME_ARGUMENTS = 3


def leave_outbox(own: Callable[..., bool] | None = None, *, schema: str | None = None) -> Callable[..., bool]:
    """Return the `include_object` for `context.configure`, with which `--autogenerate` leaves the outbox as it is.

    `own` is the application's, asked about all else; an `include_name` serves and is made as well. `schema` is the
    outbox's (default: OUTBOX_SCHEMA).
    """
    home = Settings(outbox_schema=schema).outbox_schema or Settings.from_environment().outbox_schema

    def include(*told: Any) -> bool:
        by_name = len(told) == _NAME_ARGUMENTS
        name, kind = (told[0], told[1]) if by_name else (told[1], told[2])
        where = told[2].get("schema_name") if by_name else getattr(told[0], "schema", None)
        if where in (None, home) and _is_ours(name, kind):
            return False
        return own is None or own(*told)

    return include


def _is_ours(name: str | None, kind: str) -> bool:
    if name is None or kind == "schema":
        return False
    if kind == "table":
        return name in _TABLES or name.endswith(VERSION_TABLE_ENDING)
    return kind not in _OF_TABLES and name in _VIEWS


# Those of a table that is left out are not asked about; one of the application's may be called like a view of ours.
_OF_TABLES = frozenset(("column", "index", "unique_constraint", "foreign_key_constraint", "check_constraint"))


def migrate_outbox(*, schema: str | None = None) -> list[Step]:
    """Bring the outbox up to date as part of `alembic upgrade`; any other command of Alembic's is none of ours.

    To be called in env.py, after `context.run_migrations()` in its block: then both commit together. With `--sql`
    it says which command writes the script.
    """
    running = context.get_context()
    # Alembic has one env.py for all of its commands, and tells them apart by what they are to run.
    if getattr(running.opts.get("fn"), "__name__", None) != "upgrade":
        return []
    if running.as_sql or running.connection is None:
        context.static_output("-- the outbox's own migrations: `outbox migrate --sql` writes them\n")
        return []
    home = Settings(outbox_schema=schema).outbox_schema or Settings.from_environment().outbox_schema
    # A block where the application has each of its migrations in a transaction of its own, else nothing.
    with running.begin_transaction(_per_migration=True):
        return upgrade_on(running.connection, outbox_branch(home))
