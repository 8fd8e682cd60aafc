"""What is known to read and do nothing else (R6)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from sqlalchemy import TextClause
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import iterate

from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import is_lambda

# Of the server's own, and what else may stand before a parenthesis in a query. Any other name may be of a function
# that writes.
_HARMLESS = frozenset(
    (
        *(
            "all",
            "and",
            "any",
            "as",
            "between",
            "by",
            "case",
            "cast",
            "char",
            "distinct",
            "else",
            "except",
            "exists",
        ),
        *(
            "from",
            "having",
            "in",
            "intersect",
            "join",
            "like",
            "materialized",
            "not",
            "numeric",
            "on",
            "or",
            "over",
        ),
        *("select", "then", "union", "using", "values", "varchar", "when", "where", "with"),
        *(
            "abs",
            "avg",
            "coalesce",
            "count",
            "greatest",
            "least",
            "length",
            "lower",
            "max",
            "min",
            "now",
            "nullif",
        ),
        *("row_number", "sum", "upper"),
    )
)
_QUERY = re.compile(r"[\s(]*(SELECT|WITH)\b", re.IGNORECASE)
# `FOR` locks rows, and a comment may hide what stands before a parenthesis.
_MORE = re.compile(r"\b(INSERT|UPDATE|DELETE|MERGE|INTO|FOR|CALL)\b|;|--|/\*", re.IGNORECASE)
_BEFORE_PARENTHESIS = re.compile(r"([^\s(),]*)\s*\(")


@lru_cache(maxsize=1024)
def only_reads(statement: str) -> bool:
    """Whether a statement, by the text that the server is sent, is a query without locks and unknown functions.

    Views are taken for what they look like: one that writes is taken for a query.
    """
    if not _QUERY.match(statement) or _MORE.search(statement):
        return False
    return all(_is_harmless(word) for word in _BEFORE_PARENTHESIS.findall(statement))


def _is_harmless(word: str) -> bool:
    is_operator = not (word[-1:].isalnum() or word[-1:] in ('"', "_", "$"))
    return is_operator or word.lower() in _HARMLESS


def may_write(query: Any) -> bool:
    """Whether a query of SQLAlchemy's may write: by a function that is not well known, a CTE or text.

    One that locks rows does not.
    """
    return any(_may_write(element) for element in iterate(query))


def _may_write(element: Any) -> bool:
    if isinstance(element, FunctionElement):
        return bool(getattr(element, "packagenames", ())) or getattr(element, "name", "") not in _HARMLESS
    return (
        isinstance(element, TextClause)
        or getattr(element, "is_dml", False)
        or getattr(element, "is_literal", False)
        or is_lambda(element)
    )
