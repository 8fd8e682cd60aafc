"""Finding a RabbitMQ for the tests: the environment's, else the local one, else one of our own, else Docker's.

`OUTBOX_TEST_RABBITMQ=environment|local|own|docker` asks for one of them. Like the database's servers: one that was
asked for, or named by a URL, must answer; one that was merely looked for may be missing, unless
`OUTBOX_REQUIRE_SERVICES=1`.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self
from urllib.parse import urlsplit
from uuid import uuid4

from attrs import define, field, frozen

from tests.servers import docker_answers, required

KINDS = ("environment", "local", "own", "docker")
LOCAL_URL = "amqp://guest:guest@127.0.0.1:5672/"
# What the tests' own broker takes at most, far less than one that ships.
MESSAGE_BYTES_MAX = 1_000_000
DOCKER_IMAGE = "rabbitmq:4"
AMQP_PORT = 5672
# Of the image's log, or of the console of an image that logs elsewhere.
STARTED = re.compile("Server startup complete|completed with")
# Debian starts its scripts through one that only root and the server's user may run.
SCRIPTS = ("/usr/lib/rabbitmq/bin", "/usr/local/sbin", "/opt/rabbitmq/sbin", "/opt/homebrew/sbin")
SERVER_USER = "rabbitmq"
START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 60.0
CONTROL_SECONDS_MAX = 60.0
NONE = "none listens, rabbitmq-server is not installed, and no Docker daemon answers"
NOT_INSTALLED = "rabbitmq-server is not installed (Debian's package rabbitmq-server)"


class NoBrokerError(Exception):
    """No broker of the wanted kind: a sentence that says why, and what to do."""


Control = Callable[..., str]


@frozen
class Broker:
    """A running RabbitMQ, by a URL whose user may configure everything; with `control`, what `rabbitmqctl` does."""

    kind: str
    url: str
    control: Control | None = None

    def __str__(self) -> str:
        return f"RabbitMQ at {urlsplit(self.url).hostname} ({self.kind})"


def candidates(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The kinds to try, best first."""
    wanted = environ.get("OUTBOX_TEST_RABBITMQ")
    if wanted and wanted not in KINDS:
        raise NoBrokerError(f"OUTBOX_TEST_RABBITMQ is {wanted!r}; it may be {', '.join(KINDS)}")
    if wanted:
        return [wanted]
    if environment_url(environ):
        return ["environment"]
    if _listens(LOCAL_URL):
        return ["local"]
    if scripts() is not None:
        return ["own"]
    return ["docker"] if docker_answers(environ) else []


