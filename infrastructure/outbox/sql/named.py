"""Statements whose parameters have names: `:position`, not `$7`."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.outbox.sql import in_schema, unplaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


@attrs.frozen
class Statement:
    """A statement of the relay, and what it takes."""

    text: str

    def in_schema(self, schema: str | None) -> tuple[str, tuple[str, ...]]:
        """Return it as the driver takes it, with the names of its parameters in their order."""
        text, names = _numbered(self.text)
        return in_schema(text, schema), names

    def for_line(self, schema: str | None) -> tuple[str, tuple[str, ...]]:
        """Return it likewise, for a connection of ours, which knows the schema where none is given."""
        text, names = _numbered(self.text)
        return in_schema(text, schema) if schema else unplaced(text), names


@cache
def _numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    names = tuple(dict.fromkeys(_PARAMETER.findall(statement)))
    numbers = {name: f"${number}" for number, name in enumerate(names, start=1)}
    return _PARAMETER.sub(lambda found: numbers[found[1]], statement), names


def arguments(names: tuple[str, ...], values: dict[str, Any]) -> list[Any]:
    """Put values in the order of the parameters; one too few or too many is a mistake of ours."""
    if len(values) != len(names):
        raise TypeError(f"takes {sorted(names)}, and got {sorted(values)}")
    return [values[name] for name in names]


def arrays(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Turn rows into the arrays that `unnest` takes, each by the name of its parameter."""
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names]
    return dict(zip(names, columns, strict=True))
