"""A package begins with an essay: what it is for, who calls it, what it may import (H1)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [
    ROOT / "outbox_kernel" / "__init__.py",
    *sorted(path for folder in ("kernel", "infrastructure") for path in (ROOT / folder).rglob("__init__.py")),
]
LINES_MIN = 6
WHO_CALLS = re.compile(r"\b(?:calls?|serves?|imports)\s+(?:it|them|this\s+package|what|outlets)\b")
MAY_IMPORT = re.compile(r"\b[Ii]t\s+may\s+import\b|\bits\s+imports\s+are\b")


def missing(essay: str) -> list[str]:
    """What an essay leaves out."""
    lines = [line for line in essay.splitlines() if line.strip()]
    return [
        *(["what it is for, at some length"] if len(lines) < LINES_MIN else []),
        *([] if WHO_CALLS.search(essay) else ["who calls it"]),
        *([] if MAY_IMPORT.search(essay) else ["what it may import"]),
    ]


def name(package: Path) -> str:
    return package.parent.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("package", PACKAGES, ids=name)
def test_a_package_begins_with_what_it_is_for_who_calls_it_and_what_it_may_import(package: Path) -> None:
    assert missing(ast.get_docstring(ast.parse(package.read_text())) or "") == []


@pytest.mark.parametrize("package", ["relay", "inbox"])
def test_an_essay_says_where_the_limits_stand(package: str) -> None:
    path = ROOT / "infrastructure" / package / "__init__.py"
    assert "`limits`" in (ast.get_docstring(ast.parse(path.read_text())) or "")


def test_an_essay_that_leaves_something_out_is_found() -> None:
    assert len(missing("What touches the world.")) == 3
    whole = [*["For something."] * 4, "The relay calls it.", "It may import the kernel."]
    assert missing("\n".join(whole)) == []
    assert missing("\n".join([*whole[:4], "", *whole[4:]])) == []
    assert missing("\n".join(whole[1:])) == ["what it is for, at some length"]
    assert missing("\n".join([*whole[:4], "Nothing else.", whole[5]])) == ["who calls it"]
    assert missing("\n".join([*whole[:5], "Nothing else."])) == ["what it may import"]
