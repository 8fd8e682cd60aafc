"""What a measured process says of itself: when it began, what it has marked by when, what that has cost."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NEWS_EVERY_SECONDS = 0.02
_STATUS = Path("/proc/self/status")


def say(**message: Any) -> None:
    """Send one message to the process that measures."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


async def each_after_a_while(
    commits: int, every: float, commit: Callable[[], Awaitable[str]]
) -> dict[str, int]:
    """Commit now and then; return by event when each commit was acknowledged."""
    moments_ns = {}
    due = time.monotonic()
    for _ in range(commits):
        event_id = await commit()
        moments_ns[event_id] = time.monotonic_ns()
        due += every
        await asyncio.sleep(due - time.monotonic())
    return moments_ns


@attrs.define(eq=False)
class Meter:
    """Reads the clock and the process's own CPU time from the first read to the last mark."""

    begun_ns: int = 0
    ended_ns: int = 0
    _unsaid: int = 0
    _cpu_begun: float = 0.0
    _cpu_ended: float = 0.0

    def begin(self) -> None:
        """Note a read; the first one counts."""
        if not self.begun_ns:
            self.begun_ns, self._cpu_begun = time.monotonic_ns(), _cpu_seconds()

    def begin_anew(self) -> None:
        """Let the next beginning count."""
        self.begun_ns = 0

    def marked(self, events: int) -> None:
        """Note that so many events more are done."""
        self.ended_ns, self._cpu_ended = time.monotonic_ns(), _cpu_seconds()
        if not self._unsaid:
            # Together with those that follow: to tell of each small batch would cost more than the batch.
            asyncio.get_running_loop().call_later(NEWS_EVERY_SECONDS, self._say)
        self._unsaid += events

    def _say(self) -> None:
        say(marked=self._unsaid, at_ns=self.ended_ns, cpu_seconds=self._cpu_ended)
        self._unsaid = 0

    def report(self) -> dict[str, Any]:
        """Tell the span and its cost."""
        return {
            "begun_ns": self.begun_ns,
            "ended_ns": self.ended_ns,
            "cpu_seconds": self._cpu_ended - self._cpu_begun,
            "peak_mb": _peak_mb(),
        }


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak_mb() -> float:
    # Where there is /proc: getrusage also counts what the process was before it became this program.
    if _STATUS.exists():
        [line] = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024**2 if sys.platform == "darwin" else 1024)
