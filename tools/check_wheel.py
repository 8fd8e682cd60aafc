"""Says what is missing from, or should not be in, the one wheel of a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZipFile

REQUIRED = (
    "outbox_kernel/kernel/__init__.py",
    "outbox_kernel/infrastructure/__init__.py",
    "outbox_kernel/infrastructure/outbox/migrations/0001_outbox.py",
    "outbox_kernel/__main__.py",
    "outbox_kernel/pytest_plugin.py",
    "outbox_kernel/py.typed",
)
SHIPPED = ("outbox_kernel",)


def complaints(names: list[str]) -> list[str]:
    """What is wrong with a wheel of these files, a sentence each."""
    found = [f"{name} is not in the wheel" for name in REQUIRED if name not in names]
    strangers = sorted(
        {top for name in names if not (top := name.split("/")[0]).endswith(".dist-info")} - {*SHIPPED}
    )
    found.extend(f"{name} does not belong in the wheel" for name in strangers)
    return found


def main() -> int:
    """Check the wheel in the folder named by the first argument."""
    wheels = list(Path(sys.argv[1]).glob("*.whl"))
    if len(wheels) != 1:
        print(f"{sys.argv[1]} holds {len(wheels)} wheels instead of one")
        return 1
    wrong = complaints(ZipFile(wheels[0]).namelist())
    for sentence in wrong:
        print(f"{wheels[0].name}: {sentence}")
    if not wrong:
        print(f"{wheels[0].name}: complete")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
