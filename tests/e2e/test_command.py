"""The `outbox` command as a process of its own, before it meets a database (O1)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
    command = f"{sys.executable} -m outbox_kernel migrate --sql | true"
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment_with(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def test_help_loads_neither_the_database_nor_the_kernel() -> None:
    script = (
        "import sys\n"
        "from outbox_kernel.infrastructure import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit:\n"
        "    print(*{'sqlalchemy', 'asyncpg', 'attrs', 'rich'} & {*sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment_with(), capture_output=True, text=True, check=True
    )
    assert done.stderr.split() == []


def in_a_shell(line: str) -> subprocess.CompletedProcess[str]:
    command = line.replace("outbox", f"{sys.executable} -m outbox_kernel")
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        env=environment_with(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("words", ["migrate --sql", "--help", "--version"])
def test_a_full_disk_behind_the_output_is_a_sentence(words: str) -> None:
    sentence = failed_in_one_sentence(in_a_shell(f"outbox {words} >/dev/full"), code=1)
    assert "what this prints cannot be written (No space left on device): make room" in sentence


@pytest.mark.parametrize("line", ["outbox migrate --sql >&-", "outbox migrate --sql | head -1"])
def test_an_output_that_nobody_reads_is_no_error(line: str) -> None:
    assert in_a_shell(line).stderr == ""


WITHOUT_RABBITMQ = """
import importlib.util
import sys

found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "aio_pika" else found(name, *more)
sys.modules.update(dict.fromkeys(("aio_pika", "aiormq", "pamqp")))

from outbox_kernel.infrastructure.cli import main

main()
"""


@pytest.mark.parametrize("words", [["list"], ["replay", "--all"]])
def test_dead_letters_of_a_broker_whose_extra_is_missing_say_what_to_install(words: list[str]) -> None:
    def run_without(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", WITHOUT_RABBITMQ, "dead-letters", *words, *more],
            env=environment_with(RABBITMQ_URL="amqp://localhost/"),
            capture_output=True,
            text=True,
            check=False,
        )

    sentence = "RabbitMQ's client is not installed: run `pip install 'outbox-kernel[rabbitmq]'`"
    assert failed_in_one_sentence(run_without()) == sentence
    assert json.loads(run_without("--json").stderr) == {"error": sentence, "kind": "MissingExtra"}
