"""Where migrations lie: the outbox's own, and those of each context, each a branch by itself."""

from __future__ import annotations

import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError
from alembic.util import CommandError
from attrs import frozen

from outbox_kernel.infrastructure.discovery import context_folder, context_packages, project_folder
from outbox_kernel.infrastructure.errors import BadContext, BadMigration

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.settings import Settings

OUTBOX_BRANCH = "outbox"
VERSION_TABLE_ENDING = "_alembic_version"


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
        return f"{self.name}{VERSION_TABLE_ENDING}"

    def scripts(self) -> ScriptDirectory:
        """Read the revisions, which must be one line from the first to the last."""
        directory = ScriptDirectory(self.folder, version_locations=[self.folder])
        heads = self._heads(directory)
        if len(heads) > 1:
            raise BadMigration(
                self.name,
                f"end in more than one revision ({', '.join(heads)}): let one be the down_revision of another",
            )
        return directory

    def place_of(self, error: BaseException) -> str | None:
        """Name the file and the line of this branch that an error came from, if it did."""
        frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        if isinstance(error, SyntaxError) and error.filename:
            frames.append((error.filename, error.lineno))
        here = [(Path(name), line) for name, line in frames if Path(name).is_relative_to(self.folder)]
        return f"{_shown(here[-1][0])}:{here[-1][1]}" if here else None

    def _heads(self, directory: ScriptDirectory) -> list[str]:
        with warnings.catch_warnings():
            # Alembic warns of a revision that is there twice and takes either, or is not there and dies of it.
            warnings.filterwarnings("error", r"Revision \S+ (is present more|referenced from)", UserWarning)
            try:
                return directory.get_heads()
            except (CommandError, RevisionError, UserWarning) as error:
                reason = " ".join(str(error).split()).rstrip(".")
                raise BadMigration(
                    self.name,
                    f"in {_shown(self.folder)} do not follow one another ({reason}): "
                    "correct `revision` and `down_revision` in its files",
                ) from error
            except Exception as error:
                place = self.place_of(error) or _shown(self.folder)
                raise BadMigration(
                    self.name, f"cannot be read ({type(error).__name__}: {told(error)}, {place}): mend it"
                ) from error


def outbox_branch(schema: str | None) -> Branch:
    """Return the outbox's own."""
    return Branch(OUTBOX_BRANCH, _outbox_folder(), schema)


def branches(settings: Settings) -> list[Branch]:
    """Find the outbox's migrations, and for each context the folder `migrations/<name>` beside `contexts`."""
    found = [outbox_branch(settings.outbox_schema)]
    for package in context_packages(settings):
        context = context_folder(package)
        folder = (context.parent.parent / "migrations" / context.name).resolve()
        if not folder.is_dir():
            continue
        if context.name in {branch.name for branch in found}:
            raise BadContext(
                package, f"has migrations, but {context.name!r} is the name of another branch: rename it"
            )
        found.append(Branch(context.name, folder))
    return found


def folders_of_nobody(settings: Settings) -> list[Path]:
    """Find the folders of migrations beside `contexts` that no context claims, which nothing would run.

    Where the contexts are named one by one, leaving some out is meant; an Alembic environment is another's.
    """
    home = project_folder() / "migrations"
    if settings.contexts is not None or not home.is_dir() or (home / "env.py").exists():
        return []
    ours = {branch.folder for branch in branches(settings)}
    return sorted(
        folder
        for folder in home.iterdir()
        if any(folder.glob("*.py")) and folder not in ours and not _is_copy_of_outbox(folder)
    )


def _is_copy_of_outbox(folder: Path) -> bool:
    """Whether these are the outbox's own once more: in a checkout from which a wheel was built and installed."""
    own = {each.name for each in _outbox_folder().glob("*.py")}
    return folder.name == OUTBOX_BRANCH and {each.name for each in folder.glob("*.py")} <= own


def told(error: BaseException) -> str:
    """Give an error's words on one line, or its kind where it has none; SQLAlchemy quotes statements below."""
    return str(error).partition("\n")[0].rstrip(".") or type(error).__name__


def _shown(path: Path) -> str:
    """Shorten a path for who stands in the project's folder."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _outbox_folder() -> Path:
    """Inside the package, where the wheel has put them, else in the checkout."""
    here = Path(__file__).resolve()
    packaged = here.parent / "migrations"
    return packaged if packaged.is_dir() else here.parents[2] / "migrations" / "outbox"
