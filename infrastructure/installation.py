"""Whether the `kernel` that Python finds is the one this `infrastructure` was installed with.

Both names are common, and an application's own folder of that name comes first on the path. Looked up
without importing: a stranger's package may do anything when imported.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def shadowing_sentence() -> str | None:
    """Say which foreign package hides ours and what to do, or nothing when all is well."""
    ours = Path(__file__).resolve().parent.parent
    found = _folder_of("kernel")
    if found == ours / "kernel" and (found / "errors.py").is_file():
        return None
    return (
        f"the package `kernel` that Python finds is {found or 'missing'}, not outbox-kernel's own at "
        f"{ours / 'kernel'}: rename yours, or take its folder off PYTHONPATH"
    )


def require_our_kernel() -> None:
    """Raise `ImportError` with that sentence; the errors of a foreign kernel are not ours to derive from."""
    if sentence := shadowing_sentence():
        raise ImportError(sentence, name="kernel")


def _folder_of(package: str) -> Path | None:
    spec = find_spec(package)
    if spec is None:
        return None
    where = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    if where is None:
        return None
    path = Path(where).resolve()
    return path if path.is_dir() else path.parent
