"""Rules about the repository itself, which no other tool holds."""

from __future__ import annotations

import ast
import configparser
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from sqlalchemy import Connection
from sqlalchemy.orm import Session, SessionTransaction

from outbox_kernel import kernel
from outbox_kernel.infrastructure.outbox import sqlalchemy_inside
from outbox_kernel.infrastructure.postgres import asyncpg_inside

ROOT = Path(__file__).parents[2]
CONTEXTS = sorted(path for path in (ROOT / "contexts").glob("*") if any(path.rglob("*.py")))

KERNEL_MAY_IMPORT = ("attr.", "attrs.", "cattrs.", "outbox_kernel.kernel.")
HEAVY = (
    "alembic",
    "asyncpg",
    "click",
    "outbox_kernel.infrastructure",
    "lagom",
    "msgspec",
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


# --- what the libraries do not promise ----------------------------------------------------------------

INSIDES = (
    "infrastructure/outbox/sqlalchemy_inside.py",
    "infrastructure/postgres/asyncpg_inside.py",
    "kernel/mapped.py",
)
LISTED = {
    name.rpartition(".")[2]: name
    for names in (sqlalchemy_inside.USED, asyncpg_inside.USED, sqlalchemy_inside.OVERRIDDEN)
    for name in names
}
OVERRIDDEN = {name.rpartition(".")[2] for name in sqlalchemy_inside.OVERRIDDEN}
# With an underscore, and meant to be used.
PROMISED = {
    **dict.fromkeys(
        ("_asdict", "_fields", "_replace"), "a named tuple's, where its fields have the other names"
    ),
    "_exit": "documented in `os`",
    **dict.fromkeys(("_current_frames", "_getframe"), "documented in `sys`"),
    "_mapping": "documented by SQLAlchemy, of a row",
    # Promised by nobody; Alembic's own commands go these ways, and print what they do.
    **dict.fromkeys(("_upgrade_revs", "_downgrade_revs"), "the route to a revision, for the migrator alone"),
}
PRODUCT = ("kernel", "infrastructure", "outbox_kernel", "contexts", "benchmarks", "migrations", "tools")


@cache
def product() -> dict[str, ast.Module]:
    """What the product's files say, by their names."""
    found = {path.resolve() for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")}
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in sorted(found)}


def is_own(node: ast.Attribute) -> bool:
    """Whether it is an object's or a class's own attribute, or the method that the one around it overrides."""
    if isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) == "super" and node.attr in OVERRIDDEN
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def looks_inside(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield each listed name that is not an own one, as attribute, in a string, or imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in LISTED and not is_own(node):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and node.value in LISTED:
            yield node.lineno, str(node.value)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            yield from ((node.lineno, name) for name in inside_imports(node))


def inside_imports(node: ast.ImportFrom | ast.Import) -> Iterator[str]:
    module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        parts = f"{module}.{alias.name}".strip(".").split(".")
        if parts[0] in ("sqlalchemy", "asyncpg"):
            yield from (part for part in parts if part in LISTED or part.startswith("_"))


def test_only_the_modules_for_it_look_into_a_library() -> None:
    found = [
        f"{name}:{line}: {what} is inside a library: let one of {', '.join(INSIDES)} have a function for it"
        for name, tree in product().items()
        if name not in INSIDES
        for line, what in looks_inside(tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    "looking",
    [
        "session._autobegin_t()",
        "getattr(engine, '_proxied', None)",
        "from sqlalchemy.orm.loading import _new_runid",
        "from sqlalchemy.orm._typing import anything",
        "import sqlalchemy.orm._typing",
        "from asyncpg import connect_utils",
        "import asyncpg.connect_utils",
        "super()._autobegin_t()",
        "other()._cursor_execute()",
    ],
)
def test_whoever_looks_into_a_library_is_seen(looking: str) -> None:
    assert list(looks_inside(ast.parse(looking)))


@pytest.mark.parametrize(
    "own", ["self._connection", "super()._cursor_execute()", "from asyncpg import connect", "a._b"]
)
def test_what_is_ones_own_may_have_any_name(own: str) -> None:
    assert not list(looks_inside(ast.parse(own)))


def heirs() -> Iterator[tuple[type, type]]:
    """Yield the classes of ours that are sessions, transactions or connections of SQLAlchemy's, with what they are."""
    import_module("outbox_kernel.infrastructure.outbox.install")  # and with it all of them
    for base in (Session, SessionTransaction, Connection):
        waiting: list[type] = [*base.__subclasses__()]
        while waiting:
            cls = waiting.pop()
            waiting += cls.__subclasses__()
            # Those that `install_capture` makes have no text of their own.
            if cls.__module__.startswith("outbox_kernel.") and cls is getattr(
                sys.modules[cls.__module__], cls.__name__, None
            ):
                yield cls, base


def test_what_an_heir_overrides_is_listed() -> None:
    overrides = {
        f"{base.__name__}.{name}"
        for cls, base in heirs()
        for name in vars(cls)
        if re.match("_[^_]", name) and hasattr(base, name)
    }
    assert overrides == set(sqlalchemy_inside.OVERRIDDEN)


def test_an_heir_does_not_look_inside_itself() -> None:
    used = {name.rpartition(".")[2] for name in sqlalchemy_inside.USED} - OVERRIDDEN
    found = [
        f"{cls.__name__} is a {base.__name__}: self.{node.attr} is SQLAlchemy's, not its own"
        for cls, base in heirs()
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls))))
        if isinstance(node, ast.Attribute) and is_own(node) and node.attr in used
    ]
    assert found == []


def own_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node):
            yield node.attr


def test_an_underscore_is_ours_or_listed() -> None:
    # Catches what no list knows yet.
    known = {*PROMISED, *LISTED, *(own for tree in product().values() for own in own_names(tree))}
    found = [
        f"{name}:{node.lineno}: {node.attr} is nobody's of ours: find a public way, or list it with its reason"
        for name, tree in product().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr) and node.attr not in known
    ]
    assert found == []


# --- SQL ----------------------------------------------------------------------------------------------

STATEMENTS = sorted((ROOT / "infrastructure" / "outbox" / "sql").glob("*.py"))


def test_a_statement_names_its_parameters() -> None:
    assert list(offences(STATEMENTS, re.compile(r"[^`]\$\d"))) == []


# --- how long a file and a function may be ------------------------------------------------------------

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 40
SHORT = ("kernel/", "infrastructure/", "outbox_kernel/")


def short_files() -> Iterator[tuple[str, ast.Module]]:
    return ((name, tree) for name, tree in product().items() if name.startswith(SHORT))


def long_functions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the first line and the name of each function that is too long, its decorators not counted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield node.lineno, f"{node.name} has {lines} lines"


def test_a_file_is_short() -> None:
    lengths = {name: len((ROOT / name).read_text().splitlines()) for name, _ in short_files()}
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_a_function_is_short() -> None:
    found = [
        f"{name}:{line}: {told}, and {FUNCTION_LINES_MAX} are enough"
        for name, tree in short_files()
        for line, told in long_functions(tree)
    ]
    assert found == []


def test_a_long_function_is_found_wherever_it_is() -> None:
    body = "\n".join(["        pass"] * FUNCTION_LINES_MAX)
    assert list(long_functions(ast.parse(f"class C:\n    async def f(self):\n{body}"))) == [
        (2, "f has 41 lines")
    ]
    assert not list(long_functions(ast.parse(f"class C:\n    def f(self):\n{body[:-13]}")))
