"""Migrations of a context that cannot be read, followed or run: one sentence, and nothing half done (O1)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.commands import ROOT, failed_in_one_sentence, outbox

GOOD = """
from alembic import op
revision, down_revision = {revision!r}, {after!r}
def upgrade():
    {upgrade}
def downgrade():
    pass
"""

OF_THE_OUTBOX = len(list((ROOT / "migrations" / "outbox").glob("*.py")))


def migration(revision: str, after: str | None = None, upgrade: str = "pass") -> str:
    return GOOD.format(revision=revision, after=after, upgrade=upgrade)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of an application with one context and no migration."""
    for folder in ("contexts/shop", "migrations/shop"):
        (tmp_path / folder).mkdir(parents=True)
    for package in ("contexts", "contexts/shop"):
        (tmp_path / package / "__init__.py").touch()
    return tmp_path


def write(project: Path, **files: str) -> None:
    for name, text in files.items():
        (project / "migrations" / "shop" / f"{name}.py").write_text(text)


def refused(project: Path, url: str) -> str:
    sentence = failed_in_one_sentence(outbox("migrate", folder=project, DATABASE_URL=url))
    assert "'shop'" in sentence
    return sentence


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def upgrade(:", "SyntaxError: invalid syntax (0001_a.py, line 1), migrations/shop/0001_a.py:1"),
        ("x = 1\n1 / 0", "ZeroDivisionError: division by zero, migrations/shop/0001_a.py:2"),
        ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("raise KeyError", "cannot be read (KeyError: KeyError, migrations/shop/0001_a.py:1): mend it"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(
    project: Path, empty_postgres_url: str, text: str, words: str
) -> None:
    write(project, **{"0001_a": text})
    assert words in refused(project, empty_postgres_url)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a": migration("a", "nowhere")}, "Revision nowhere referenced from"),
        ({"a": migration("a"), "b": migration("a")}, "Revision a is present more than once"),
        ({"a": migration("a", "b"), "b": migration("b", "a")}, "correct `revision` and `down_revision`"),
        ({"a": "x = 1"}, "module 'a_py' has no attribute 'down_revision', migrations/shop): mend it"),
        (
            {"a": migration("a"), "b": migration("b", "a"), "c": migration("c", "a")},
            "end in more than one revision (b, c): let one be the down_revision of another",
        ),
    ],
    ids=["unknown", "twice", "circle", "none", "two heads"],
)
def test_files_that_do_not_follow_one_another_are_told(
    project: Path, empty_postgres_url: str, files: dict[str, str], words: str
) -> None:
    write(project, **files)
    assert words in refused(project, empty_postgres_url)


def test_nothing_runs_where_one_branch_cannot_be_read(project: Path, empty_postgres_url: str) -> None:
    write(project, a="1 / 0")
    refused(project, empty_postgres_url)
    write(project, a=migration("a"))
    done = outbox("migrate", folder=project, DATABASE_URL=empty_postgres_url)
    assert done.stdout.splitlines()[-1] == f"{OF_THE_OUTBOX + 1} migrations applied"


@pytest.mark.parametrize(
    ("upgrade", "words"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero, migrations/shop/a.py:5"),
        ("op.execute('CREATE TABEL shops ()')", 'syntax error at or near "TABEL"'),
        ("op.execute('DROP TABLE shops')", 'table "shops" does not exist'),
        ("op.execute('CREATE TABLE outbox_events ()')", 'relation "outbox_events" already exists'),
    ],
)
def test_a_migration_that_fails_is_told_with_its_line(
    project: Path, empty_postgres_url: str, upgrade: str, words: str
) -> None:
    write(project, a=migration("a", upgrade=upgrade))
    sentence = refused(project, empty_postgres_url)
    assert sentence.startswith("the migration of 'shop' failed and changed nothing (")
    assert words in sentence
    assert sentence.endswith("a.py:5): mend that file and run it again")


def test_a_migration_that_needs_a_database_cannot_go_into_a_script(project: Path) -> None:
    write(project, a=migration("a", upgrade="op.get_bind().execute(None).all()"))
    sentence = failed_in_one_sentence(outbox("migrate", "--sql", folder=project))
    assert sentence.startswith("the migration of 'shop' failed and changed nothing (AttributeError")


def test_a_folder_of_migrations_that_no_context_claims_is_told(
    project: Path, empty_postgres_url: str
) -> None:
    write(project, a=migration("a"))
    stray = project / "migrations" / "shpo"
    stray.mkdir()
    (stray / "0001.py").write_text(migration("b"))
    done = outbox("migrate", folder=project, DATABASE_URL=empty_postgres_url)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"{OF_THE_OUTBOX + 1} migrations applied"
    assert done.stderr == (
        f"note: {stray} belongs to no context, so its migrations did not run: name it like the package of its "
        "context, with contexts/shpo/__init__.py beside it\n"
    )


def test_the_outboxs_own_migrations_beside_an_installed_wheel_are_none_of_nobodys(
    project: Path, empty_postgres_url: str
) -> None:
    """A checkout from which the product was installed has them twice."""
    write(project, a=migration("a"))
    shutil.copytree(ROOT / "migrations" / "outbox", project / "migrations" / "outbox")
    done = outbox("migrate", folder=project, DATABASE_URL=empty_postgres_url)
    assert (done.returncode, done.stderr) == (0, "")


def test_contexts_that_are_left_out_on_purpose_are_not_missed(project: Path, empty_postgres_url: str) -> None:
    write(project, a=migration("a"))
    (project / "contexts" / "other").mkdir()
    (project / "contexts" / "other" / "__init__.py").touch()
    settings = {"DATABASE_URL": empty_postgres_url, "OUTBOX_CONTEXTS": "contexts.other"}
    done = outbox("migrate", folder=project, **settings)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_alembic_environment_of_the_applications_own_is_not_taken_for_ours(
    project: Path, empty_postgres_url: str
) -> None:
    (project / "migrations" / "env.py").touch()
    (project / "migrations" / "versions").mkdir()
    (project / "migrations" / "versions" / "1.py").write_text(migration("b"))
    done = outbox("migrate", folder=project, DATABASE_URL=empty_postgres_url)
    assert (done.returncode, done.stderr) == (0, "")
