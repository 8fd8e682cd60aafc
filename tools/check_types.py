"""Checks with pyright what users see: the applications of tests/types, strictly, and each public name's own types."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
DOORS = (
    "outbox_kernel",
    "outbox_kernel.errors",
    "outbox_kernel.testing",
    "outbox_kernel.kernel",
    "outbox_kernel.infrastructure.brokers",
    "outbox_kernel.infrastructure.database",
    "outbox_kernel.infrastructure.http",
    "outbox_kernel.infrastructure.outbox",
    "outbox_kernel.infrastructure.relay",
)


def main() -> int:
    """Run both checks and return how many of them failed."""
    applications = pyright("--pythonpath", sys.executable, check=False)
    print(applications.stdout, end="")
    told = list(incomplete(public_names()))
    print(*told, f"{len(told)} public names are not typed whole", sep="\n")
    return (applications.returncode != 0) + bool(told)


def pyright(*arguments: str, check: bool) -> subprocess.CompletedProcess[str]:
    """Run pyright as it was installed; it asks no registry for a newer one."""
    folder = Path(sys.executable).parent
    # It completes types with the packages of the `python` that it finds first.
    environment = {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
    }
    command = [sys.executable, "-m", "pyright", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=check, text=True, stdout=subprocess.PIPE)


def public_names() -> set[str]:
    """Return, by the modules that define them, the names that a door exports."""
    names = set[str]()
    for door in map(import_module, DOORS):
        for name in door.__all__:
            found = getattr(door, name)
            names.add(f"{door.__name__}.{name}")
            if inspect.isclass(found) or inspect.isfunction(found):
                names.add(f"{found.__module__}.{found.__qualname__}")
    return names


def incomplete(names: set[str]) -> Iterator[str]:
    """Return a line for each of these names, or of what they have, whose type a checker has to guess."""
    report = json.loads(
        pyright("--verifytypes", "outbox_kernel", "--ignoreexternal", "--outputjson", check=False).stdout
    )
    symbols = report["typeCompleteness"]["symbols"]
    known = {symbol["name"] for symbol in symbols}
    if missing := names - known:
        raise SystemExit(f"pyright does not find {sorted(missing)}")
    for symbol in symbols:
        if symbol["isTypeKnown"] or not any(f"{symbol['name']}.".startswith(f"{name}.") for name in names):
            continue
        yield from (f"{symbol['name']}: {each['message']}" for each in symbol["diagnostics"])


if __name__ == "__main__":
    sys.exit(main())
