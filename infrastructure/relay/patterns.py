"""Patterns that mean one event type which nobody here has defined: mostly a name that is misspelt (K5, R14)."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from outbox_kernel.kernel import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outbox_kernel.kernel.handlers import HandlerRegistration


def unknown_types(registrations: Iterable[HandlerRegistration]) -> list[tuple[str, str]]:
    """Return a sentence for each such pattern, after its handler's name.

    It is no error: another service may record the type, or a queue bring it. Of a queue's, only what is nearly the name
    of a known type is told.
    """
    known = catalogue.definitions.event_by_name
    found = []
    for each in registrations:
        for pattern in each.patterns:
            if "*" in pattern or pattern in known:
                continue
            near = get_close_matches(pattern, known, n=1)
            if near or each.queue is None:
                meant = f"if {near[0]!r} is meant, correct it" if near else "correct it if it is misspelt"
                sentence = (
                    f"handler {each.name} is for {pattern!r}, and no event of that name is known here: {meant}, else "
                    "let it be, if another service records such events"
                )
                found.append((each.name, sentence))
    return found
