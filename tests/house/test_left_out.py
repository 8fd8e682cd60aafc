"""A run on a machine that lacks something says in one line what it leaves out, and why (O3, O4)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import brokers, browsers
from tests import prometheus as prometheuses
from tests.pages import ROOT

LINE = re.compile(r"^left out for want of (.+): (\d+) tests in (.+); (.+)$", re.MULTILINE)
LACKING = {
    "a browser": ("tests/e2e/browser/test_looks.py", browsers.NONE),
    "a Prometheus": ("tests/unit/telemetry/test_alerts.py", prometheuses.NOT_INSTALLED),
}


def collected(path: Path, *files: str) -> str:
    """What is said of a run that only collects, where no other program can be found than those in a folder."""
    asked = {browsers.VARIABLE, "OUTBOX_REQUIRE_SERVICES", "OUTBOX_TEST_RABBITMQ", "OUTBOX_TEST_RABBITMQ_URL"}
    environ = {name: value for name, value in os.environ.items() if name not in asked}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "--quiet", *files],
        cwd=ROOT,
        env={**environ, "PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_left_out_is_said_in_a_line_for_each_program(tmp_path: Path) -> None:
    """And all else is run."""
    said = collected(tmp_path, "tests/e2e/browser", "tests/unit/telemetry/test_alerts.py")
    told = {wanted: (files, reason) for wanted, _, files, reason in LINE.findall(said)}
    for wanted, (file, reason) in LACKING.items():
        files, why = told[wanted]
        assert file in files
        assert why == reason
    assert "::test_each_alert_is_named_after_a_heading_of_the_runbook" in said
    assert "::test_a_page_looks_as_it_should" not in said
    assert "::test_promtool_loads_the_rules" not in said


def test_what_was_asked_for_must_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In CI everything is."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("OUTBOX_REQUIRE_SERVICES", "1")
    assert (browsers.missing(), prometheuses.missing(), brokers.missing()) == ({}, {}, {})
    monkeypatch.delenv("OUTBOX_REQUIRE_SERVICES")
    monkeypatch.setenv(browsers.VARIABLE, "chromium-of-mine")
    assert browsers.missing() == {}
    with pytest.raises(browsers.NoBrowserError), browsers.running_browser():
        pass
