"""The pages of the documentation, and what their blocks ask for; nothing in them goes unnoticed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from textwrap import dedent, indent

from attrs import frozen
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]

# What a block in each language is for; one in any other language fails the tests.
LANGUAGES = {
    "python": "code to run; with a path, a file of the reader's project or an excerpt of one of ours",
    "console": "commands after `$ `, to run, and below each the output it must have",
    "sql": "statements to run in the page's database",
    "text": "a picture; `text output` is what the block above must have printed",
    "ini": "with a path: a file of the reader's project",
    "yaml": "with a path: a file of the reader's project",
    "diff": "with a path: an excerpt of a patch of ours, which a test applies",
}

# Commands that no page test runs as they stand: what is run instead (nothing, where empty), and why.
ELSEWHERE = {
    "make demo": ("outbox demo", "make would first install a second environment; CI's users run it whole"),
    "make test": ("", "it is what runs this very test"),
    "pip install .": ("", "the tests of the wheel install it, in environments of their own"),
    "pipx run pip-audit --requirement requirements/dev.txt --require-hashes --disable-pip": (
        "",
        "it asks a feed of known weaknesses, which no test has a way to",
    ),
}


class PageError(Exception):
    """A page has something that cannot be run or checked."""


@frozen
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    argument: str
    text: str

    @property
    def place(self) -> str:
        """Where to look for it."""
        return f"{name_of(self.page)}:{self.line}"


@frozen
class Command:
    """One command of a console block, with the output that the page shows."""

    line: str
    output: str


def name_of(page: Path) -> str:
    """The page's path from the root."""
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name


def blocks_of(page: Path, text: str | None = None) -> list[Block]:
    """Every block of code in the page, or the error that says which one is none we know."""
    found = []
    for token in MarkdownIt().parse(page.read_text() if text is None else text):
        if token.type not in ("fence", "code_block", "html_block"):
            continue
        language, _, argument = token.info.strip().partition(" ")
        line = (token.map or [0])[0] + 1
        block = Block(page, line, language, argument.strip(), token.content)
        if token.type != "fence" or language not in LANGUAGES:
            raise PageError(
                f"{block.place}: a block in {language or 'no language'!r}; "
                f"fence it and say in which: {', '.join(LANGUAGES)}"
            )
        found.append(block)
    return found


def section_of(page: Path, title: str) -> list[Block]:
    """The blocks below one heading of the page, up to the next."""
    tokens = MarkdownIt().parse(page.read_text())
    headings = [
        ((token.map or [0])[0], after.content)
        for token, after in pairwise(tokens)
        if token.type == "heading_open"
    ]
    (begin,) = [line for line, heading in headings if heading == title]
    end = min((line for line, _ in headings if line > begin), default=sys.maxsize)
    return [block for block in blocks_of(page) if begin < block.line <= end]


def commands_of(block: Block) -> list[Command]:
    """The commands of a console block; a line ending in a backslash goes on in the next."""
    commands: list[Command] = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line = re.match(r"(?:.*\\\n)*.*", part)
        assert line is not None
        commands.append(Command(line[0].strip(), part[line.end() :].strip("\n")))
    if not commands or not block.text.startswith("$ "):
        raise PageError(f"{block.place}: a console block begins with a command after `$ `")
    return commands


def matches(shown: str, printed: str) -> bool:
    """Whether output is as shown; `...` stands for anything, and space at the ends of lines for nothing."""
    pieces = [re.escape(piece) for piece in _trimmed(shown).split("...")]
    return re.fullmatch(".*?".join(pieces), _trimmed(printed), re.DOTALL) is not None


def is_excerpt(text: str, file: Path) -> bool:
    """Whether the lines stand in the file exactly so, at whatever depth."""
    source = file.read_text()
    return any(indent(dedent(text), " " * depth).strip("\n") in source for depth in (0, 4, 8))


def links_of(page: Path) -> list[str]:
    """Where the page's links lead, those to other sites left out."""
    links = [str(token.attrs["href"]) for token in _inline(page) if token.type == "link_open"]
    return [link for link in links if "://" not in link]


def anchors_of(page: Path) -> set[str]:
    """The names under which the page's headings can be linked."""
    tokens = MarkdownIt().parse(page.read_text())
    headings = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _inline(page: Path) -> Iterator[Token]:
    for token in MarkdownIt().parse(page.read_text()):
        yield from token.children or ()


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
