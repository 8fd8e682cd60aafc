"""The rig's own PostgreSQL, which can be stopped and started again at its address, and a PgBouncer before it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from outbox_kernel.infrastructure.postgres import unprivileged
from outbox_kernel.infrastructure.postgres.embedded import EmbeddedPostgres

STOP_SECONDS_MAX = 30.0
CONNECTIONS_MAX = 120
PGBOUNCER_PORT = 6432

FAST, IMMEDIATE, CRASH = signal.SIGINT, signal.SIGQUIT, signal.SIGKILL


class RestartableServer(EmbeddedPostgres):
    """The embedded server; what it has acknowledged it still knows after every kind of stop."""

    def _serve(self, binaries: Path) -> None:
        self._binaries = binaries
        super()._serve(binaries)

    def _settings(self) -> Iterable[str]:
        yield from super()._settings()
        for setting in ("synchronous_commit=on", f"max_connections={CONNECTIONS_MAX}"):
            yield from ("-c", setting)

    def restart(self, how: signal.Signals) -> None:
        """Stop the server in one of its ways, and start it again over the same data and at the same address."""
        assert self._server is not None
        assert self._guard is not None
        self._guard.kill()
        self._guard.communicate()
        self._server.send_signal(how)
        self._server.wait(STOP_SECONDS_MAX)
        # After a kill its file stays, and names a process that is gone.
        (self.data_folder / "postmaster.pid").unlink(missing_ok=True)
        self._serve(self._binaries)


def missing_pgbouncer() -> str | None:
    """Say why there is no PgBouncer here, or None if there is."""
    found = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
    return None if found else "pgbouncer is not installed (Debian's package pgbouncer)"


class PgBouncer:
    """A pooler in transaction mode before a server."""

    def __init__(self, folder: Path, server_folder: Path) -> None:
        self._folder = folder
        self._server_folder = server_folder
        self._process: subprocess.Popen[bytes] | None = None

    def url_of(self, database: str) -> str:
        """The URL of a database through the pooler."""
        return f"postgresql://postgres@/{database}?host={self._folder}&port={PGBOUNCER_PORT}&pgbouncer=true"

    def start(self) -> None:
        """Start it; it answers at once, since it opens its socket before it does anything else."""
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(
            "[databases]\n"
            f"* = host={self._server_folder}\n"
            "[pgbouncer]\n"
            f"listen_addr =\nlisten_port = {PGBOUNCER_PORT}\nunix_socket_dir = {self._folder}\n"
            "auth_type = any\npool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = 10\n"
            "ignore_startup_parameters = extra_float_digits\nserver_login_retry = 0.2\n"
        )
        # `any` takes no name of the client's: the URL's own is of no account then.
        settings.write_text(settings.read_text().replace("* = ", "* = user=postgres "))
        found = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
        assert found is not None
        with (self._folder / "pgbouncer.log").open("ab") as output:
            self._process = unprivileged.start([found, settings], self._folder, output)

    def kill(self) -> None:
        """End it without a word to anybody."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for left in self._folder.glob(".s.PGSQL.*"):
            left.unlink()


@contextmanager
def pgbouncer_before(server: EmbeddedPostgres) -> Iterator[PgBouncer]:
    """A running pooler, gone at the end."""
    with TemporaryDirectory(prefix="outbox-bouncer-") as folder:
        if unprivileged.is_root():
            shutil.chown(folder, unprivileged.USER_INSTEAD_OF_ROOT)
        pooler = PgBouncer(Path(folder), server.run_folder)
        pooler.start()
        try:
            yield pooler
        finally:
            pooler.kill()


def fake_clock_library() -> Path | None:
    """libfaketime, which shows a process another time of day; None where it is not installed."""
    if sys.platform != "linux":
        return None
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return found[0] if found else None
