"""Text for people: that of strangers, fit for a terminal, and numbers with their nouns."""

from __future__ import annotations


def printable(text: str) -> str:
    """Write what is no visible character as its escape: a terminal obeys some, columns and lines break at others."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Write `1 event`, `2 events`, `2 deliveries`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
