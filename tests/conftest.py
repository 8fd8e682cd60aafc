"""The server and the randomness of a run; both are printed, so that any run can be repeated."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import servers

SERVER = pytest.StashKey[servers.Server]()

# Imports and collection make a great many objects that stay. Python's 700 would walk them a thousand times.
GARBAGE_COUNTED_MAX = 50_000

settings.register_profile(
    "default",
    max_examples=200,
    # Always new histories: the seed, printed below, repeats them.
    derandomize=False,
    print_blob=True,
    # A database answers when it answers; slowness is measured in benchmarks/, never asserted here.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("default"), max_examples=20_000)


# First, since Hypothesis' own plugin reads the seed in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(GARBAGE_COUNTED_MAX)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
    if config.getoption("--hypothesis-seed") is None:
        seed = os.environ.get("OUTBOX_SEED") or random.randrange(2**32)
        config.option.hypothesis_seed = str(seed)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> list[str]:
    profile, seed = settings.get_current_profile_name(), config.getoption("--hypothesis-seed")
    try:
        server = ", else ".join(servers.candidates())
    except servers.NoServerError as error:
        server = str(error)
    return [
        f"database: {server}",
        f"hypothesis: profile {profile}, OUTBOX_SEED={seed} repeats this run",
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    # Below the failures, and in quiet runs that have no header.
    server = config.stash.get(SERVER, None)
    seed = config.getoption("--hypothesis-seed")
    terminalreporter.write_line(f"database: {server or 'not used'}; seed: OUTBOX_SEED={seed}")


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """A running server; see tests/servers.py for which."""
    try:
        with servers.running_server() as server:
            request.config.stash[SERVER] = server
            yield server
    except servers.NoServerError as error:
        if servers.asked_for() or servers.required():
            pytest.exit(f"no PostgreSQL for the tests: {error}", returncode=1)
        pytest.skip(f"no PostgreSQL: {error}")


@pytest.fixture(scope="session")
def postgres_url(postgres_server: servers.Server) -> Iterator[str]:
    """A database of this run alone, `postgresql://…`; the tests that share it clean up after themselves."""
    with servers.fresh_database(postgres_server) as url:
        yield url


@pytest.fixture
def empty_postgres_url(postgres_server: servers.Server) -> Iterator[str]:
    """An empty database for one test, for whoever migrates or drops."""
    with servers.fresh_database(postgres_server) as url:
        yield url
