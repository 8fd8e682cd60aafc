"""Where migrations lie: the outbox's own, and those of each context, each a branch by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alembic.script import ScriptDirectory
from attrs import frozen

from infrastructure.discovery import context_folder, context_packages
from infrastructure.errors import BadContext

if TYPE_CHECKING:
    from infrastructure.settings import Settings

OUTBOX_BRANCH = "outbox"


@frozen
class Branch:
    """The migrations of one owner: where they lie, and in which schema they work."""

    name: str
    folder: Path
    schema: str | None = None

    @property
    def version_table(self) -> str:
        """The table that remembers which of them have run.

        One per branch: a machine that carries only some of the contexts can migrate, and none meets an
        application's own `alembic_version`.
        """
        return f"{self.name}_alembic_version"

    def scripts(self) -> ScriptDirectory:
        """Read the revisions."""
        return ScriptDirectory(self.folder, version_locations=[self.folder])


def branches(settings: Settings) -> list[Branch]:
    """Find the outbox's migrations, and for each context the folder `migrations/<name>` beside `contexts`."""
    found = [Branch(OUTBOX_BRANCH, _outbox_folder(), settings.outbox_schema)]
    for package in context_packages(settings):
        context = context_folder(package)
        folder = context.parent.parent / "migrations" / context.name
        if not folder.is_dir():
            continue
        if context.name in {branch.name for branch in found}:
            raise BadContext(
                package, f"has migrations, but {context.name!r} is the name of another branch: rename it"
            )
        found.append(Branch(context.name, folder))
    return found


def _outbox_folder() -> Path:
    """Inside the package, where the wheel has put them, else in the checkout."""
    here = Path(__file__).resolve()
    packaged = here.parent / "migrations"
    return packaged if packaged.is_dir() else here.parents[2] / "migrations" / "outbox"
