"""The door to the distribution, under the one name that nobody else has.

`kernel` and `infrastructure` are common names, and an application's own folder of that name comes first on
the path. So the command and the pytest plugin begin here, where it can be told. Looked up without
importing: a stranger's package may do anything when imported.
"""

from __future__ import annotations

import sys
from pathlib import Path

# A file that ours has: two distributions with one name are installed into one folder, the one over the other.
_PACKAGES = {"kernel": "errors.py", "infrastructure": "installation.py"}


def shadowing_sentence() -> str | None:
    """Say which foreign package hides ours and what to do, or nothing when all is well."""
    ours = Path(__file__).resolve().parent.parent
    for package, file in _PACKAGES.items():
        found = _folder_of(package)
        if found != ours / package or not (found / file).is_file():
            return (
                f"the package `{package}` that Python finds is {found or 'missing'}, not outbox-kernel's own at "
                f"{ours / package}: rename yours, or take its folder off PYTHONPATH"
            )
    return None


def _folder_of(package: str) -> Path | None:
    # Not `importlib.util.find_spec`: it answers with what is imported already, whatever the path says by now.
    specs = (finder.find_spec(package, None) for finder in sys.meta_path)
    spec = next((spec for spec in specs if spec is not None), None)
    where = spec and (spec.origin or next(iter(spec.submodule_search_locations or ()), None))
    if not where:
        return None
    path = Path(where).resolve()
    return path if path.is_dir() else path.parent
