"""What is known to read and do nothing else, by the text that the server is sent (R6)."""

from __future__ import annotations

import re
from functools import lru_cache

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
    """Whether a statement is a query that locks no row and calls no function but well-known ones.

    Views are taken for what they look like: one that writes is taken for a query.
    """
    if not _QUERY.match(statement) or _MORE.search(statement):
        return False
    return all(_is_harmless(word) for word in _BEFORE_PARENTHESIS.findall(statement))


def _is_harmless(word: str) -> bool:
    is_operator = not (word[-1:].isalnum() or word[-1:] in ('"', "_", "$"))
    return is_operator or word.lower() in _HARMLESS
