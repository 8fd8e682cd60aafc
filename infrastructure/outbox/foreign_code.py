"""Whether what was migrated would run code of somebody's own (R12).

A function's name means the one that fits its arguments best, in whichever schema of the search path it lies. Somebody
who may create there can have one that fits better than the server's, before the views are made; and then it runs with
the rights of whoever reads them, a relay or an operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from outbox_kernel.infrastructure.errors import ForeignCode

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

# With each name in full: by the search path it would ask whom it suspects. What the server has itself is in no such
# list. A default, a check and an index belong to the table, a view's query to the view.
_FOREIGN = text("""
WITH made AS (
  SELECT class.oid FROM pg_catalog.pg_class AS class
  WHERE class.relnamespace OPERATOR(pg_catalog.=) (
      SELECT events.relnamespace FROM pg_catalog.pg_class AS events
      WHERE events.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('outbox_events')::pg_catalog.oid)
    AND pg_catalog.left(class.relname::pg_catalog.text, 6) OPERATOR(pg_catalog.=) 'outbox'::pg_catalog.text
), parts AS (
  SELECT rule.oid FROM pg_catalog.pg_rewrite AS rule, made WHERE rule.ev_class OPERATOR(pg_catalog.=) made.oid
  UNION ALL
  SELECT given.oid FROM pg_catalog.pg_attrdef AS given, made WHERE given.adrelid OPERATOR(pg_catalog.=) made.oid
  UNION ALL
  SELECT held.oid FROM pg_catalog.pg_constraint AS held, made WHERE held.conrelid OPERATOR(pg_catalog.=) made.oid
  UNION ALL
  SELECT made.oid FROM made
)
SELECT DISTINCT found.name FROM parts, pg_catalog.pg_depend AS needs, LATERAL (
  SELECT function.oid::pg_catalog.regprocedure::pg_catalog.text AS name FROM pg_catalog.pg_proc AS function
  WHERE needs.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid
    AND function.oid OPERATOR(pg_catalog.=) needs.refobjid
  UNION ALL
  SELECT operator.oid::pg_catalog.regoperator::pg_catalog.text FROM pg_catalog.pg_operator AS operator
  WHERE needs.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_operator'::pg_catalog.regclass::pg_catalog.oid
    AND operator.oid OPERATOR(pg_catalog.=) needs.refobjid) AS found
WHERE needs.objid OPERATOR(pg_catalog.=) parts.oid
ORDER BY found.name
""")


def require_none(connection: Connection) -> None:
    """Raise ForeignCode if a table or a view of the outbox would call a function that is not the server's own."""
    if found := list(connection.execute(_FOREIGN).scalars()):
        raise ForeignCode(found)
