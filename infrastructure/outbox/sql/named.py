"""Statements whose parameters have names: `:position`, not `$7`."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import attrs

from outbox_kernel.infrastructure.outbox.sql import in_schema

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


@attrs.frozen
class Statement:
    """A statement of the relay, and what it takes."""

    text: str

    def in_schema(self, schema: str | None) -> tuple[str, tuple[str, ...]]:
        """Return it as the driver takes it, with the names of its parameters in their order."""
        return _numbered(self.text, schema)

    def __add__(self, rest: str) -> Statement:
        """Return a longer one."""
        return Statement(self.text + rest)


@cache
def _numbered(statement: str, schema: str | None) -> tuple[str, tuple[str, ...]]:
    names = tuple(dict.fromkeys(_PARAMETER.findall(statement)))
    numbers = {name: f"${number}" for number, name in enumerate(names, start=1)}
    return in_schema(_PARAMETER.sub(lambda found: numbers[found[1]], statement), schema), names


def arguments(names: tuple[str, ...], values: dict[str, Any]) -> list[Any]:
    """Put values in the order of the parameters; one too few or too many is a mistake of ours."""
    if len(values) != len(names):
        raise TypeError(f"takes {sorted(names)}, and got {sorted(values)}")
    return [values[name] for name in names]
