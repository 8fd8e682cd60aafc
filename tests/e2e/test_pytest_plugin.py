"""The plugin as pytest loads it: into every project of the environment, whatever that calls its packages (K12)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernel import pytest_plugin as kit
from outbox_kernel.pytest_plugin import FIXTURES
from tests.commands import ROOT, environment_with

PROJECT = """
import kernel

def test_its_own():
    assert kernel.THEIRS

def test_ours({fixture}):
    pass
"""


def pytest_in(folder: Path) -> subprocess.CompletedProcess[str]:
    # Where the distribution is installed, its entry point has loaded the plugin under the first name.
    plugins = ("-p", "no:outbox_kernel", "-p", "outbox_kernel.pytest_plugin", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, folder],
        cwd=folder,
        env=environment_with(PYTHONPATH=f"{folder}:{ROOT}"),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("fixture", FIXTURES)
def test_a_project_with_a_kernel_of_its_own_can_run_its_tests(tmp_path: Path, fixture: str) -> None:
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "__init__.py").write_text("THEIRS = True\n")
    (tmp_path / "test_it.py").write_text(PROJECT.format(fixture=fixture))
    done = pytest_in(tmp_path)
    sentence = f"the package `kernel` that Python finds is {tmp_path / 'kernel'}, not outbox-kernel's own"
    assert f"outbox-kernel: {sentence}" in done.stdout
    assert "1 passed, 1 error" in done.stdout
    assert done.stdout.count(sentence) > 1
    assert "Traceback" not in done.stdout


def test_every_fixture_is_there_where_nothing_hides_it(tmp_path: Path) -> None:
    assert {*FIXTURES} <= {*vars(kit)}
    (tmp_path / "test_it.py").write_text(f"def test_ours({', '.join(FIXTURES)}):\n    pass\n")
    done = pytest_in(tmp_path)
    assert "1 passed" in done.stdout, done.stdout
    assert "outbox-kernel:" not in done.stdout
