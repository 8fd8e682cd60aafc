"""The page of requirements has every id that is cited, and for each a test that exists (H2)."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT

PAGE = ROOT / "docs" / "requirements.md"
WITHOUT_TESTS = ("Held by no test", "Not yet")
FOLDERS = (
    "kernel",
    "infrastructure",
    "contexts",
    "outbox_kernel",
    "migrations",
    "benchmarks",
    "tools",
    "tests",
)

# A single letter means all ids of its section, and is cited in brackets or before a colon.
ID = r"[KCDRTXOH](?:0|[1-9]\d?)[a-z]?"
CITED = re.compile(rf"(?<![\w.&%#])({ID})(?!\w)|\(([KCDRTXOHS])\)|^([KCDRTXOHS])(?=[:,] )", re.MULTILINE)
TEST = re.compile(r"tests/[\w/]+\.py(?:::\w+)?")


def sections() -> dict[str, str]:
    """What stands below each heading of the page's second order."""
    parts = re.split(r"^## (.+)\n", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def listed() -> list[str]:
    """Every id that the page tells of, as often as it does."""
    return [
        name
        for title, text in sections().items()
        for name in re.findall(
            r"^- \*\*(\w+)\*\*" if title in WITHOUT_TESTS else r"^### (\w+) ", text, re.MULTILINE
        )
    ]


def proofs() -> dict[str, list[str]]:
    """The tests of each id that has an entry of its own, as the line after `Tests:` names them."""
    entries = re.findall(r"^### (\w+) .+\n((?:(?!##).*\n)*)", PAGE.read_text(), re.MULTILINE)
    return {
        name: TEST.findall("".join(re.findall(r"^Tests: (?:.+\n)+", text, re.MULTILINE)))
        for name, text in entries
    }


@cache
def cited_in(path: Path) -> tuple[str, ...]:
    """The ids that a file cites."""
    return tuple(
        next(filter(None, match.groups())) for text in said_in(path) for match in CITED.finditer(text)
    )


def said_in(path: Path) -> Iterator[str]:
    """Where ids may be cited: comments and docstrings of code, and all of a page."""
    text = path.read_text()
    if path.suffix != ".py":
        yield text
    elif CITED.search(text):  # to read all others as code takes seconds
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield ast.get_docstring(node) or ""


def cited(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """Each id that is cited, with the file that does so."""
    for path in paths:
        yield from ((name, path.relative_to(ROOT).as_posix()) for name in cited_in(path))


def code(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def exists(test: str) -> bool:
    """Whether there is such a file, and the function in it where one is named."""
    path, _, function = test.partition("::")
    if not (ROOT / path).is_file():
        return False
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    names = {
        node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, functions)
    }
    return not function or function in names


def test_every_id_that_is_cited_is_on_the_page() -> None:
    known = {*listed(), *(name[0] for name in listed())}
    pages = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    found = list(cited([*code(*FOLDERS), *pages]))
    assert len({name for name, _ in found}) > len(known) / 2
    assert [(name, path) for name, path in found if name not in known] == []


def test_no_id_is_on_the_page_twice() -> None:
    assert [name for name, times in Counter(listed()).items() if times > 1] == []


def test_every_entry_names_a_test() -> None:
    assert [name for name, tests in proofs().items() if not tests] == []
    assert {*proofs()} | {*re.findall(r"^- \*\*(\w+)\*\*", PAGE.read_text(), re.MULTILINE)} == {*listed()}


def test_every_test_that_is_named_exists() -> None:
    assert sorted({test for tests in proofs().values() for test in tests if not exists(test)}) == []


@pytest.mark.parametrize("title", WITHOUT_TESTS)
def test_what_is_not_tested_yet_names_no_test(title: str) -> None:
    assert TEST.findall(sections()[title]) == []


def test_what_a_test_cites_has_an_entry_that_names_tests() -> None:
    untested = {name for name in listed() if name not in proofs()}
    assert [(name, path) for name, path in cited(code("tests")) if name in untested] == []


@pytest.mark.parametrize(
    ("test", "there"),
    [
        ("tests/house/test_docs.py", True),
        ("tests/house/test_docs.py::test_output_must_be_as_shown", True),
        ("tests/house/test_docs.py::test_of_nothing", False),
        ("tests/unit/test_nothing.py", False),
    ],
)
def test_a_test_that_is_not_there_is_found_out(test: str, *, there: bool) -> None:
    assert exists(test) is there


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("It holds (C4).", ["C4"]),
        ("C3b: it is new again.", ["C3b"]),
        ("Both of them (R1, R4-R7b).", ["R1", "R4", "R7b"]),
        ("All of it (K).", ["K"]),
        ("S: a table.", ["S"]),
        ("At T00:00, %D9, UTF8, ABC1, R2D2, 2.C4, A or S.", []),
    ],
)
def test_an_id_is_told_from_what_is_none(text: str, ids: list[str]) -> None:
    assert [next(filter(None, match.groups())) for match in CITED.finditer(text)] == ids
