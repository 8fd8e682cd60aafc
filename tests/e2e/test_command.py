"""The `outbox` command as a process of its own, before it meets a database (O1)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.commands import environment_with, failed_in_one_sentence, outbox


def test_a_bad_setting_is_one_sentence_from_the_command_itself() -> None:
    sentence = failed_in_one_sentence(outbox("migrate", OUTBOX_SCHEMA="Not-This"))
    assert sentence.startswith("OUTBOX_SCHEMA is 'Not-This'")


def test_a_context_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    result = outbox("migrate", "--sql", folder=tmp_path, OUTBOX_CONTEXTS="contexts.absent")
    assert failed_in_one_sentence(result).startswith(
        f"context 'contexts.absent' is not found from {tmp_path}"
    )


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m infrastructure.cli migrate --sql | true"
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment_with(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
