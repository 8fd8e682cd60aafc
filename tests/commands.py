"""The `outbox` command as a user runs it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.forge import FORGE

ROOT = Path(__file__).resolve().parent.parent
# Against what hangs; a short benchmark on a busy machine takes its time.
SECONDS_MAX = 300.0
# Not the script, which a checkout has only where it is installed; test_adopter.py runs that.
COMMAND = (sys.executable, "-m", "outbox_kernel")


def outbox(*arguments: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, with these settings and no others."""
    return FORGE.run(
        arguments, folder=folder, environment=environment_with(**environment), seconds=SECONDS_MAX
    )


def outbox_from_nothing(
    *arguments: str, folder: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run it in an interpreter that has imported nothing yet, for whatever is about that."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment_with(**environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )


def environment_with(**settings: str) -> dict[str, str]:
    """The environment of this process, its settings replaced, and this checkout importable from anywhere."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        # The example's events keep addresses encrypted, so that whatever runs it needs the key of this run.
        if name == "OUTBOX_MASTER_KEYS"
        or (name != "DATABASE_URL" and not name.startswith(("OUTBOX_", "PG", "RABBITMQ_")))
    }
    return {**inherited, "PYTHONPATH": str(ROOT), **settings}


def failed_in_one_sentence(result: subprocess.CompletedProcess[str], code: int = 1) -> str:
    """Check that it failed as promised (no traceback, no output, the exit code) and return the sentence."""
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr.removeprefix("error: ").strip()
