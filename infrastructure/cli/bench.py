"""`outbox bench`: measure this checkout on this machine, each figure against a floor in the same run."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from outbox_kernel.infrastructure.cli.numbers import Whole
from outbox_kernel.infrastructure.cli.output import json_option, print_json, print_rows
from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.postgres.engine import parse_url
from outbox_kernel.infrastructure.postgres.explain import explained
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator


class NoBenchmarks(InfrastructureError):
    """The measurements are part of the repository, not of the wheel."""


@click.group("bench", invoke_without_command=True, no_args_is_help=False)
@click.pass_context
def command(context: click.Context) -> None:
    """Measure on the server of DATABASE_URL, in a database of its own, or on the embedded PostgreSQL."""
    if context.invoked_subcommand is None:
        _require_checkout()
        raise click.exceptions.NoArgsIsHelpError(context)


@command.command("api")
@click.option(
    "--short", is_flag=True, help="A moment of each, to see that it works; the figures mean little."
)
@json_option
def api(*, short: bool, as_json: bool) -> None:
    """Measure what recording an event costs a commit that comes through the API."""
    _print_flat(_measured("api", short=short), as_json=as_json)


@command.command("capture")
@click.option("--short", is_flag=True, help="A few rounds, to see that it works; the figures mean little.")
@json_option
def capture(*, short: bool, as_json: bool) -> None:
    """Measure what recording events costs a commit."""
    _print_flat(_measured("capture", short=short), as_json=as_json)


@command.command("hostile")
@click.option("--short", is_flag=True, help="Each once, to see that it works; the figures mean little.")
@json_option
def hostile(*, short: bool, as_json: bool) -> None:
    """Measure how long health waits, and what memory is taken, while the API is sent what is made to hurt."""
    measurement = _measurement("hostile")
    with _database_explained():
        figures = asyncio.run(measurement.run(short=short))
    _print_figures(figures, as_json=as_json)


@command.command("dashboard")
@click.option("--short", is_flag=True, help="Few events, to see that it works; the figures mean little.")
@click.option("--events", type=Whole(100), help="So many, instead of the ten million that are meant.")
@json_option
def dashboard(*, short: bool, events: int | None, as_json: bool) -> None:
    """Measure what each page of the dashboard costs with ten million events, beside what it costs with none."""
    measurement = _measurement("dashboard.measurements")
    with _database_explained():
        figures = asyncio.run(measurement.run(short=short, events=events))
    _print_figures(figures, as_json=as_json)


@command.command("relay")
@click.option("--short", is_flag=True, help="Little of each, to see that it works; the figures mean little.")
@click.option("--only", multiple=True, metavar="NAME", help="Measure only this; may be given several times.")
@json_option
def relay(*, short: bool, only: tuple[str, ...], as_json: bool) -> None:
    """Measure what the relay makes of events, from the commit to the handler's effect."""
    measurement = _measurement("relay.measurements")
    unknown = sorted(set(only) - set(measurement.MEASUREMENTS))
    if unknown:
        raise click.BadParameter(
            f"there is no measurement {unknown[0]!r}; choose from {', '.join(measurement.MEASUREMENTS)}",
            param_hint="--only",
        )
    with _database_explained():
        figures = asyncio.run(measurement.run(short=short, only=only))
    _print_figures(figures, as_json=as_json)


@command.command("rabbitmq")
@click.option("--short", is_flag=True, help="Little of each, to see that it works; the figures mean little.")
@json_option
def rabbitmq(*, short: bool, as_json: bool) -> None:
    """Measure publishing to the RabbitMQ of RABBITMQ_URL, by default a local one, and consuming from it."""
    measurement = _measurement("rabbitmq.measurements")
    with _database_explained():
        figures = asyncio.run(measurement.run(short=short))
    _print_figures(figures, as_json=as_json)


def _print_figures(figures: dict[str, dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(figures)
        return
    print_rows(
        [
            {"figure": f"{name}.{figure}", "value": value}
            for name, found in figures.items()
            for figure, value in found.items()
        ]
    )


def _measured(name: str, *, short: bool) -> dict[str, Any]:
    measurement = _measurement(name)
    with _database_explained():
        figures: dict[str, Any] = asyncio.run(measurement.run(short=short))
    return figures


def _print_flat(figures: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(figures)
    else:
        print_rows([{"figure": name, "value": value} for name, value in figures.items()])


@contextmanager
def _database_explained() -> Iterator[None]:
    """Say in a sentence why the server of DATABASE_URL is not to be measured; without it, it is the embedded one."""
    url = Settings.from_environment().database_url
    if url is None:
        yield
        return
    with explained(parse_url(url)):
        yield


def _require_checkout() -> None:
    if find_spec("benchmarks") is None:
        raise NoBenchmarks("there are no benchmarks here: run `outbox bench` in a checkout of the repository")


def _measurement(name: str) -> Any:
    _require_checkout()
    return import_module(f"benchmarks.{name}")
