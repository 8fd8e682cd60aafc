"""A misspelt name of a setting is noticed (R14)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from outbox_kernel.infrastructure.cli import main
from outbox_kernel.infrastructure.cli.command_line import COMMANDS
from outbox_kernel.infrastructure.environment import KNOWN, refuse_unknown_names
from outbox_kernel.infrastructure.errors import BadSetting
from tests.pages import ROOT


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("OUTBOX_POL_INTERVAL", "write OUTBOX_POLL_INTERVAL, or take it out"),
        ("OUTBOX_SHEMA", "write OUTBOX_SCHEMA, or take it out"),
        ("OUTBOX_CONTEXT", "write OUTBOX_CONTEXTS, or take it out"),
        ("OUTBOX_API_PORTS", "write OUTBOX_API_PORT, or take it out"),
        ("OUTBOX_Q", "correct its name, or take it out"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_one_that_is_meant(name: str, remedy: str) -> None:
    with pytest.raises(BadSetting) as refused:
        refuse_unknown_names({name: "1"})
    assert refused.value.name == name
    assert str(refused.value) == f"{name} is no setting, and nothing would come of it: {remedy}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "x") for name in KNOWN),
        ("OUTBOX_TEST_DATABASE_URL", "postgresql://localhost/x"),
        ("OUTBOX_SEED", "1"),
        ("OUTBOX_REQUIRE_SERVICES", "1"),
        ("OUTBOX_EMPTY", " "),
        ("SHOP_OUTBOX_SHEMA", "x"),
        # A service called outbox, and one called outbox-relay, as Kubernetes tells of them.
        ("OUTBOX_SERVICE_HOST", "10.0.0.1"),
        ("OUTBOX_RELAY_SERVICE_PORT_HTTP", "80"),
        ("OUTBOX_PORT", "tcp://10.0.0.1:80"),
        ("OUTBOX_RELAY_PORT_80_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_what_is_a_setting_or_anothers_passes(name: str, value: str) -> None:
    refuse_unknown_names({name: value})


def test_a_port_that_is_meant_for_the_api_is_no_services() -> None:
    with pytest.raises(BadSetting, match="write OUTBOX_API_PORT"):
        refuse_unknown_names({"OUTBOX_PORT": "8000"})


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_a_misspelt_name_before_it_does_anything(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_LEASE_SECOND", "5")
    with pytest.raises(SystemExit) as ended:
        main([name, "--json"])
    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().err)["error"].startswith("OUTBOX_LEASE_SECOND is no setting")


def test_help_is_given_whatever_the_environment_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_LEASE_SECOND", "5")
    with pytest.raises(SystemExit) as ended:
        main(["relay", "--help"])
    assert ended.value.code == 0
    assert "Usage" in capsys.readouterr().out


def test_the_names_are_those_that_are_read_and_those_that_the_reference_has() -> None:
    read = {
        name
        for file in (ROOT / "infrastructure").rglob("*.py")
        for name in re.findall(r'"(OUTBOX_[A-Z_]+)"', file.read_text())
    }
    told = set(re.findall(r"`(OUTBOX_[A-Z_]+)`", Path(ROOT / "docs/reference/commands.md").read_text()))
    assert read == KNOWN
    assert told == KNOWN
