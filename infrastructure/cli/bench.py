"""`outbox bench`: measure this checkout on this machine, each figure against a floor in the same run."""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from infrastructure.cli.output import json_option, print_json, print_rows
from infrastructure.errors import InfrastructureError


class NoBenchmarks(InfrastructureError):
    """The measurements are part of the repository, not of the wheel."""


@click.group("bench")
def command() -> None:
    """Measure on the server of DATABASE_URL, in a database of its own, or on the embedded PostgreSQL."""


@command.command("capture")
@click.option("--short", is_flag=True, help="A few rounds, to see that it works; the figures mean little.")
@json_option
def capture(*, short: bool, as_json: bool) -> None:
    """Measure what recording events costs a commit."""
    figures = asyncio.run(_measurement("capture").run(short=short))
    if as_json:
        print_json(figures)
    else:
        print_rows([{"figure": name, "value": value} for name, value in figures.items()])


def _measurement(name: str) -> Any:
    if find_spec("benchmarks") is None:
        raise NoBenchmarks("there are no benchmarks here: run `outbox bench` in a checkout of the repository")
    return import_module(f"benchmarks.{name}")
