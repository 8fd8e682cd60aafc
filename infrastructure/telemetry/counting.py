"""Counting: plain numbers on the way of each event, which somebody else makes a text of (O4).

A relay hands on an event in some ten microseconds, and to time each would cost a twentieth of that. So under load one
run of 32 is timed, and counts for all of them. How many there were is exact, and what took long is always timed.

What somebody has been told is never taken back: to Prometheus a count that falls is a restart, and all of it is counted
once more. So whoever asks ends the lot that is under way: its runs count as the last one that was timed.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from outbox_kernel.infrastructure.telemetry.instruments import BOUNDS_SECONDS
from outbox_kernel.infrastructure.telemetry.limits import (
    BEST_SECONDS_MAX,
    BUSY_SECONDS,
    ERROR_TYPES_MAX,
    ROUND_TRIPS_MAX,
    TIMED_OF_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OTHER_ERRORS = "_OTHER"


class Run(Protocol):
    """A handler's run that has ended."""

    @property
    def started(self) -> float: ...  # noqa: D102 - on the monotonic clock
    @property
    def attempts(self) -> int: ...  # noqa: D102 - those before it
    @property
    def detached(self) -> bool: ...  # noqa: D102 - it was slow
    @property
    def row(self) -> Any: ...  # noqa: D102 - its event
    @property
    def rows(self) -> Sequence[Any] | None: ...  # noqa: D102 - all events of a batch


class Verdict(Protocol):
    """What it came to."""

    @property
    def status(self) -> str: ...  # noqa: D102
    @property
    def error_message(self) -> str | None: ...  # noqa: D102


def outcome_of(verdict: Verdict) -> str:
    """Return what became of a run, in a word."""
    return "failed" if verdict.status == "waiting" else verdict.status


def error_of(verdict: Verdict) -> str | None:
    """Return the class of the error that a run has failed with, where its message begins with one."""
    name = (verdict.error_message or "").partition(":")[0]
    return name if name.isidentifier() else None


class Histogram:
    """How often something took how long."""

    __slots__ = ("counts", "last", "seconds")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(BOUNDS_SECONDS) + 1)
        self.seconds: float = 0.0
        self.last: float = 0.0
        """What was added last."""

    def add(self, seconds: float, times: int = 1) -> None:
        """Count something that took so long, or so many things."""
        self.counts[bisect_left(BOUNDS_SECONDS, seconds)] += times
        self.seconds += seconds * times
        self.last = seconds

    def copy(self) -> Histogram:
        """Return it as it is now."""
        copied = Histogram()
        copied.counts, copied.seconds = self.counts[:], self.seconds
        return copied


class ServerClock:
    """Where the database's clock stands against this process's own.

    Events are stamped by the server, runs by the relay, and the two are seldom set alike. Each answer of the server
    says what its clock showed in the middle of the call; the quickest answer of the past minute says it best.
    """

    def __init__(self) -> None:
        self.offset: float | None = None
        self._best_seconds = self._best_at = 0.0

    def note(self, asked: float, server_seconds: float, answered: float) -> None:
        """Take note of what it showed, in seconds since 2000, between two moments of the monotonic clock."""
        took = answered - asked
        is_old = answered - self._best_at > BEST_SECONDS_MAX
        if self.offset is not None and not is_old and took > self._best_seconds * ROUND_TRIPS_MAX:
            return
        if self.offset is None or is_old or took < self._best_seconds:
            self._best_seconds, self._best_at = took, answered
        self.offset = server_seconds - (asked + answered) / 2

    def waited_seconds(self, row: Mapping[str, Any], until: float) -> float | None:
        """Return for how long an event had waited at a moment; None where nobody knows."""
        if self.offset is None or row["created_at"] is None or row["not_before"] is not None:
            return None  # the last: it was to wait
        created = int.from_bytes(row["created_at"], "big", signed=True) / 1e6
        return max(0.0, until + self.offset - created)


