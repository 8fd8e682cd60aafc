"""Without the extra `http` contexts and relay lack nothing, and what serves says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.commands import ROOT, environment_with, failed_in_one_sentence

LIBRARIES = ("jinja2", "fastapi", "jwt", "pydantic", "starlette", "strawberry", "uvicorn")

WITHOUT = f"""
import importlib.util
import sys

found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in {LIBRARIES!r} else found(name, *more)
sys.modules.update(dict.fromkeys({LIBRARIES!r}))
"""
APPLICATION = """
from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.discovery import context_packages
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import discover_handlers

settings = Settings(database_url="postgresql://localhost/shop")
build_container(settings)
print(len(discover_handlers(context_packages(settings))))
"""
COMMAND = """
from outbox_kernel.infrastructure.cli import main

main()
"""


def without(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + script, *arguments],
        cwd=ROOT,
        env=environment_with(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_contexts_need_nothing_of_what_serves_them() -> None:
    done = without(APPLICATION)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def test_without_its_extra_the_dashboard_says_what_to_install() -> None:
    sentence = failed_in_one_sentence(without(COMMAND, "dashboard"))
    assert sentence == "the dashboard is not installed: run `pip install 'outbox-kernel[dashboard]'`"


@pytest.mark.parametrize("command", ["api", "dev"])
def test_without_the_extra_the_commands_say_what_to_install(command: str) -> None:
    sentence = failed_in_one_sentence(without(COMMAND, command))
    assert sentence == "what serves HTTP is not installed: run `pip install 'outbox-kernel[http]'`"
