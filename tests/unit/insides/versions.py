"""Which versions of a library there are, and which of them a module is known to hold for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def is_known(installed: str, known_from: str, known_up_to: str) -> bool:
    """Whether a version is within the range, whose end counts whatever comes after its own numbers."""
    found, last = _numbers(installed), _numbers(known_up_to)
    return _numbers(known_from) <= found and found[: len(last)] <= last


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(found) for found in re.findall(r"\d+", version)[:3])


def required(library: str) -> str:
    """Return what pyproject.toml asks for of a library."""
    dependencies = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    [asked] = [each for each in dependencies if re.match(rf"{library}\W", each)]
    return str(asked)
