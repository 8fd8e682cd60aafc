"""A command of ours that serves, as a process, and what it logs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from queue import Empty, Queue
from threading import Thread
from typing import Any, Self

from tests.commands import COMMAND, ROOT, environment_with

SECONDS_MAX = 60.0


class Serving:
    """The process; its log is read all the time, or it would stand still when nobody takes what it says."""

    def __init__(self, *words: str, **settings: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *words],
            cwd=ROOT,
            env=environment_with(**settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self.said: list[dict[str, Any]] = []
        self._new: Queue[dict[str, Any] | None] = Queue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def wait_for(self, message: str) -> dict[str, Any]:
        """Wait until the log says so, and return that line."""
        for line in self._lines():
            if message in line["message"]:
                return line
        raise AssertionError(f"it never said {message!r}: {self.said}")

    def all_said(self) -> list[dict[str, Any]]:
        """Everything that it has logged, once it has ended."""
        for _ in self._lines():
            pass
        return self.said

    def first_output(self) -> str:
        """The first line on its standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to stop, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS_MAX)

    def interrupt(self) -> int:
        """Press Ctrl-C, which a terminal sends to all that it has started too, and return its exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(SECONDS_MAX)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._new.put(json.loads(line) if line.startswith("{") else {"message": line})
        self._new.put(None)

    def _lines(self) -> Iterator[dict[str, Any]]:
        while True:
            try:
                line = self._new.get(timeout=SECONDS_MAX)
            except Empty:
                return
            if line is None:
                return
            self.said.append(line)
            yield line
