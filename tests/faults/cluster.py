"""A PostgreSQL of a cell's own, by TCP and by socket, that can be copied, promoted, and begun at any transaction."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from urllib.parse import quote

from outbox_kernel.infrastructure.postgres import unprivileged
from tests.brokers import free_port
from tests.faults.server import IMMEDIATE, STOP_SECONDS_MAX, RestartableServer

NEEDED = ("initdb", "postgres", "pg_basebackup", "pg_dump", "pg_restore", "pg_resetwal")
TOOL_SECONDS_MAX = 120.0


class ToolFailed(Exception):
    """A program of PostgreSQL's did not do what it was asked for."""


class Cluster(RestartableServer):
    """A server that other servers know by an address."""

    def __init__(
        self, *, copy_of: Cluster | None = None, epoch: int = 0, wal_folder: Path | None = None
    ) -> None:
        super().__init__()
        self._copy_of = copy_of
        self._wal_folder = wal_folder
        self._epoch = epoch
        """How many times 2³² transactions there were before its first."""
        self.port = free_port()

    def url_of(self, database: str, *, user: str = "postgres") -> str:
        """The URL of any database of this server, for libpq's programs as well."""
        return url_at(self.run_folder, self.port, database, user=user)

    def end(self) -> None:
        """Let it go down as in a crash; nobody reaches it any more."""
        assert self._server is not None
        self._server.send_signal(IMMEDIATE)
        self._server.wait(STOP_SECONDS_MAX)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it say nothing, as when its machine is gone: connections stand, and are taken, and nobody answers."""
        assert self._server is not None
        main = self._server.pid
        os.kill(main, signal.SIGSTOP)
        every = [main, *map(int, Path(f"/proc/{main}/task/{main}/children").read_text().split())]
        for pid in every:
            _signal(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in every:
                _signal(pid, signal.SIGCONT)

    def tool(self, name: str, *arguments: str | Path) -> None:
        """Run one of PostgreSQL's programs to its end."""
        command = [self._binaries / name, *arguments]
        done = unprivileged.run(command, self.run_folder, TOOL_SECONDS_MAX)
        if done.returncode != 0:
            raise ToolFailed(f"{name}: {done.stdout.decode(errors='replace')}")

    def _initialise(self, binaries: Path) -> None:
        self._binaries = _system_programs() or binaries
        if self._copy_of is not None:
            self._follow(self._copy_of)
            return
        self.tool(
            "initdb",
            *("-D", self.data_folder, "-U", "postgres", "--auth=trust", "--no-sync", "--no-instructions"),
            *("--encoding=UTF8", "--locale=C"),
            # Small pieces, so that a disk is full as soon as it is.
            *(("--waldir", self._wal_folder, "--wal-segsize=1") if self._wal_folder else ()),
        )
        if self._epoch:
            self.tool("pg_resetwal", "--epoch", str(self._epoch), "-D", self.data_folder)

    def _serve(self, binaries: Path) -> None:
        super()._serve(_system_programs() or binaries)

    def _follow(self, other: Cluster) -> None:
        self.tool(
            "pg_basebackup",
            *("--dbname", other.url, "--pgdata", self.data_folder, "--no-sync"),
            *("--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf"),
        )

    def _settings(self) -> Iterable[str]:
        yield from super()._settings()
        # None is kept for later on a disk that is to become full, and none makes it full by itself.
        small = ("min_wal_size=2MB", "max_wal_size=32MB") if self._wal_folder else ()
        for setting in ("listen_addresses=127.0.0.1", f"port={self.port}", "wal_level=logical", *small):
            yield from ("-c", setting)


def _signal(pid: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has ended by itself
        os.kill(pid, what)


def url_at(host: Path | str, port: int, database: str, *, user: str = "postgres") -> str:
    """A URL that has all of the address in its query."""
    return f"postgresql://{quote(user)}@/{quote(database)}?host={host}&port={port}"


@cache
def _system_programs() -> Path | None:
    """Where the machine's own PostgreSQL has its programs, if it has all of them; else the embedded server's serve."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin")]
    if pg_config := shutil.which("pg_config"):
        said = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        found.insert(0, Path(said.stdout.strip()))
    return next((each for each in found if all((each / name).exists() for name in NEEDED)), None)
