"""Says what is missing from, or should not be in, the one wheel of a folder."""

from __future__ import annotations

import json
import re
import sys
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

REQUIRED = (
    "outbox_kernel/kernel/__init__.py",
    "outbox_kernel/infrastructure/__init__.py",
    "outbox_kernel/infrastructure/outbox/migrations/0001_outbox.py",
    "outbox_kernel/infrastructure/dashboard/templates/overview.html",
    "outbox_kernel/infrastructure/dashboard/static/dashboard.css",
    "outbox_kernel/infrastructure/dashboard/static/dashboard.js",
    "outbox_kernel/infrastructure/dashboard/static/htmx.min.js",
    "outbox_kernel/infrastructure/dashboard/static/htmx.LICENSE.txt",
    "outbox_kernel/__main__.py",
    "outbox_kernel/pytest_plugin.py",
    "outbox_kernel/py.typed",
)
SHIPPED = ("outbox_kernel",)
SBOM = re.compile(r"[^/]+\.dist-info/sboms/[^/]+\.cdx\.json")
METADATA = re.compile(r"[^/]+\.dist-info/METADATA")


def complaints(names: list[str]) -> list[str]:
    """What is wrong with a wheel of these files, a sentence each."""
    found = [f"{name} is not in the wheel" for name in REQUIRED if name not in names]
    strangers = sorted(
        {top for name in names if not (top := name.split("/")[0]).endswith(".dist-info")} - {*SHIPPED}
    )
    found.extend(f"{name} does not belong in the wheel" for name in strangers)
    if not any(map(SBOM.fullmatch, names)):
        found.append("no bill of materials is in the wheel (.dist-info/sboms/*.cdx.json)")
    return found


def unbilled(metadata: str, sbom: str) -> list[str]:
    """Which dependencies the bill of materials does not tell of, a sentence each; and whether it is of this version."""
    told, bill = message_from_string(metadata), json.loads(sbom)
    own = bill["metadata"]["component"]
    found = []
    if (own["name"], own["version"]) != (told["Name"], told["Version"]):
        found.append(f"the bill of materials is that of {own['name']} {own['version']}: run `make lock`")
    billed = {component["name"] for component in bill["components"]}
    for requirement in told.get_all("Requires-Dist", []):
        name = re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=!~;(]", requirement, maxsplit=1)[0]).lower()
        if name not in billed:
            found.append(f"the bill of materials does not tell of {name}: run `make lock`")
    return found


def main() -> int:
    """Check the wheel in the folder named by the first argument."""
    wheels = list(Path(sys.argv[1]).glob("*.whl"))
    if len(wheels) != 1:
        print(f"{sys.argv[1]} holds {len(wheels)} wheels instead of one")
        return 1
    with ZipFile(wheels[0]) as wheel:
        names = wheel.namelist()
        wrong = complaints(names)
        sboms, metadata = (next(filter(form.fullmatch, names), None) for form in (SBOM, METADATA))
        if sboms is not None and metadata is not None:
            wrong += unbilled(wheel.read(metadata).decode(), wheel.read(sboms).decode())
    for sentence in wrong:
        print(f"{wheels[0].name}: {sentence}")
    if not wrong:
        print(f"{wheels[0].name}: complete")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
