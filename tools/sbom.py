"""Writes what the distribution depends on as CycloneDX 1.6, from pyproject.toml and the pins; `make lock` runs it.

The wheel carries the file (PEP 770). It tells of the versions that are pinned here and tested with: what pip installs
elsewhere may be newer. What only an extra brings is optional in it; what only development needs is not in it.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "requirements" / "dev.txt"
SBOM = ROOT / "requirements" / "outbox-kernel.cdx.json"
# Files of others that lie among ours, with what each is to be.
VENDORED = (
    {
        "name": "htmx.org",
        "version": "4.0.1",
        "license": "0BSD",
        "file": "infrastructure/dashboard/static/htmx.min.js",
    },
)
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+).*\n((?:[ ].*\n)*)", re.MULTILINE)
_NOTE = "the versions that this one was tested with, for every platform and Python; an installation may have others"


def purl(name: str, version: str) -> str:
    """Return the package's URL, which names no registry."""
    return f"pkg:pypi/{canonical(name)}@{version}"


def canonical(name: str) -> str:
    """Return the one way to write a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(text: str) -> dict[str, tuple[str, set[str]]]:
    """Return each package's version and who asks for it, as the pins tell."""
    return {
        canonical(name): (version, {canonical(each) for each in re.findall(r"#\s+(?:via )?([\w.-]+)", rest)})
        for name, version, rest in _PIN.findall(text)
    }


def reached(pins: dict[str, tuple[str, set[str]]], roots: set[str]) -> set[str]:
    """Return these packages, and all that they ask for."""
    found = {name for name in roots if name in pins}
    while more := {name for name, (_, parents) in pins.items() if name not in found and parents & found}:
        found |= more
    return found


def _names(requirements: list[str]) -> set[str]:
    return {canonical(re.split(r"[\s\[<>=!~;]", each, maxsplit=1)[0]) for each in requirements}


def bill(
    project: dict[str, Any],
    pins: dict[str, tuple[str, set[str]]],
    vendored: Iterable[dict[str, str]] = (),
) -> dict[str, Any]:
    """Make the bill of materials."""
    carried = [_vendored(**each) for each in vendored]
    direct = _names(project["dependencies"])
    extras = {name for each in project["optional-dependencies"].values() for name in _names(each)}
    required, all_of_it = reached(pins, direct), reached(pins, direct | extras)
    own = purl(project["name"], project["version"])
    refs = {name: purl(name, pins[name][0]) for name in sorted(all_of_it)}
    needed = sorted((direct | extras) & refs.keys())
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                **_component(project["name"], project["version"]),
                "licenses": [{"license": {"id": project["license"]}}],
            },
            "properties": [{"name": "outbox-kernel:versions", "value": _NOTE}],
        },
        "components": [
            *(
                {**_component(name, pins[name][0]), "scope": "required" if name in required else "optional"}
                for name in refs
            ),
            *carried,
        ],
        "dependencies": [
            {
                "ref": own,
                "dependsOn": [*(refs[each] for each in needed), *(each["bom-ref"] for each in carried)],
            },
            *_dependencies(refs, pins),
            *({"ref": each["bom-ref"], "dependsOn": []} for each in carried),
        ],
    }


def _dependencies(
    refs: dict[str, str], pins: dict[str, tuple[str, set[str]]]
) -> Iterable[dict[str, str | list[str]]]:
    """Say of each package which of the others it needs."""
    for name, ref in refs.items():
        yield {"ref": ref, "dependsOn": [refs[each] for each in refs if name in pins[each][1]]}


def _component(name: str, version: str) -> dict[str, str]:
    ref = purl(name, version)
    return {"type": "library", "bom-ref": ref, "name": name, "version": version, "purl": ref}


def _vendored(name: str, version: str, license: str, file: str) -> dict[str, Any]:  # noqa: A002 - as the bill calls it
    ref = f"pkg:npm/{name}@{version}"
    digest = hashlib.sha256((ROOT / file).read_bytes()).hexdigest()
    return {
        "type": "library",
        "bom-ref": ref,
        "name": name,
        "version": version,
        "purl": ref,
        "scope": "optional",
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "licenses": [{"license": {"id": license}}],
    }


def written() -> str:
    """Return the file's text, as it is to be."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return json.dumps(bill(project, pinned(PINS.read_text()), VENDORED), indent=1) + "\n"


def main() -> int:
    """Write it."""
    SBOM.write_text(written())
    print(f"{SBOM.relative_to(ROOT)} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
