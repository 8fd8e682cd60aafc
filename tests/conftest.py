"""The server and the randomness of a run; both are printed, so that any run can be repeated."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from outbox_kernel.infrastructure.master_keys import new_master_key
from tests import brokers, browsers, servers
from tests import prometheus as prometheuses

if TYPE_CHECKING:
    from playwright.sync_api import Browser

T = TypeVar("T")
# For tools/coverage_floor.py.
NOTE = Path(__file__).parents[1] / "build" / "left-out"
LEFT_OUT = pytest.StashKey[list[tuple[str, str]]]()
SERVER = pytest.StashKey[servers.Server]()
# Of what else a test may lack there is one reason, and of brokers several.
WANTED = {browsers.NONE: "a browser", prometheuses.NOT_INSTALLED: "a Prometheus"}

# What the example's events are sealed by, in this process and those that it starts.
os.environ.setdefault("OUTBOX_MASTER_KEYS", new_master_key("of-the-tests"))

# Imports and collection make a great many objects that stay. Python's 700 would walk them a thousand times.
GARBAGE_COUNTED_MAX = 50_000

settings.register_profile(
    "default",
    # Each run has others, so that many short runs find what one long one does.
    max_examples=100,
    # Always new histories: the seed, printed below, repeats them.
    derandomize=False,
    print_blob=True,
    # A database answers when it answers; slowness is measured in benchmarks/, never asserted here.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("longer", settings.get_profile("default"), max_examples=1_000)
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a RabbitMQ, a browser or a Prometheus where there is none, and say so in one line each."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
    without_broker = brokers.missing()
    missing = {**without_broker, **browsers.missing(), **prometheuses.missing()}
    left = [(item, reason) for item in items if (reason := _lacks(item, missing)) is not None]
    if left:
        if told := [reason for _, reason in left if reason in without_broker.values()]:
            NOTE.parent.mkdir(exist_ok=True)
            NOTE.write_text(told[0])
        config.stash[LEFT_OUT] = [(item.nodeid, reason) for item, reason in left]
        config.hook.pytest_deselected(items=[item for item, _ in left])
        gone = {item for item, _ in left}
        items[:] = [item for item in items if item not in gone]


def _lacks(item: pytest.Item, missing: Mapping[str, str]) -> str | None:
    names = set(getattr(item, "fixturenames", ()))
    if (params := getattr(item, "callspec", None)) is not None and "rabbitmq" in params.params.values():
        names.add("own_broker")
    return next((missing[name] for name in missing if name in names), None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    # Below the failures, and in quiet runs that have no header.
    server = config.stash.get(SERVER, None)
    seed = config.getoption("--hypothesis-seed")
    for wanted, left in _left_out(config).items():
        files = ", ".join(sorted({name.partition("::")[0] for name, _ in left}))
        reasons = "; ".join(sorted({reason for _, reason in left}))
        terminalreporter.write_line(f"left out for want of {wanted}: {len(left)} tests in {files}; {reasons}")
    terminalreporter.write_line(f"database: {server or 'not used'}; seed: OUTBOX_SEED={seed}")


def _left_out(config: pytest.Config) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for name, reason in config.stash.get(LEFT_OUT, []):
        found.setdefault(WANTED.get(reason, "a RabbitMQ"), []).append((name, reason))
    return found


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


@pytest.fixture(scope="session")
def rabbitmq_broker() -> Iterator[brokers.Broker]:
    """A running RabbitMQ, in a vhost of this run; see tests/brokers.py for which."""
    with _broker(brokers.running_broker(), must=brokers.asked_for()) as broker:
        yield broker


@pytest.fixture(scope="session")
def own_broker() -> Iterator[brokers.OwnBroker]:
    """A RabbitMQ that may be stopped, filled and alarmed; whoever does so leaves it as it was."""
    own = brokers.OwnBroker((f"max_message_size = {brokers.MESSAGE_BYTES_MAX}",))
    with _broker(own, must=servers.required()) as broker:
        yield broker


# For a module alone: while it runs, this thread has its loop, and no other can run here.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium that shows nothing; see tests/browsers.py for which."""
    try:
        with browsers.running_browser() as running:
            yield running
    except browsers.NoBrowserError as error:
        pytest.exit(f"no browser for the tests: {error}", returncode=1)


@pytest.fixture(scope="session")
def prometheus() -> type[prometheuses.Prometheus]:
    """A Prometheus that scrapes what it is told to."""
    if not prometheuses.installed():
        pytest.exit(f"no Prometheus for the tests: {prometheuses.NOT_INSTALLED}", returncode=1)
    return prometheuses.Prometheus


@pytest.fixture(scope="session")
def promtool(prometheus: type[prometheuses.Prometheus]) -> Callable[..., str]:
    """Its tool, which looks at texts and rules."""
    return prometheuses.promtool


@contextmanager
def _broker(starting: AbstractContextManager[T], *, must: bool) -> Iterator[T]:
    with ExitStack() as stack:
        try:
            found = stack.enter_context(starting)
        except brokers.NoBrokerError as error:
            if must:
                pytest.exit(f"no RabbitMQ for the tests: {error}", returncode=1)
            pytest.skip(f"no RabbitMQ: {error}")
        yield found
