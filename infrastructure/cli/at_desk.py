"""What the operator's commands share: a desk for the length of a command, and how they take their arguments."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from outbox_kernel.infrastructure.cli.limits import POSITION_DIGITS_MAX
from outbox_kernel.infrastructure.cli.numbers import Number, Whole
from outbox_kernel.infrastructure.operations import AggregateKey, desk
from outbox_kernel.infrastructure.operations.selection import Moment
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outbox_kernel.infrastructure.operations import Desk

R = TypeVar("R")


def at_desk(work: Callable[[Desk], Awaitable[R]]) -> R:
    """Do it over one connection to the database of the settings."""

    async def run() -> R:
        async with desk(Settings.from_environment()) as opened:
            return await work(opened)

    return asyncio.run(run())


yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def ask_first(question: str, *, unasked: bool) -> None:
    """Ask at a terminal, and end with code 1 unless the answer is yes; a program is not asked."""
    if unasked or sys.stdin is None or not sys.stdin.isatty():
        return
    if not click.confirm(question, err=True):
        click.echo("nothing was changed", err=True)
        raise SystemExit(1)


class _Text(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3 only
    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        # What a shell makes of a variable that is not set must not come to mean everything.
        if not value.strip():
            self.fail("it is empty; say which, or leave the option out", param, ctx)
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail(f"{value!r} is no UTF-8, and nothing in a database is named so", param, ctx)
        return str(value)


class _Aggregate(click.ParamType):  # type: ignore[type-arg]  # as above
    name = "type:id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> AggregateKey:
        if isinstance(value, AggregateKey):
            return value
        try:
            return AggregateKey.parse(value)
        except ValueError:
            self.fail(
                f"{value!r} is no aggregate; write TYPE:ID, such as order:42 or account:01890a5d-…, or ID",
                param,
                ctx,
            )


class _Moment(click.ParamType):  # type: ignore[type-arg]  # as above
    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        if isinstance(value, Moment):
            return value
        try:
            return Moment.parse(value)
        except ValueError:
            self.fail(
                f"{value!r} is no moment; write 2026-01-31, 2026-01-31T12:00+01:00, or an age such as 90m, 24h, 7d",
                param,
                ctx,
            )


class _Event(click.ParamType):  # type: ignore[type-arg]  # as above
    name = "event"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID | int:
        if isinstance(value, UUID | int):
            return value
        if value.isdecimal() and value.isascii() and len(value) <= POSITION_DIGITS_MAX:
            return int(value)
        try:
            return UUID(value)
        except ValueError:
            self.fail(
                f"{value!r} is no event; give the position or the id that `outbox events` lists", param, ctx
            )


TEXT = _Text()
DAYS = Number(min=0, max=36_500)
AGGREGATE = _Aggregate()
MOMENT = _Moment()
EVENT = _Event()
LIMIT = Whole(min=1, max=100_000)
POSITION = Whole(min=1, max=10**POSITION_DIGITS_MAX)