def asked_for(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether somebody named the broker that must be there."""
    named = environ.get("OUTBOX_TEST_RABBITMQ") or environment_url(environ)
    return bool(named) or required(environ)


def environment_url(environ: Mapping[str, str] = os.environ) -> str | None:
    """The URL that the environment gives."""
    return environ.get("OUTBOX_TEST_RABBITMQ_URL") or environ.get("RABBITMQ_URL") or None


def missing(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The fixtures that cannot be had here though nobody said that they must, each with the reason."""
    found: dict[str, str] = {}
    if not asked_for(environ) and not candidates(environ):
        found["rabbitmq_broker"] = NONE
    if not required(environ) and scripts() is None:
        found["own_broker"] = NOT_INSTALLED
    return found


def scripts() -> Path | None:
    """Where RabbitMQ's programs are, if it is installed here."""
    found = shutil.which("rabbitmq-server", path=os.pathsep.join(SCRIPTS))
    return None if found is None else Path(found).parent


@contextmanager
def running_broker(environ: Mapping[str, str] = os.environ) -> Iterator[Broker]:
    """The broker of this run, in a vhost of the run's own wherever we may make one."""
    found = candidates(environ)
    if not found:
        raise NoBrokerError(NONE)
    start = {"environment": _of_environment, "local": _local, "own": _own, "docker": _in_docker}[found[0]]
    with start(environ) as broker, _own_vhost(broker) as inside:
        yield inside


@contextmanager
def _of_environment(environ: Mapping[str, str]) -> Iterator[Broker]:
    url = environment_url(environ)
    if url is None:
        raise NoBrokerError(
            "set OUTBOX_TEST_RABBITMQ_URL to an amqp:// URL whose user may configure everything"
        )
    if not _listens(url):
        raise NoBrokerError(
            f"nothing listens at {urlsplit(url).hostname}, which OUTBOX_TEST_RABBITMQ_URL names"
        )
    yield Broker("environment", url, _local_control() if _is_here(url) else None)


@contextmanager
def _local(environ: Mapping[str, str]) -> Iterator[Broker]:
    del environ
    if not _listens(LOCAL_URL):
        raise NoBrokerError("nothing listens at 127.0.0.1:5672")
    yield Broker("local", LOCAL_URL, _local_control())


@contextmanager
def _own(environ: Mapping[str, str]) -> Iterator[Broker]:
    del environ
    with OwnBroker() as own:
        yield own.broker


@contextmanager
def _in_docker(environ: Mapping[str, str]) -> Iterator[Broker]:
    from docker.errors import DockerException
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    if not docker_answers(environ):
        raise NoBrokerError("no Docker daemon answers; start it, or say where it is with DOCKER_HOST")
    image = environ.get("TC_RMQ_IMAGE", DOCKER_IMAGE)
    # Its own class for RabbitMQ warns of itself.
    container = DockerContainer(image).with_exposed_ports(AMQP_PORT)
    container.waiting_for(LogMessageWaitStrategy(STARTED))
    try:
        container.start()
    except (DockerException, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise NoBrokerError(f"Docker cannot start {image} (TC_RMQ_IMAGE names another): {reason}") from error

    try:
        host, port = container.get_container_host_ip(), container.get_exposed_port(AMQP_PORT)
        # All of it is this run's, so it needs no vhost of its own.
        yield Broker("docker", f"amqp://guest:guest@{host}:{port}/")
    finally:
        container.stop()


@contextmanager
def _own_vhost(broker: Broker) -> Iterator[Broker]:
    """A vhost that goes with all that is in it; where we may not make one, names must do."""
    if broker.control is None:
        yield broker
        return
    vhost = f"outbox-test-{uuid4().hex[:12]}"
    user = urlsplit(broker.url).username or "guest"
    broker.control("add_vhost", vhost)
    try:
        broker.control("set_permissions", "-p", vhost, user, ".*", ".*", ".*")
        url = urlsplit(broker.url)._replace(path=f"/{vhost}").geturl()
        yield Broker(broker.kind, url, broker.control)
    finally:
        broker.control("delete_vhost", vhost)


def _local_control() -> Control | None:
    """`rabbitmqctl` for the server of this machine, for those who may run it."""
    program = shutil.which("rabbitmqctl", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        return None

    def control(*words: str) -> str:
        return _run([program, "--quiet", *words], {**os.environ})

    try:
        control("list_vhosts")
    except (NoBrokerError, OSError, subprocess.TimeoutExpired):
        return None
    return control


def _run(command: list[str], environment: dict[str, str], user: str | None = None) -> str:
    done = subprocess.run(
        command,
        env=environment,
        user=user,
        group=user,
        extra_groups=[] if user else None,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=CONTROL_SECONDS_MAX,
    )
    if done.returncode:
        raise NoBrokerError(f"{' '.join(command[1:])}: {done.stdout}{done.stderr}".strip())
    return done.stdout


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    with suppress(OSError), socket.create_connection((parts.hostname or "", parts.port or 5672), 5.0):
        return True
    return False


def _is_here(url: str) -> bool:
    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@define(eq=False)
class OwnBroker:
    """A RabbitMQ of the tests' own, which may be stopped, killed and started again over the same data."""

    settings: tuple[str, ...] = ()
    """Lines of its configuration."""
    port: int = field(factory=free_port)
    _distribution_port: int = field(factory=free_port)
    _folder: TemporaryDirectory[str] | None = None
    _process: subprocess.Popen[bytes] | None = None
    _name: str = field(factory=lambda: f"outbox-{uuid4().hex[:8]}@localhost")

    @property
    def url(self) -> str:
        """Where it is, for its first user."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    def broker(self) -> Broker:
        """What there is to know of it."""
        return Broker("own", self.url, self.control)

    def __enter__(self) -> Self:
        if scripts() is None:
            raise NoBrokerError(NOT_INSTALLED)
        self._folder = TemporaryDirectory(prefix="outbox-rabbit-")
        for name in ("data", "logs", "home"):
            (Path(self._folder.name) / name).mkdir()
        configuration = (
            f"listeners.tcp.local = 127.0.0.1:{self.port}",
            "loopback_users = none",
            *self.settings,
        )
        (Path(self._folder.name) / "rabbitmq.conf").write_text("\n".join(configuration) + "\n")
        if self._user is not None:
            for path in (Path(self._folder.name), *Path(self._folder.name).iterdir()):
                shutil.chown(path, self._user, self._user)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)
        if self._folder is not None:
            self._folder.cleanup()

    def start(self) -> None:
        """Start it, and return when it listens."""
        programs = scripts()
        assert programs is not None
        assert self._folder is not None
        with (Path(self._folder.name) / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [str(programs / "rabbitmq-server")],
                env=self._environment(),
                user=self._user,
                group=self._user,
                extra_groups=[] if self._user else None,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._await_port()

    def _await_port(self) -> None:
        """Return when it listens, which it does last of all."""
        assert self._process is not None
        until = time.monotonic() + START_SECONDS_MAX
        while not _listens(self.url):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)
            if self._process.returncode is not None or time.monotonic() > until:
                assert self._folder is not None
                output = (Path(self._folder.name) / "output").read_text(errors="replace")
                raise NoBrokerError(f"rabbitmq-server did not start: {output[-2_000:]}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it in this way, with all that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        try:
            process.wait(STOP_SECONDS_MAX)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def restart(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it and start it again."""
        self.stop(how)
        self.start()

    def control(self, *words: str) -> str:
        """Do what `rabbitmqctl` does."""
        programs = scripts()
        assert programs is not None
        return _run([str(programs / "rabbitmqctl"), "--quiet", *words], self._environment(), self._user)

    @property
    def _user(self) -> str | None:
        """Root starts no server as itself."""
        if os.geteuid() != 0:
            return None
        with suppress(KeyError):
            return pwd.getpwnam(SERVER_USER).pw_name
        return "nobody"

    def _environment(self) -> dict[str, str]:
        assert self._folder is not None
        folder = Path(self._folder.name)
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin",
            "LANG": "C.UTF-8",
            "HOME": str(folder / "home"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_NODENAME": self._name,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        }
