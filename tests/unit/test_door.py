"""The one name that applications import (D1)."""

from __future__ import annotations

import ast
import inspect
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import outbox_kernel
from outbox_kernel import errors, kernel, testing
from outbox_kernel.infrastructure import errors as infrastructure_errors
from outbox_kernel.kernel import errors as kernel_errors
from outbox_kernel.kernel import refusals

ROOT = Path(__file__).parents[2]


def python(script: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", outbox_kernel.__all__)
def test_every_name_of_the_door_is_the_one_below_it(name: str) -> None:
    home = import_module(outbox_kernel.HOMES_BY_NAME[name])
    assert getattr(outbox_kernel, name) is getattr(home, name)


def test_a_type_checker_is_told_of_the_same_names_at_the_same_homes() -> None:
    told = {
        alias.name: node.module
        for node in ast.walk(ast.parse(inspect.getsource(outbox_kernel)))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("outbox_kernel.")
        for alias in node.names
    }
    assert told == outbox_kernel.HOMES_BY_NAME
    assert sorted(outbox_kernel.__all__) == sorted(told)
    assert {*outbox_kernel.__all__} <= {*dir(outbox_kernel)}


def test_a_name_that_is_not_there_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="'outbox_kernel' has no attribute 'Outbocks'"):
        outbox_kernel.Outbocks  # noqa: B018 - asked for, not used


def test_a_domain_is_written_without_loading_sqlalchemy() -> None:
    done = python(
        "import sys\nfrom outbox_kernel import AggregateRoot, aggregate, event, handles, UnitOfWork\n"
        "print(*(name for name in ('sqlalchemy', 'asyncpg', 'lagom', 'click') if name in sys.modules))"
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.mark.parametrize(
    "source", [kernel_errors, refusals, infrastructure_errors], ids=lambda it: it.__name__
)
def test_every_error_is_among_the_errors(source: ModuleType) -> None:
    defined = {name for name, value in vars(source).items() if _is_error_of(source, value)}
    assert defined
    assert defined <= {*errors.__all__}
    assert all(getattr(errors, name) is getattr(source, name) for name in defined)


def test_the_kernel_offers_those_errors_alone_that_an_application_raises() -> None:
    """D1: the others have one place to be imported from."""
    offered = {name for name in kernel.__all__ if name in errors.__all__}
    assert offered == {name for name in outbox_kernel.__all__ if name in errors.__all__}


def _is_error_of(source: ModuleType, value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception) and value.__module__ == source.__name__


def test_the_kit_is_whole() -> None:
    assert {*testing.__all__} == {*kernel.testing.__all__}


@pytest.mark.parametrize("package", ["kernel", "infrastructure"])
def test_the_folder_at_the_top_is_no_package_of_that_name(package: str) -> None:
    done = python(f"import {package}")
    told = done.stderr.splitlines()[-1]
    assert (
        told
        == f"ImportError: outbox-kernel has no top-level package {package!r}: import outbox_kernel.{package}"
    )


@pytest.mark.parametrize("package", ["kernel", "infrastructure"])
def test_a_folder_of_that_name_in_an_application_is_the_applications(tmp_path: Path, package: str) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("THEIRS = True\n")
    done = python(f"import {package}; from outbox_kernel import Settings; print({package}.THEIRS)", tmp_path)
    assert (done.stdout.strip(), done.stderr) == ("True", "")


def test_a_class_is_pickled_by_the_one_name() -> None:
    assert pickle.loads(pickle.dumps(kernel.RetrySchedule)) is kernel.RetrySchedule  # noqa: S301 - our own
    assert b"outbox_kernel.kernel.retry" in pickle.dumps(kernel.RetrySchedule)


def test_a_debugger_finds_a_module_where_its_file_is() -> None:
    function = kernel.serialize_event
    assert Path(function.__code__.co_filename) == Path(function.__code__.co_filename).resolve()


def test_one_folder_alone_has_the_package() -> None:
    # An editable install once copied what the wheel has; the copies went stale beside the checkout.
    homes = {Path(entry).resolve() for entry in sys.path if (Path(entry) / "outbox_kernel").is_dir()}
    assert homes == {ROOT}
