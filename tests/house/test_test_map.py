"""The map of the tests has every folder of them, and no other (H2)."""

from __future__ import annotations

import re
from collections import Counter

from tests.pages import ROOT

TESTS = ROOT / "tests"
# A row for all that is below a folder, since that is an application of its own.
WHOLE = "**"


def mapped() -> list[str]:
    """The folders in the first column of the page's tables."""
    rows = re.findall(r"^\|([^|]+)\|", (ROOT / "docs" / "tests.md").read_text(), re.MULTILINE)
    return [folder for row in rows for folder in re.findall(r"`(tests/[^`]*)`", row)]


def folders() -> set[str]:
    """Every folder that has a file of its own, what Python and others leave behind not counted."""
    parents = {path.parent for path in TESTS.rglob("*.*") if path.is_file() and path.suffix != ".pyc"}
    return {f"{path.relative_to(ROOT).as_posix()}/" for path in parents}


def covers(place: str, folder: str) -> bool:
    return folder.startswith(place.removesuffix(WHOLE)) if place.endswith(WHOLE) else folder == place


def test_every_folder_of_tests_is_on_the_map() -> None:
    assert [
        folder for folder in sorted(folders()) if not any(covers(place, folder) for place in mapped())
    ] == []


def test_the_map_has_nothing_else() -> None:
    assert [place for place in mapped() if not any(covers(place, folder) for folder in folders())] == []


def test_no_folder_is_on_the_map_twice() -> None:
    assert [place for place, times in Counter(mapped()).items() if times > 1] == []