class SubscriptionCounts:
    """What a relay does for one subscription."""

    def __init__(
        self, clock: ServerClock, labels: Mapping[str, str], *, timed_of_max: int = TIMED_OF_MAX
    ) -> None:
        self.labels: dict[str, str] = dict(labels)
        """Whose they are."""
        self.failed: dict[tuple[str, str], Histogram] = {}
        """By outcome, and by the kind of error."""
        self.left: int = 1
        """After how many more runs one is timed, which stands for those before it."""
        self.passed: int = 0
        self.events_left: int = 0
        self.more: int = 0
        """Events of batches beyond the first of each."""
        self._clock, self._of_max = clock, timed_of_max
        self._done, self._waits, self._waited = Histogram(), Histogram(), False
        self._of, self._timed_at = 1, 0.0

    def count(self, run: Run, verdict: Verdict) -> None:
        """Count a run that has ended by itself; who has no time for the call counts down by itself."""
        self.left -= 1
        if self.left <= 0 or verdict.status != "done" or run.detached:
            self.note_run(run, verdict)

    def note_run(self, run: Run, verdict: Verdict) -> None:
        """Take note of a run that was counted down: the last of some that are alike, or one that is like no other."""
        if verdict.status == "done" and run.rows is None and not run.detached:
            self._time(run)
        else:
            self.left += 1
            self.note_special(run, verdict)

    def note_special(self, run: Run, verdict: Verdict) -> None:
        """Time what stands for itself alone: a failure, a batch, what was slow."""
        seconds = time.monotonic() - run.started
        histogram = self._done if verdict.status == "done" else self._failures(verdict)
        histogram.add(seconds)
        rows = run.rows or (run.row,)
        self.more += len(rows) - 1
        for row in rows:
            self._note_wait(run, row, 1)

    def note_passed(self, events: int, left: int) -> None:
        """Count events that are passed, and how many of them have deliveries."""
        self.passed += events
        self.events_left += left

    @property
    def done(self) -> Histogram:
        """The runs that were done."""
        self._end_lot()
        return self._done.copy()

    @property
    def waits(self) -> Histogram:
        """How long events waited in the outbox, until their first run."""
        self._end_lot()
        return self._waits.copy()

    def _end_lot(self) -> None:
        """Count the runs of the lot that is under way, for good; the next one is timed by itself."""
        if untimed := self._of - self.left:
            self._done.add(self._done.last, untimed)
            if self._waited:
                self._waits.add(self._waits.last, untimed)
        self._of = self.left = 1

    def _time(self, run: Run) -> None:
        now, times = time.monotonic(), self._of
        self._done.add(now - run.started, times)
        self._note_wait(run, run.row, times)
        self._of = self.left = self._of_max if now - self._timed_at < times * BUSY_SECONDS else 1
        self._timed_at = now

    def _failures(self, verdict: Verdict) -> Histogram:
        key = outcome_of(verdict), error_of(verdict) or OTHER_ERRORS
        if key not in self.failed and len(self.failed) >= ERROR_TYPES_MAX:
            key = key[0], OTHER_ERRORS
        return self.failed.setdefault(key, Histogram())

    def _note_wait(self, run: Run, row: Any, times: int) -> None:
        # Later runs have waited for their time, and not in the outbox.
        waited = None if run.attempts else self._clock.waited_seconds(row, run.started)
        self._waited = waited is not None
        if waited is not None:
            self._waits.add(waited, times)


class RelayCounts:
    """What a relay does for itself."""

    def __init__(self) -> None:
        self.clock: ServerClock = ServerClock()
        self.renewals: int = 0
        self.losses: int = 0
        self.holds_until: float | None = None
        """On the monotonic clock; None: it has no lease."""
        self.hears: bool | None = None
        """None: it does not listen."""


class QueueCounts:
    """What a consumer takes from one queue."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels: dict[str, str] = dict(labels)
        self.stored: int = 0
        self.buried: int = 0


class RequestCounts:
    """How long requests took, by what was asked and answered."""

    KINDS_MAX: ClassVar[int] = 1_000

    def __init__(self) -> None:
        self.by_kind: dict[tuple[str, str, str, str], Histogram] = {}

    def note(self, method: str, route: str, code: int, scheme: str, seconds: float) -> None:
        """Count a request; a route is what the application has, not what somebody typed."""
        key = (method, route, str(code), scheme)
        if key in self.by_kind or len(self.by_kind) < self.KINDS_MAX:
            self.by_kind.setdefault(key, Histogram()).add(seconds)
