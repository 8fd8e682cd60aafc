"""Run the embedded server's programs as somebody other than root, away from the terminal's signals."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# PostgreSQL refuses to run as root; `nobody` is the one other user that every system has.
USER_INSTEAD_OF_ROOT = "nobody"


def is_root() -> bool:
    """Whether what starts here must give up its rights first."""
    return os.geteuid() == 0


def start(command: Sequence[str | Path], folder: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a program that runs on."""
    return subprocess.Popen(command, stdout=output, **_options(folder))  # noqa: S603 - our own command


def run(
    command: Sequence[str | Path], folder: Path, timeout_seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end; what it says comes with the result."""
    return subprocess.run(  # noqa: S603 - our own command
        command, check=False, timeout=timeout_seconds, stdout=subprocess.PIPE, **_options(folder)
    )


def others_can_reach(folder: Path) -> bool:
    """Whether everybody may enter the folder and all above it."""
    return all(step.stat().st_mode & stat.S_IXOTH for step in (folder, *folder.parents))


def _options(folder: Path) -> dict[str, Any]:
    # A session of its own, since Ctrl-C goes to all of the terminal's, and when to stop is ours to say.
    options: dict[str, Any] = {
        "cwd": folder,
        "start_new_session": True,
        "stdin": subprocess.DEVNULL,
        "stderr": subprocess.STDOUT,
    }
    if is_root():
        user = pwd.getpwnam(USER_INSTEAD_OF_ROOT)
        options |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return options
