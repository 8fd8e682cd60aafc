"""The built wheel in an environment of its own, as an application outside has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.commands import ROOT, environment_with

SECONDS_MAX = 300


def environment(**settings: str) -> dict[str, str]:
    """This process's, without any road back to the checkout."""
    clean = environment_with(PIP_DISABLE_PIP_VERSION_CHECK="1", **settings)
    return {name: value for name, value in clean.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def ran(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """What a program printed, and how it ended."""
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX, **options
    )


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    """What it printed, if it went well."""
    assert done.returncode == 0, f"{done.args}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def built_wheel(folder: Path) -> Path:
    """The wheel that tox has built and checked, else one built into the folder now."""
    built = os.environ.get("OUTBOX_TEST_WHEEL_DIR")
    if built is None:
        built = str(folder)
        build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", built, ROOT)
        succeeded(ran(*build, cwd=built, env=environment()))
    (found,) = Path(built).glob("*.whl")
    return found


def programs_with(*packages: str | Path, folder: Path) -> Path:
    """The programs of a fresh environment in the folder, with these packages."""
    succeeded(ran(sys.executable, "-m", "venv", folder))
    uv = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", folder / "bin" / "python")
    succeeded(ran(*uv, *packages, env={**_index(), **environment()}))
    return folder / "bin"


def _index() -> dict[str, str]:
    """Where pip was told to get packages, for uv, which does not read pip's configuration."""
    told = ran(sys.executable, "-m", "pip", "config", "get", "global.index-url", env=environment())
    return {"UV_DEFAULT_INDEX": told.stdout.strip()} if told.returncode == 0 else {}
