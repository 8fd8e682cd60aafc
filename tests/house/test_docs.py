"""What holds of the pages without running them: no block goes unnoticed, no link leads nowhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from outbox_kernel import errors, kernel, testing
from outbox_kernel.infrastructure.cli.command_line import COMMANDS
from outbox_kernel.infrastructure.outbox.tables import outbox_events
from outbox_kernel.infrastructure.outbox.views import EVENT_STATES
from tests.pages import (
    ELSEWHERE,
    PAGES,
    ROOT,
    PageError,
    anchors_of,
    blocks_of,
    commands_of,
    is_excerpt,
    links_of,
    matches,
    name_of,
)

PAGE = Path("page.md")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_in_a_language_that_is_run_or_checked(page: Path) -> None:
    for block in blocks_of(page):
        if block.language == "console":
            commands_of(block)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


@pytest.mark.parametrize(
    "text", ["```ruby\nputs 1\n```", "```\nx\n```", "Text.\n\n    indented code", "<pre>x</pre>"]
)
def test_a_block_that_nobody_would_run_is_refused(text: str) -> None:
    with pytest.raises(PageError, match=r"page\.md:"):
        blocks_of(PAGE, text)


def test_a_console_block_without_a_command_is_refused() -> None:
    (block,) = blocks_of(PAGE, "```console\noutput\n$ command\n```")
    with pytest.raises(PageError, match="begins with a command"):
        commands_of(block)


def test_a_command_may_go_on_in_the_next_line_and_has_its_output_below() -> None:
    (block,) = blocks_of(PAGE, "```console\n$ one \\\n    two\nout\n$ three\n```")
    assert [(each.line, each.output) for each in commands_of(block)] == [
        ("one \\\n    two", "out"),
        ("three", ""),
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [("a", "a  \n", True), ("a\n...\nz", "a\nb\nz", True), ("a", "b", False), ("a", "a\nb", False)],
)
def test_output_must_be_as_shown(shown: str, printed: str, *, same: bool) -> None:
    assert matches(shown, printed) is same


def test_an_excerpt_must_stand_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text("class A:\n    def b(self):\n        return 1\n")
    assert is_excerpt("def b(self):\n    return 1\n", file)
    assert not is_excerpt("def b(self):\n    return 2\n", file)


def test_what_is_run_elsewhere_is_a_target_of_the_makefile_and_on_a_page() -> None:
    makefile = (ROOT / "Makefile").read_text()
    shown = {
        command.line
        for page in PAGES
        for block in blocks_of(page)
        if block.language == "console"
        for command in commands_of(block)
    }
    for line, (instead, reason) in ELSEWHERE.items():
        assert line in shown
        assert reason
        if not line.startswith("make "):
            continue
        recipe = re.search(rf"^{line.removeprefix('make ')}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
        assert recipe is not None, f"the Makefile has no target for `{line}`"
        assert instead in recipe[1]


def test_the_reference_of_the_table_has_every_column_state_and_index() -> None:
    named = {*re.findall(r"`(\w+)`", (ROOT / "docs" / "reference" / "outbox-table.md").read_text())}
    rules = (*outbox_events.indexes, *outbox_events.constraints)
    keys = {str(getattr(each, "name", None)) for each in rules}
    assert {*outbox_events.c.keys(), *EVENT_STATES, *keys} - named == set()


@pytest.mark.parametrize("package", [kernel, testing], ids=lambda package: package.__name__)
def test_the_reference_has_every_public_name(package: ModuleType) -> None:
    named = set(re.findall(r"`(\w+)[`(.\[]", (ROOT / "docs" / "reference" / "kernel.md").read_text()))
    assert set(package.__all__) - named == set()


def test_the_reference_has_every_error_of_the_kernel() -> None:
    page = (ROOT / "docs" / "reference" / "kernel.md").read_text()
    of_kernel = [
        name for name in errors.__all__ if getattr(errors, name).__module__.startswith(kernel.__name__)
    ]
    assert of_kernel
    assert set(of_kernel) - set(re.findall(r"`(\w+)`", page)) == set()


def test_the_glossary_has_every_word_once_and_in_order() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    words = [re.findall(r"^### (.+)", part, re.MULTILINE) for part in page.split("\n## ")[1:]]
    assert words
    assert [part for part in words if part != sorted(part)] == []
    assert len({word for part in words for word in part}) == sum(map(len, words))


def test_the_reference_of_the_commands_has_a_heading_for_each() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    headed = set(re.findall(r"[\w-]+", " ".join(re.findall(r"^## (.+)", page, re.MULTILINE))))
    assert set(COMMANDS) - headed == set()


def test_the_reference_of_the_extras_has_each_with_what_it_brings() -> None:
    page = (ROOT / "docs" / "reference" / "extras.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.+) \|$", page, re.MULTILINE)
    told = {extra: re.findall(r"`([\w-]+)`", brought) for extra, brought in rows}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert told == {
        extra: [re.split(r"[^\w-]", requirement)[0] for requirement in requirements]
        for extra, requirements in project["optional-dependencies"].items()
    }


def test_no_page_but_that_of_the_extras_says_how_to_install_one() -> None:
    saying = [name_of(page) for page in PAGES if "outbox-kernel[" in page.read_text()]
    assert saying == ["docs/reference/extras.md"]
