"""The rig's own PostgreSQL, which can be stopped and started again at its address, and a PgBouncer before it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from outbox_kernel.infrastructure.postgres.embedded import EmbeddedPostgres
from tests.bouncer import PgBouncer, bouncing

STOP_SECONDS_MAX = 30.0
CONNECTIONS_MAX = 120

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


@contextmanager
def pgbouncer_before(server: EmbeddedPostgres) -> Iterator[PgBouncer]:
    """A running pooler, gone at the end."""
    with bouncing(f"host={server.run_folder} user=postgres") as pooler:
        yield pooler


def fake_clock_library() -> Path | None:
    """libfaketime, which shows a process another time of day; None where it is not installed."""
    if sys.platform != "linux":
        return None
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return found[0] if found else None
