"""Doctor's look at an application's own Alembic: whether its next autogenerate would drop the outbox (D3).

By looking alone: nothing of the application's is imported, and no database is asked.
"""

from __future__ import annotations

import ast
import tomllib
from configparser import Error as ConfigError
from configparser import RawConfigParser
from pathlib import Path
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.operations.verdicts import Check, ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LINE = "leave_outbox"


def examine_alembic(folders: Iterable[Path]) -> list[Check]:
    """Check each env.py that an alembic.ini or a pyproject.toml of these folders names; without one there is none."""
    found = dict.fromkeys(env for folder in folders for env in _environments(folder))
    return [_examined(env) for env in found]


def _examined(env: Path) -> Check:
    shown = env.relative_to(Path.cwd()) if env.is_relative_to(Path.cwd()) else env
    try:
        is_there = _says(env, LINE)
    except (OSError, SyntaxError, ValueError) as error:
        return warn("alembic", f"{shown} cannot be read ({type(error).__name__})", "mend it, and look again")
    if is_there:
        return ok("alembic", f"{shown} leaves the outbox to itself")
    return warn(
        "alembic",
        f"{shown} does not leave the outbox to itself, so `alembic revision --autogenerate` would drop its tables",
        "say `include_object=leave_outbox()`, of outbox_kernel.alembic, in its context.configure",
    )


def _says(env: Path, name: str) -> bool:
    """Whether the code, and not only a comment, uses this name."""
    tree = ast.parse(env.read_text(encoding="utf-8"))
    return any(
        (isinstance(node, ast.Name) and node.id == name)
        or (isinstance(node, ast.Attribute) and node.attr == name)
        for node in ast.walk(tree)
    )


def _environments(folder: Path) -> Iterator[Path]:
    for file in (folder / "alembic.ini", folder / "pyproject.toml"):
        location = _script_location(file)
        if location is not None:
            # As Alembic reads it: below a package, or below where it is run, which is where its file lies.
            env = (folder / location.replace("%(here)s", str(folder)).replace(":", "/") / "env.py").resolve()
            if env.is_file():
                yield env


def _script_location(file: Path) -> str | None:
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".toml":
            found = tomllib.loads(text).get("tool", {}).get("alembic", {}).get("script_location")
        else:
            ini = RawConfigParser()
            ini.read_string(text)
            found = ini.get("alembic", "script_location", fallback=None)
    except (OSError, ValueError, ConfigError):
        return None
    return found if isinstance(found, str) else None
