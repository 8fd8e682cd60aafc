"""Every command and every snippet of the README and the docs, run as a reader would run them."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from outbox_kernel.infrastructure.addresses import listen
from tests.brokers import Broker
from tests.commands import environment_with
from tests.page_runner import PageRunner
from tests.pages import PAGES, ROOT, PageError, blocks_of, name_of
from tests.post import sweep_contexts

# Begin with an empty environment and install the product themselves.
FRESH = {"docs/tutorial.md"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


# Speak of a broker, and need one.
WITH_BROKER = {"docs/how-to/publish-to-rabbitmq.md"}
# Have promtool read what they write, and serve at a port that somebody else may have taken.
WITH_PROMETHEUS = {"docs/how-to/watch-it.md"}
PORT = "9464"


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if name_of(page) not in FRESH | WITH_BROKER | WITH_PROMETHEUS],
    ids=name_of,
)
def test_the_page_does_what_it_says(page: Path, folder: Path, empty_postgres_url: str) -> None:
    with PageRunner(folder, empty_postgres_url) as runner:
        for block in blocks_of(page):
            runner.run(block)


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) in WITH_BROKER], ids=name_of)
def test_the_page_does_what_it_says_with_a_broker(
    page: Path, folder: Path, empty_postgres_url: str, rabbitmq_broker: Broker
) -> None:
    try:
        with PageRunner(folder, empty_postgres_url, RABBITMQ_URL=rabbitmq_broker.url) as runner:
            for block in blocks_of(page):
                runner.run(block)
    finally:
        asyncio.run(sweep_contexts(rabbitmq_broker.url))


@pytest.mark.prometheus
@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) in WITH_PROMETHEUS], ids=name_of)
def test_the_page_does_what_it_says_with_a_prometheus(
    page: Path, folder: Path, empty_postgres_url: str, promtool: object
) -> None:
    with closing(listen("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
    with PageRunner(folder, empty_postgres_url, serves=True) as runner:
        for block in blocks_of(page):
            runner.run(attrs.evolve(block, text=block.text.replace(PORT, port)))


@pytest.mark.wheel
@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) in FRESH], ids=name_of)
def test_the_page_does_what_it_says_from_nothing(page: Path, folder: Path, empty_postgres_url: str) -> None:
    with PageRunner(folder, empty_postgres_url, fresh=True) as runner:
        for block in blocks_of(page):
            runner.run(block)


def test_a_fifth_context_takes_less_than_a_hundred_lines() -> None:
    page = ROOT / "docs" / "tutorial-fifth-context.md"
    files = [block for block in blocks_of(page) if block.language == "python" and block.argument]
    lines = [line.strip() for block in files for line in block.text.splitlines()]
    assert len([line for line in lines if line and not line.startswith(("#", '"""'))]) < 100


# What its reader has copied before the first file of the page is written.
@pytest.mark.parametrize(
    ("name", "copied"), [("tutorial.md", []), ("tutorial-fifth-context.md", ["contexts"])]
)
def test_the_tutorials_code_is_typed_as_strictly_as_its_reader_may_want(
    name: str, copied: list[str], tmp_path: Path
) -> None:
    for folder in copied:
        shutil.copytree(ROOT / folder, tmp_path / folder)
    written = files_of(ROOT / "docs" / name)
    for path, text in written.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if path.startswith("contexts/"):
            (tmp_path / "contexts" / "__init__.py").touch()
            (file.parent / "__init__.py").touch()
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--explicit-package-bases", "--cache-dir=.cache"),
            # Its prompt can wait.
            *("--disable-error-code", "top-level-await", *written),
        ],
        cwd=tmp_path,
        env=environment_with(MYPYPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def files_of(page: Path) -> dict[str, str]:
    """The Python of a page by file; what is typed at the prompt is one more."""
    written: dict[str, str] = {}
    for block in blocks_of(page):
        if block.language == "python":
            path = block.argument or "prompt.py"
            written[path] = written.get(path, "") + block.text
    return written


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert False\n```",
        "```python\nprint(1)\n```\n```text output\n2\n```",
        "```console\n$ echo a\nb\n```",
        "```console\n$ false\n```",
        "```python contexts/accounts/domain.py\nnothing like it\n```",
        "```ini\nno = name\n```",
        "```diff README.md\n-nothing\n+like it\n```",
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
