"""What a process that serves is at while it is busy: how long its health waits, and what memory and time it takes."""

from __future__ import annotations

import http.client
import os
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

HEALTH = "/health/live"
SECONDS_MAX = 60.0
_RESET_PEAK = "5"


class Watch:
    """Asks for health all the time, on a connection of its own, and keeps the longest wait."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=SECONDS_MAX)
        self._done, self._longest = Event(), 0.0
        self._thread = Thread(target=self._ask, daemon=True)

    def __enter__(self) -> Self:
        self._once()  # connects
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._connection.close()

    @property
    def longest_ms(self) -> float:
        """The longest wait, whole once the watch is over."""
        return round(self._longest * 1_000, 1)

    def _ask(self) -> None:
        while not self._done.is_set():
            began = time.perf_counter()
            self._once()
            self._longest = max(self._longest, time.perf_counter() - began)
            self._done.wait(0.002)

    def _once(self) -> None:
        self._connection.request("GET", HEALTH)
        self._connection.getresponse().read()


class Taken:
    """What a process takes: memory, beyond what it has now, and time of a processor."""

    def __init__(self, pid: int) -> None:
        self._process = Path(f"/proc/{pid}")
        self._kilobytes_before = self._kilobytes("VmRSS")
        self.begin()

    def begin(self) -> None:
        """Count from now on; memory that it has taken before and kept still counts."""
        (self._process / "clear_refs").write_text(_RESET_PEAK)
        self._ticks_before = self._ticks()

    @property
    def mb(self) -> float:
        """The most memory that it had since, beyond what it had at first, in megabytes."""
        return round((self._kilobytes("VmHWM") - self._kilobytes_before) / 1024, 1)

    @property
    def busy_ms(self) -> float:
        """How long it was at work; waiting for a processor is not counted, so that others' work does not matter."""
        return (self._ticks() - self._ticks_before) * 1_000 / os.sysconf("SC_CLK_TCK")

    def _ticks(self) -> int:
        # Behind the name, which may have spaces in it: the twelfth and the thirteenth are of user and system.
        fields = (self._process / "stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def _kilobytes(self, name: str) -> int:
        for line in (self._process / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        return 0


def sent(host: str, port: int, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    """Send a body, and return the status and what was answered."""
    connection = http.client.HTTPConnection(host, port, timeout=SECONDS_MAX)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
