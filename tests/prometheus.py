"""A Prometheus of the test's own: Debian's, with its promtool, scraping what the test says."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.servers import required

NOT_INSTALLED = "prometheus and promtool are not installed (Debian's package prometheus)"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
STEP_SECONDS = 0.05


def missing(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The fixtures that cannot be had here though nobody said that they must, each with the reason."""
    if required(environ) or installed():
        return {}
    return dict.fromkeys(("prometheus", "promtool"), NOT_INSTALLED)


def installed() -> bool:
    """Whether it is here."""
    return all(map(shutil.which, ("prometheus", "promtool")))


def promtool(*words: str, given: str | None = None) -> str:
    """Have promtool look at something; what it complains of fails the test."""
    done = subprocess.run(["promtool", *words], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr.strip(), done.stderr
    return done.stdout


class Prometheus:
    """One that scrapes these addresses ever so often, and evaluates these rules."""

    def __init__(self, targets: Mapping[str, str], rules: str = "", *, every: str = "200ms") -> None:
        self._targets = targets
        self._rules = rules
        self._every = every
        self._port = _free_port()

    def __enter__(self) -> Self:
        self._folder = TemporaryDirectory(prefix="prometheus-")
        folder = Path(self._folder.name)
        (folder / "rules.yml").write_text(self._rules or "groups: []\n")
        configuration = {
            "global": {"scrape_interval": self._every, "evaluation_interval": self._every},
            "rule_files": [str(folder / "rules.yml")],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [target]}]}
                for job, target in self._targets.items()
            ],
        }
        # JSON is YAML as well.
        (folder / "prometheus.yml").write_text(json.dumps(configuration))
        self._output = (folder / "output").open("w")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        self._await_ready(folder)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        finally:
            self._process.kill()
            self._output.close()
            self._folder.cleanup()

    def _await_ready(self, folder: Path) -> None:
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{self._port}/-/ready"):
                    return
            except URLError:
                pass
            try:
                self._process.wait(STEP_SECONDS)
            except subprocess.TimeoutExpired:
                assert time.monotonic() < until, "Prometheus is not ready in time"
            else:
                raise AssertionError(f"Prometheus has ended: {(folder / 'output').read_text()[-2_000:]}")

    def ask(self, path: str, **parameters: str) -> Any:
        """Ask its API."""
        with urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}?{urlencode(parameters)}") as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return what an expression comes to now: labels and value."""
        found = self.ask("query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def value(self, expression: str) -> float | None:
        """Return the one number that an expression comes to; None: there is none yet."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        alerts = self.ask("alerts")["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

    def is_up(self) -> bool:
        """Whether it has scraped every target by now."""
        return self.value("count(up == 1)") == len(self._targets)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
