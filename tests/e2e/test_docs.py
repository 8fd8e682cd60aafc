"""Every command and every snippet of the README and the docs, run as a reader would run them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.page_runner import PageRunner
from tests.pages import PAGES, PageError, blocks_of, name_of

# Begin with an empty environment and install the product themselves.
FRESH = {"docs/tutorial.md"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) not in FRESH], ids=name_of)
def test_the_page_does_what_it_says(page: Path, folder: Path, empty_postgres_url: str) -> None:
    with PageRunner(folder, empty_postgres_url) as runner:
        for block in blocks_of(page):
            runner.run(block)


@pytest.mark.wheel
@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) in FRESH], ids=name_of)
def test_the_page_does_what_it_says_from_nothing(page: Path, folder: Path, empty_postgres_url: str) -> None:
    with PageRunner(folder, empty_postgres_url, fresh=True) as runner:
        for block in blocks_of(page):
            runner.run(block)


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert False\n```",
        "```python\nprint(1)\n```\n```text output\n2\n```",
        "```console\n$ echo a\nb\n```",
        "```console\n$ false\n```",
        "```python contexts/accounts/domain.py\nnothing like it\n```",
        "```ini\nno = name\n```",
    ],
)
def test_a_page_that_lies_is_found_out(text: str, folder: Path, empty_postgres_url: str) -> None:
    with (
        PageRunner(folder, empty_postgres_url) as runner,
        pytest.raises(PageError, match=r"page\.md:1|page\.md:4"),
    ):
        for block in blocks_of(Path("page.md"), text):
            runner.run(block)


def test_blocks_share_names_and_may_await(folder: Path, empty_postgres_url: str) -> None:
    first, second = "x = 1", "import asyncio\nawait asyncio.sleep(0)\nprint(x)"
    text = f"```python\n{first}\n```\n```python\n{second}\n```\n```text output\n1\n```"
    with PageRunner(folder, empty_postgres_url) as runner:
        for block in blocks_of(Path("page.md"), text):
            runner.run(block)
