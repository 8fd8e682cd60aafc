"""The processes of the rig: relays that are started again whenever they end, and writers that end by themselves."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from attrs import Factory, define

from tests.commands import ROOT

STOP_SECONDS_MAX = 30.0


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DATABASE_", "OUTBOX_", "PG", "COVERAGE_", "COV_"))
    }
    return {**inherited, "PYTHONPATH": str(ROOT), **settings}


@define(eq=False)
class Seat:
    """A place for a process, which a supervisor fills again whenever it is empty."""

    module: str
    settings: dict[str, str]
    log: Path
    process: asyncio.subprocess.Process | None = None
    exits: list[int] = Factory(list)
    closed: bool = False
    home: str = ""
    """The database that its lease is in."""
    _keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process that sits here now."""
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether a process sits here."""
        return self.process is not None and self.process.returncode is None

    async def open(self, *, once: bool = False) -> None:
        """Start the first process; what follows it is the supervisor's."""
        await self._start()
        self._keeper = asyncio.create_task(self._keep(once=once))

    def send(self, what: signal.Signals) -> None:
        """Send a signal to whoever sits here."""
        if self.process is not None and self.alive:
            self.process.send_signal(what)

    async def close(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the process for good, in this way; return its exit code."""
        self.closed = True
        self.send(how)
        self.send(signal.SIGCONT)
        assert self._keeper is not None
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await asyncio.shield(self._keeper)
        except TimeoutError:
            self.send(signal.SIGKILL)
            await self._keeper
        return self.exits[-1]

    async def _keep(self, *, once: bool) -> None:
        while True:
            assert self.process is not None
            self.exits.append(await self.process.wait())
            if self.closed or once:
                return
            await self._start()

    async def _start(self) -> None:
        with self.log.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self.module),
                cwd=ROOT,
                env=_environment(self.settings),
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
            )


@define(eq=False)
class Fleet:
    """All relays and writers of a cell."""

    folder: Path
    relays: list[Seat] = Factory(list)
    writers: list[Seat] = Factory(list)

    async def add_relay(self, settings: Mapping[str, str]) -> Seat:
        """Start one more relay; its connections to the database bear its name."""
        name = f"relay-{len(self.relays)}"
        url = f"{settings['DATABASE_URL']}&application_name={name}"
        seat = Seat(
            "tests.faults.relay_process", {**settings, "DATABASE_URL": url}, self.folder / f"{name}.log"
        )
        self.relays.append(seat)
        await seat.open()
        return seat

    def relay_named(self, name: str) -> Seat:
        """The relay whose connections bear this name."""
        return next(seat for seat in self.relays if seat.log.stem == name)

    async def add_writer(self, settings: Mapping[str, str]) -> Seat:
        """Start one more writer."""
        number = str(len(self.writers))
        seat = Seat(
            "tests.faults.writer_process",
            {
                **settings,
                "FAULTS_WRITER": number,
                "FAULTS_ACKNOWLEDGED": str(self.folder / f"writer-{number}.acknowledged"),
            },
            self.folder / f"writer-{number}.log",
        )
        await seat.open(once=True)
        self.writers.append(seat)
        return seat

    @property
    def writing(self) -> bool:
        """Whether a writer is at work."""
        return any(seat.alive for seat in self.writers)

    @property
    def acknowledged(self) -> dict[UUID, int]:
        """How far the writers were told that each counter has come."""
        reached: dict[UUID, int] = {}
        for file in self.folder.glob("*.acknowledged"):
            for line in file.read_text().splitlines():
                identity, _, n = line.partition(" ")
                reached[UUID(identity)] = max(reached.get(UUID(identity), 0), int(n))
        return reached

    async def close(self) -> None:
        """End everything that was started here."""
        await asyncio.gather(*(seat.close() for seat in (*self.writers, *self.relays)))
