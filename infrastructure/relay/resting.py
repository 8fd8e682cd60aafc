"""Rests between a relay's shifts: short, so that it is back within about a second after the database (R12)."""

from __future__ import annotations

import logging

import attrs

_log = logging.getLogger("outbox.relay")

RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0)


@attrs.define
class Rests:
    """How long each is, and what is said of it: each reason once, until a shift begins again."""

    _failures: int = 0
    _told: str = ""

    def note_begun(self) -> None:
        """Take note that a shift has begun: the database is there."""
        self._told = ""

    def after(self, error: BaseException, lasted_seconds: float) -> float:
        """Return how long to rest after a shift that has ended so."""
        self._failures = 0 if lasted_seconds > RETRY_SECONDS[-1] else self._failures + 1
        seconds = RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS) - 1)]
        reason = str(error)
        _log.log(
            logging.DEBUG if reason == self._told else logging.WARNING,
            "%s; the relay lets go of what it had in hand, and reads its cursors anew in %g s",
            *(reason, seconds),
            extra={"action": "relay.shift.ended", "delay_seconds": seconds},
        )
        self._told = reason
        return seconds
