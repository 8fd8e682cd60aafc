"""Rules about the repository itself, which no other tool holds."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from outbox_kernel import kernel

ROOT = Path(__file__).parents[2]
CONTEXTS = sorted(path for path in (ROOT / "contexts").glob("*") if any(path.rglob("*.py")))

KERNEL_MAY_IMPORT = ("attr.", "attrs.", "cattrs.", "outbox_kernel.kernel.")
HEAVY = (
    "alembic",
    "asyncpg",
    "click",
    "outbox_kernel.infrastructure",
    "lagom",
    "pydantic",
    "pytest",
    "rich",
    "sqlalchemy",
)

# Written so that this file does not match itself.
FOREIGN = re.compile(
    r"pypi[.]org|pythonhosted[.]org|registry[.]npmjs|deb[.]debian[.]org|(?<![\w.])/(?:wor[k]|roo[t]|hom[e])/"
)
SLEEP = re.compile(r"\btime[.]sleep\(|\basyncio[.]sleep\((?!0\))")
LOCK_FILES = {"uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock"}


def repository_files() -> list[Path]:
    """What is committed, or would be by `git add --all`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def offences(paths: list[Path], pattern: re.Pattern[str]) -> Iterator[str]:
    for path in paths:
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
            if pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    assert list(offences(repository_files(), FOREIGN)) == []


def test_pinned_requirements_have_hashes_and_no_addresses() -> None:
    pinned = sorted((ROOT / "requirements").glob("*.txt"))
    assert [path.name for path in pinned] == ["bootstrap.txt", "dev.txt"]
    assert list(offences(pinned, re.compile("://|--index|--find-links"))) == []
    for path in pinned:
        requirements = re.split(r"\n(?=[\w-]+==)", path.read_text())[1:]
        assert [each.split()[0] for each in requirements if "--hash=sha256:" not in each] == []


def test_there_is_one_way_to_lock() -> None:
    assert [path.name for path in repository_files() if path.name in LOCK_FILES] == []


def test_no_test_waits_by_sleeping() -> None:
    asking = ROOT / "tests" / "waiting.py"
    files = [path for path in sorted((ROOT / "tests").rglob("*.py")) if path != asking]
    assert list(offences(files, SLEEP)) == []


def kernel_imports() -> Iterator[str]:
    """Every import in the kernel, those inside functions included."""
    for path in sorted((ROOT / "kernel").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            yield from names


def test_the_kernel_imports_the_standard_library_attrs_and_cattrs() -> None:
    foreign = {name for name in kernel_imports() if name.partition(".")[0] not in sys.stdlib_module_names}
    assert [name for name in foreign if not f"{name}.".startswith(KERNEL_MAY_IMPORT)] == []


def test_importing_the_kernel_loads_nothing_heavy() -> None:
    script = f"import outbox_kernel.kernel, sys; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    assert loaded == []


INNER_ROOMS = ("events", "domain", "use_cases", "handlers")


def asked_of_the_door(path: Path) -> Iterator[str]:
    """The names that a file imports from `outbox_kernel` itself."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "outbox_kernel":
            yield from (alias.name for alias in node.names)


def test_inner_rooms_take_from_the_door_only_what_the_kernel_has() -> None:
    # import-linter sees the door and not what is behind it, so what it forbids them is held here as well.
    rooms = [room for context in CONTEXTS for name in INNER_ROOMS for room in context.glob(f"{name}*")]
    files = [path for room in rooms for path in ([room] if room.is_file() else room.rglob("*.py"))]
    taken = {name for path in files for name in asked_of_the_door(path)}
    assert taken
    assert {name for name in taken if not hasattr(kernel, name)} == set()


def contract(name: str) -> configparser.SectionProxy:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    return contracts[f"importlinter:contract:{name}"]


def covered(module: str, expressions: str) -> bool:
    """Whether import-linter's wildcards, where a star stands for one name, match the module."""
    return any(
        fnmatchcase(module, expression) and module.count(".") == expression.count(".")
        for expression in expressions.split()
    )


@pytest.mark.parametrize("context", [path.name for path in CONTEXTS])
def test_every_context_is_covered_by_the_architecture_contracts(context: str) -> None:
    # Without it the folder is invisible to import-linter.
    assert (ROOT / "contexts" / context / "__init__.py").is_file()
    assert covered(f"contexts.{context}", contract("rooms-of-a-context")["containers"])
    assert covered(f"contexts.{context}", contract("contexts-meet-in-events")["modules"])
    for room in INNER_ROOMS:
        sources = contract("inner-rooms-know-no-technology")["source_modules"]
        assert covered(f"contexts.{context}.{room}", sources)


def test_a_room_outside_the_rules_breaks_the_contract() -> None:
    assert contract("rooms-of-a-context").getboolean("exhaustive")
