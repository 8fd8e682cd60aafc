"""How pages write numbers, times and ids: short, with what is exact at hand."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from outbox_kernel.infrastructure.dashboard.limits import ID_CHARACTERS, SHOWN_MIN, VALUE_CHARACTERS_MAX
from outbox_kernel.infrastructure.plain_text import count

if TYPE_CHECKING:
    from uuid import UUID

NONE = "\N{EN DASH}"
_STEPS = (("d", 86_400), ("h", 3_600), ("min", 60))
_LARGE = (("G", 1e9), ("M", 1e6), ("k", 1e4))
_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_MILLISECONDS_UNDER = 1.0
_PLAIN_UNDER = 100
_RATES = (("s", 1), ("min", 60), ("h", 3_600))
# With what the sentences of errors begin that do not begin with a name.
_BEGINNINGS = frozenset(
    (
        *(
            "a",
            "all",
            "an",
            "another",
            "ask",
            "be",
            "begin",
            "choose",
            "correct",
            "deploy",
            "fill",
            "give",
            "go",
        ),
        *(
            "it",
            "load",
            "look",
            "mend",
            "name",
            "no",
            "nothing",
            "open",
            "run",
            "send",
            "start",
            "that",
            "the",
        ),
        *("there", "this", "try", "wait", "what", "without", "write", "you"),
    )
)

# What sentences for operators name that is typed, and what it is here.
_HERE = (
    (
        re.compile("`outbox events` lists the newest"),
        "look for it among the events: what was delivered long ago is gone",
    ),
    (re.compile("`outbox show[^`]*`"), "its page"),
    (
        re.compile("`outbox replay` runs a handler again"),
        "Rewind, on the page of a subscription, runs it again",
    ),
    (
        re.compile("`outbox retry --again`"),
        "a retry from the dead letters, with the tick for what stopped halfway,",
    ),
)

__all__ = [
    "ago",
    "amount",
    "at_least",
    "count",
    "dotted",
    "duration",
    "exact",
    "linked",
    "marked",
    "pretty",
    "rate",
    "sentence",
    "short_id",
]


def duration(seconds: float | None) -> str:
    """Write how long something takes or is ago: 340 ms, 4.2 s, 12 min, 3.5 h, 2.1 d."""
    if seconds is None:
        return NONE
    seconds = max(0.0, seconds)
    for unit, size in _STEPS:
        if seconds >= size:
            return f"{_rounded(seconds / size)} {unit}"
    if 0 < seconds < _MILLISECONDS_UNDER:
        return f"{max(1, round(seconds * 1_000))} ms"
    return f"{_rounded(seconds)} s"


def ago(moment: datetime | None, now: datetime) -> Markup:
    """Write a moment as how long it is ago or ahead, with the exact one for programs and on hover."""
    if moment is None:
        return Markup('<span class="none">{}</span>').format(NONE)
    seconds = (now - moment).total_seconds()
    words = f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"
    if abs(seconds) < _MILLISECONDS_UNDER:
        words = "now"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        moment.astimezone(UTC).isoformat(), exact(moment), words
    )


def exact(moment: datetime | None) -> str:
    """Write a moment in UTC, to the millisecond."""
    if moment is None:
        return NONE
    written = moment.astimezone(UTC)
    return f"{written:%Y-%m-%d %H:%M:%S}.{written.microsecond // 1_000:03d} UTC"


def amount(number: float | None) -> str:
    """Write a number that may be large: 999, 9,999, 12.4k, 3.1M."""
    if number is None:
        return NONE
    for unit, size in _LARGE:
        if number >= size:
            return f"{_rounded(number / (1e3 if unit == 'k' else size))}{unit}"
    return f"{number:,.0f}"


def at_least(number: int, *, is_more: bool) -> str:
    """Write a number that may be more."""
    return f"{amount(number)}+" if is_more else amount(number)


def rate(per_second: float | None) -> str:
    """Write events per second, or per minute and hour where they are few."""
    if per_second is None:
        return NONE
    if per_second == 0:
        return "0 /s"
    unit, size = next(((unit, size) for unit, size in _RATES if per_second * size >= 1), _RATES[-1])
    number = per_second * size
    if number < SHOWN_MIN:
        return f"under {SHOWN_MIN:g} /{unit}"
    return f"{amount(number) if number >= _PLAIN_UNDER else _rounded(number)} /{unit}"


def short_id(value: UUID | str) -> str:
    """Write the end of an id, which is what tells two apart: they begin with the time."""
    text = str(value)
    return text if len(text) <= ID_CHARACTERS + 2 else f"…{text[-ID_CHARACTERS:]}"


def pretty(value: Any) -> Markup:
    """Write JSON over several lines, as a person reads it; what is too long is cut, and says so."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except RecursionError:
        text = "nested too deeply for a page; `outbox show --json` prints it"
    if len(text) > VALUE_CHARACTERS_MAX:
        text = f"{text[:VALUE_CHARACTERS_MAX]}…\n({len(text):,} characters in all; `outbox show --json` prints them)"
    return escape(text)


def marked(sentence: str) -> Markup:
    """Write a sentence in which code stands between backticks."""
    parts = sentence.split("`")
    if len(parts) % 2 == 0:
        return escape(sentence)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def linked(sentence: str, base: str) -> Markup:
    """Write a sentence in which each id of an event leads to it."""
    parts = _ID.split(sentence)
    links = [
        Markup('<a href="{}/events/{}" title="{}">{}</a>').format(base, found, found, short_id(found))
        for found in _ID.findall(sentence)
    ]
    return Markup("").join(
        marked(part) + link for part, link in zip(parts, [*links, Markup("")], strict=True)
    )


def dotted(name: str) -> Markup:
    """Write a name so that a narrow column breaks it after its dots."""
    return Markup(".<wbr>").join(escape(part) for part in name.split("."))


def sentence(text: str) -> str:
    """Begin a sentence with a capital letter, unless it begins with a name."""
    first, _, _ = text.partition(" ")
    begun = f"{text[:1].upper()}{text[1:]}" if first in _BEGINNINGS else text
    return begun if begun.endswith((".", "?", "…")) else f"{begun}."


def in_a_browser(text: str) -> str:
    """Say where it is on these pages, in the place of what is typed at a terminal."""
    for typed, here in _HERE:
        text = typed.sub(here, text)
    return text


def _rounded(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0") if number < _PLAIN_UNDER else f"{number:.0f}"
