"""PgBouncer, a pooler in transaction mode, before a server."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy.engine import make_url

from outbox_kernel.infrastructure.postgres import unprivileged

PORT = 6432
LOOK_SECONDS = 0.01
_PATH = "/usr/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin"


def missing_pgbouncer() -> str | None:
    """Say why there is no PgBouncer here, or None if there is."""
    found = shutil.which("pgbouncer", path=_PATH)
    return None if found else "pgbouncer is not installed: apt-get install pgbouncer"


class PgBouncer:
    """A pooler whose clients' transactions share a few connections of one user."""

    def __init__(self, folder: Path, server: str, connections: int) -> None:
        self._folder, self._server, self._connections = folder, server, connections
        self._process: subprocess.Popen[bytes] | None = None

    def url_of(self, database: str) -> str:
        """The URL of a database through the pooler."""
        return f"postgresql://postgres@/{database}?host={self._folder}&port={PORT}&pgbouncer=true"

    def start(self) -> None:
        """Start it, and return once it answers."""
        settings = self._folder / "pgbouncer.ini"
        # `any` takes no name of the client's: the URL's own is of no account then.
        settings.write_text(
            "[databases]\n"
            f"* = {self._server}\n"
            "[pgbouncer]\n"
            f"listen_addr =\nlisten_port = {PORT}\nunix_socket_dir = {self._folder}\n"
            "auth_type = any\npool_mode = transaction\nmax_client_conn = 500\n"
            f"default_pool_size = {self._connections}\n"
            "ignore_startup_parameters = extra_float_digits\nserver_login_retry = 0.2\n"
        )
        found = shutil.which("pgbouncer", path=_PATH)
        assert found is not None
        with (self._folder / "pgbouncer.log").open("ab") as output:
            self._process = unprivileged.start([found, settings], self._folder, output)
        while not self._answers():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(LOOK_SECONDS)
                raise AssertionError((self._folder / "pgbouncer.log").read_text())

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self._folder / f".s.PGSQL.{PORT}")) == 0

    def kill(self) -> None:
        """End it without a word to anybody."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for left in self._folder.glob(".s.PGSQL.*"):
            left.unlink()


@contextmanager
def bouncing(server: str, *, connections: int = 10) -> Iterator[PgBouncer]:
    """A running pooler, gone at the end; the server is told as PgBouncer takes it."""
    with TemporaryDirectory(prefix="outbox-bouncer-") as folder:
        if unprivileged.is_root():
            shutil.chown(folder, unprivileged.USER_INSTEAD_OF_ROOT)
        pooler = PgBouncer(Path(folder), server, connections)
        pooler.start()
        try:
            yield pooler
        finally:
            pooler.kill()


@contextmanager
def url_through_pooler(url: str, *, connections: int = 10) -> Iterator[str]:
    """The URL by which a database is reached through a pooler."""
    parsed = make_url(url)
    host = parsed.query.get("host") or parsed.host or "127.0.0.1"
    told = {"host": host, "port": parsed.port or 5432, "user": parsed.username, "password": parsed.password}
    server = " ".join(f"{name}={value}" for name, value in told.items() if value is not None)
    with bouncing(server, connections=connections) as pooler:
        yield pooler.url_of(str(parsed.database))
