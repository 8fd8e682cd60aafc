"""Find the scenes by name, play them, and close the account."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.demo.readings import EVENTS, Readings
from outbox_kernel.infrastructure.demo.stage import Stage
from outbox_kernel.infrastructure.discovery import context_folder, context_packages
from outbox_kernel.infrastructure.errors import BadContext, InfrastructureError
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.kernel import discover_handlers
from outbox_kernel.kernel.catalogue import event_types
from outbox_kernel.kernel.handlers import registered_handlers

if TYPE_CHECKING:
    from collections.abc import Collection

    from lagom import Container

    from outbox_kernel.infrastructure.demo.stage import Printer, Scene
    from outbox_kernel.infrastructure.settings import Settings

    Scenes = dict[str, tuple[Scene, ...]]


class NothingToShow(InfrastructureError):
    """No context has scenes."""


def scenes_of(settings: Settings) -> Scenes:
    """Collect, by context, the `SCENES` of the module `demo` of each that has one."""
    found = {package: _scenes_in(package) for package in context_packages(settings)}
    scenes = {package: played for package, played in found.items() if played}
    if not scenes:
        raise NothingToShow(
            f"no context with a `demo` module is found from {Path.cwd()}: run this in a checkout of "
            "outbox-kernel, or name the packages of your contexts in OUTBOX_CONTEXTS"
        )
    return scenes


def _scenes_in(package: str) -> tuple[Scene, ...]:
    context_folder(package)
    try:
        if find_spec(f"{package}.demo") is None:
            return ()
        return tuple(import_module(f"{package}.demo").SCENES)
    except Exception as error:
        raise BadContext(
            package,
            f"has a demo module that gives no SCENES ({type(error).__name__}: {error}): mend it, "
            "or leave it out of OUTBOX_CONTEXTS",
        ) from error


def _players(acting: Collection[str], packages: tuple[str, ...]) -> list[str]:
    """Name the contexts that act, and those that react to their events: the rows of others stay as they are."""
    told = [each.cls for each in event_types() if _context_of(each.cls, packages) in acting]
    reacting = {
        _context_of(each.handler, packages) for each in registered_handlers() if any(map(each.is_for, told))
    }
    return [package for package in packages if package in acting or package in reacting]


def _context_of(definition: Any, packages: tuple[str, ...]) -> str | None:
    return next((package for package in packages if definition.__module__.startswith(f"{package}.")), None)


async def play(settings: Settings, scenes: Scenes, printer: Printer) -> dict[str, Any]:
    """Migrate the database of the settings, play on it, and return the record of all that was shown."""
    container = build_container(settings)
    engine = container[AsyncEngine]
    try:
        applied = await migrate(engine, settings)
        packages = context_packages(settings)
        discover_handlers(packages)
        stage = Stage(container, printer)
        for package, played in scenes.items():
            readings = Readings.over(_players([package], packages), settings.outbox_schema)
            for scene in played:
                await stage.begin(_title(scene), readings)
                await scene(stage)
        readings = Readings.over(_players(scenes, packages), settings.outbox_schema)
        await _close(stage, container, readings)
        async with engine.connect() as connection:
            server = await readings.server(connection)
    finally:
        await engine.dispose()
    return {
        "server": f"PostgreSQL {server}",
        "migrations": [step.revision for step in applied],
        "scenes": stage.record,
        "holds": stage.holds,
    }


def _title(scene: Scene) -> str:
    return (inspect.getdoc(scene) or "A scene").partition("\n")[0].rstrip(".")


async def _close(stage: Stage, container: Container, readings: Readings) -> None:
    """Hold the outbox against the aggregates: each event that should be there is, and no other."""
    await stage.begin("The closing account", readings)
    async with container[AsyncEngine].connect() as connection:
        counts = await stage.show_counts("committed in all", connection)
        gaps = await readings.streams_with_gaps(connection)
        strays = await readings.rows_out_of_step(connection)
    stage.check("events were written", holds=counts[EVENTS] > 0)
    stage.check(f"aggregates whose events are not numbered 1, 2, 3, … without a gap: {gaps}", holds=gaps == 0)
    stage.check(f"aggregates whose row counts other events than the outbox has: {strays}", holds=strays == 0)
