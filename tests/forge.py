"""Starts the `outbox` command quickly: a process that has imported what it needs forks one for each.

Each is a process of its own, with its folder, environment, output and exit code; spared is the second that Python
takes to import. `python tests/forge.py SOCKET WORD…` is the command by way of it, for a shell.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import random
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

LINES_MAX = 64
# What the commands import; nothing that reads the environment, and no context.
PRELOADED = (
    *(
        f"outbox_kernel.infrastructure.cli.{name}"
        for name in ("demo", "doctor", "mend", "migrate", "purge", "relay", "status")
    ),
    *(
        "outbox_kernel.infrastructure.cli.stories",
        "outbox_kernel.infrastructure.cli.subscriptions",
        "outbox_kernel.infrastructure.demo.play",
    ),
    *("alembic.ddl.postgresql", "uvloop"),
)


class Forge:
    """The client's side: begins the server when it is first wanted, and ends it with this process."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    @property
    def address(self) -> Path:
        """Where the server listens."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="forge-"))
            _begin(self._folder)
        return self._folder / "socket"

    def run(
        self, words: tuple[str, ...], *, folder: Path, environment: dict[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run the command to its end; `-c`, code and words for that are what they are to Python."""
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            Path(os.devnull).open() as nothing,
        ):
            files = nothing, out, err
            code = ask(self.address, words, str(folder), environment, files, seconds=seconds)
            return subprocess.CompletedProcess(words, code, *map(_read, (out, err)))


def _begin(folder: Path) -> None:
    # It ends when its standard input does, at the latest with us.
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", str(folder / "socket")],
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def end() -> None:
        server.communicate()
        shutil.rmtree(folder)

    atexit.register(end)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


def ask(
    address: Path | str,
    words: tuple[str, ...],
    folder: str,
    environment: dict[str, str],
    files: Any,
    *,
    seconds: float | None = None,
) -> int:
    """Have a command started with these files as its input, output and errors; return its exit code."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(seconds)
        line.connect(str(address))
        socket.send_fds(line, [b"."], [file.fileno() for file in files])
        line.sendall(json.dumps([words, folder, environment]).encode())
        line.shutdown(socket.SHUT_WR)
        return int(line.recv(LINES_MAX))


def serve(address: str) -> None:
    """Fork a process for each that asks, until standard input ends; return in each of these."""
    # Nobody waits for those that wait.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as door, selectors.DefaultSelector() as events:
        door.bind(address)
        door.listen()
        events.register(door, selectors.EVENT_READ)
        events.register(sys.stdin, selectors.EVENT_READ)
        print("ready", flush=True)  # noqa: T201 - the client waits for it
        while all(key.fileobj is door for key, _ in events.select()):
            line, _ = door.accept()
            if os.fork():
                line.close()
            elif _start(line):
                return
    sys.exit(0)


def _start(line: socket.socket) -> bool:
    """Start what is asked for and tell what became of it; True in the process that is to be it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, files, _, _ = socket.recv_fds(line, 1, 3)
    request = b"".join(iter(lambda: line.recv(1 << 16), b""))
    process = os.fork()
    if process:
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        line.sendall(str(code).encode())
        os._exit(0)
    line.close()
    words, folder, environment = json.loads(request)
    _become(words, folder, environment, files)
    return True


def _become(words: list[str], folder: str, environment: dict[str, str], files: list[int]) -> None:
    """Look like a process that has just been started so."""
    ours = {str(Path(__file__).parent), *_path(os.environ)}
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = _stream(0, "r"), _stream(1, "w"), _stream(2, "w", "backslashreplace")
    sys.argv = ["outbox", *words]
    sys.path[:] = [folder, *_path(environment), *(each for each in sys.path if each not in ours)]
    random.seed()


def _stream(number: int, mode: str, errors: str = "strict") -> Any:
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    return open(number, mode, encoding=encoding, errors=errors, closefd=False, buffering=1 if number else -1)


def _path(environment: Any) -> list[str]:
    return [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]


def main() -> None:
    """Serve, or ask."""
    if sys.argv[1] == "--serve":
        sys.path.insert(0, str(Path(__file__).parent.parent))
        from importlib import import_module
        from importlib.util import find_spec

        for name in PRELOADED:
            if find_spec(name.partition(".")[0]):
                import_module(name)
        gc.freeze()  # what is never looked at is never copied
        serve(sys.argv[2])
        if sys.argv[1:2] == ["-c"]:
            program, sys.argv[:3] = sys.argv[2], ["-c"]
            exec(program, {"__name__": "__main__"})  # noqa: S102 - as `python -c` does
        else:
            from outbox_kernel.__main__ import main as command

            command()
        sys.exit(0)
    address, *words = sys.argv[1:]
    code = ask(address, tuple(words), str(Path.cwd()), dict(os.environ), (sys.stdin, sys.stdout, sys.stderr))
    sys.exit(code if code >= 0 else 128 - code)


FORGE = Forge()

if __name__ == "__main__":
    main()
