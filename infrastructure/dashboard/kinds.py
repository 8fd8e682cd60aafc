"""What dead letters died of, in an address and in a form: as it is, though it be empty or end with a space.

Fields are read without the spaces around them, one that is empty says nothing, and browsers write line ends in a way of
their own. A group that lost its kind on the way would be all that the handler has, and be retried or skipped as that.
"""

from __future__ import annotations

import json


def kind_field(kind: str) -> str:
    """Write a kind of error as a field that brings it whole: what is odd about it as JSON has it."""
    is_plain = kind and kind == kind.strip() and kind.isprintable() and not kind.startswith('"')
    return kind if is_plain else json.dumps(kind)


def kind_of(field: str | None) -> str | None:
    """Read what a field says; None: of any kind."""
    if field is None or not field.startswith('"'):
        return field
    try:
        kind: str = json.loads(field)
        kind.encode()
    except ValueError:
        return field  # which somebody has typed
    return field if "\0" in kind else kind
