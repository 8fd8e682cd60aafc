"""Text of strangers, fit for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Write what is no visible character as its escape: a terminal obeys some, columns and lines break at others."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )
