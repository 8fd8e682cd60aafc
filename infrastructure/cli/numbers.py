"""Numbers as they are typed: instead of one that may not stand there, a sentence that says which may."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from typing import NoReturn

_SHOWN_CHARACTERS = slice(40)


class Whole(click.IntRange):
    """A whole number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it, or say which may stand there."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            _refuse(self, "a whole number", value, param, ctx)


class Number(click.FloatRange):
    """A number, and no NaN, which is neither below nor above anything."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or say which may stand there."""
        try:
            number = float(super().convert(value, param, ctx))
        except click.BadParameter:
            _refuse(self, "a number", value, param, ctx)
        if math.isnan(number):
            _refuse(self, "a number", value, param, ctx)
        return number


def _refuse(
    kind: click.IntRange | click.FloatRange,
    what: str,
    value: Any,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> NoReturn:
    first = f"above {kind.min:g} and up" if kind.min_open else f"from {kind.min:g}"
    last = "on" if kind.max is None else f"to {kind.max:.0f}"
    kind.fail(f"{str(value)[_SHOWN_CHARACTERS]!r}; give {what} {first} {last}", param, ctx)
