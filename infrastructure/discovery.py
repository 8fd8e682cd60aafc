"""Find the bounded contexts by name, so that nothing here imports one statically."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.errors import BadContext, ProjectElsewhere

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.settings import Settings

CONTEXTS_PACKAGE = "contexts"


def context_packages(settings: Settings) -> tuple[str, ...]:
    """Name the packages of the contexts: those of the settings, else every package under `contexts`."""
    if settings.contexts is not None:
        return settings.contexts
    if find_spec(CONTEXTS_PACKAGE) is None:
        _require_no_project_above()
        return ()
    home = import_module(CONTEXTS_PACKAGE)
    return tuple(
        sorted(f"{CONTEXTS_PACKAGE}.{found.name}" for found in iter_modules(home.__path__) if found.ispkg)
    )


def project_folder() -> Path:
    """Say where `contexts` lies, and `migrations` beside it: by default in this folder."""
    spec = find_spec(CONTEXTS_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return Path.cwd()
    return Path(next(iter(spec.submodule_search_locations))).resolve().parent


def _require_no_project_above() -> None:
    """Refuse to take a subfolder of an application for one without contexts."""
    for folder in Path.cwd().parents:
        if (folder / CONTEXTS_PACKAGE / "__init__.py").is_file():
            raise ProjectElsewhere(folder)


def context_folder(package: str) -> Path:
    """Say where a context's package lives, without importing the context itself."""
    try:
        spec = find_spec(package)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{package}.".startswith(f"{error.name}."):
            raise _not_found(package) from None
        raise lacking(package, error) from error
    if spec is None:
        raise _not_found(package)
    if not spec.submodule_search_locations:
        home = package.rpartition(".")[0]
        raise BadContext(
            package,
            "is a module, and a context is a package that has `handlers`: name the package"
            + (f", {home!r}" if home else ""),
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _not_found(package: str) -> BadContext:
    return BadContext(
        package,
        f"is not found from {Path.cwd()}: correct its name (in `contexts=`, or OUTBOX_CONTEXTS), or run this where "
        "the package is",
    )


def lacking(package: str, error: ModuleNotFoundError) -> BadContext:
    """Return the sentence of a context that asks for a module which is not there."""
    return BadContext(
        package,
        f"cannot be imported, since the module {error.name or str(error)!r} is not installed here: install what it "
        "needs (in outbox-kernel's own repository by `pip install '.[contexts]'`), mend the import, or leave the "
        "context out of OUTBOX_CONTEXTS",
    )
