"""Alerts and the dashboard: what Prometheus makes of them, and that the runbook answers each (O4, O5)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from outbox_kernel.infrastructure.cli import main
from outbox_kernel.infrastructure.telemetry.alerts import alerts, as_yaml, rules
from outbox_kernel.infrastructure.telemetry.grafana import COLUMNS, dashboard, panels
from outbox_kernel.infrastructure.telemetry.instruments import ALL
from tests.pages import ROOT, anchors_of

RUNBOOK = ROOT / "docs" / "runbook.md"
NAMES = {each.prometheus for each in ALL}
NUMBER = re.compile(r"\b(?:outbox|messaging|http)_\w+")


def test_each_alert_is_named_after_a_heading_of_the_runbook() -> None:
    headings = re.findall(r"^## (.+)", RUNBOOK.read_text(), re.MULTILINE)
    anchors = anchors_of(RUNBOOK)
    for each in alerts():
        assert each.heading in headings
        assert each.anchor in anchors
    assert len({each.name for each in alerts()}) == len(alerts())
    assert alerts()[0].name == "NoRelayLives"
    assert "MessagesAmongTheBrokersDeadLetters" in {each.name for each in alerts()}


def numbers_in(expression: str) -> set[str]:
    """The numbers that it asks for; what is in brackets are their labels."""
    bare = re.sub(r"by \([^)]*\)|{[^}]*}", "", expression)
    return {re.sub(r"_(bucket|count|sum)$", "", found) for found in NUMBER.findall(bare)}


def test_alerts_and_panels_ask_for_numbers_that_there_are() -> None:
    asked = [each.expression for each in alerts()]
    asked += [query for panel in panels() for query, _ in panel.queries]
    for expression in asked:
        assert numbers_in(expression)
        assert numbers_in(expression) <= NAMES, expression


@pytest.mark.prometheus
@pytest.mark.parametrize("write", [as_yaml, json.dumps])
def test_promtool_loads_the_rules(
    write: Callable[[object], str], tmp_path: Path, promtool: Callable[..., str]
) -> None:
    file = tmp_path / "rules.yml"
    file.write_text(write(rules(90.0, "https://example.org/runbook")))
    assert f"{len(alerts())} rules found" in promtool("check", "rules", str(file))


@pytest.mark.prometheus
def test_alerts_fire_and_rest_as_they_should(tmp_path: Path, promtool: Callable[..., str]) -> None:
    """O4: on what processes say, by Prometheus's own reading of the rules."""
    (tmp_path / "rules.yml").write_text(as_yaml(rules(60.0)))
    of = '{job="%s",instance="%s",messaging_destination_subscription_name="shop.Pack"}'
    series = {
        # Two processes tell of one outbox, and a third of another one.
        'outbox_relays{job="relay",instance="a",outbox_state="live"}': "1x20 0x10",
        'outbox_relays{job="api",instance="b",outbox_state="live"}': "1x20 0x10",
        'outbox_relays{job="api",instance="c",outbox="other",outbox_state="live"}': "2x30",
        'outbox_looks_failed_total{job="api",instance="b"}': "0x30",
        f"outbox_subscription_lag_time_seconds{of % ('relay', 'a')}": "0x10 100x20",
        f"outbox_subscription_lag_time_seconds{of % ('api', 'c')}".replace("}", ',outbox="other"}'): "100x30",
        f"outbox_subscription_paused{of % ('api', 'c')}".replace("}", ',outbox="other"}'): "1x30",
        'outbox_lease_losses_total{job="relay",instance="a"}': "0x5 1x25",
    }
    tests = {
        "rule_files": [str(tmp_path / "rules.yml")],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": [
                    {"eval_time": "4m", "alertname": "NoRelayLives", "exp_alerts": []},
                    {
                        "eval_time": "7m",
                        "alertname": "NoRelayLives",
                        "exp_alerts": [
                            {
                                "exp_labels": {"severity": "page"},
                                "exp_annotations": told_by("NoRelayLives"),
                            }
                        ],
                    },
                    {"eval_time": "2m", "alertname": "TheOldestEventIsOld", "exp_alerts": []},
                    {
                        "eval_time": "6m",
                        "alertname": "TheOldestEventIsOld",
                        "exp_alerts": [
                            {
                                "exp_labels": {
                                    "severity": "page",
                                    "messaging_destination_subscription_name": "shop.Pack",
                                },
                                "exp_annotations": {
                                    **told_by("TheOldestEventIsOld"),
                                    "description": "shop.Pack has stood before an event for 1m 40s.",
                                },
                            }
                        ],
                    },
                    {
                        "eval_time": "3m",
                        "alertname": "ARelayHasLostItsLease",
                        "exp_alerts": [
                            {
                                "exp_labels": {"severity": "ticket", "instance": "a"},
                                "exp_annotations": {
                                    **told_by("ARelayHasLostItsLease"),
                                    "description": "a has not renewed its lease in time.",
                                },
                            }
                        ],
                    },
                ],
            }
        ],
    }
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps(tests))
    assert "SUCCESS" in promtool("test", "rules", str(file))


def told_by(name: str) -> dict[str, str]:
    [rule] = [each for each in rules()["groups"][0]["rules"] if each["alert"] == name]
    found: dict[str, str] = rule["annotations"]
    return found


# --- the command --------------------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["telemetry", *words])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_command_prints_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """O4: for people, and with --json for programs."""
    shown = printed(capsys, "alerts", "--lag-seconds", "90", "--runbook", "https://example.org/runbook")
    assert shown == as_yaml(rules(90.0, "https://example.org/runbook"))
    assert json.loads(printed(capsys, "alerts", "--json")) == rules()
    assert json.loads(printed(capsys, "grafana")) == dashboard()


# --- the dashboard ------------------------------------------------------------------------------------


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    made = json.loads(json.dumps(dashboard()))
    assert (made["uid"], made["title"]) == ("outbox-kernel", "Outbox")
    assert {each["name"] for each in made["templating"]["list"]} == {"datasource", "outbox"}
    assert len({each["id"] for each in made["panels"]}) == len(made["panels"]) == len(panels())
    assert {each["datasource"]["uid"] for each in made["panels"]} == {"${datasource}"}


def test_its_panels_stand_side_by_side() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < COLUMNS
        assert not cells & taken
        taken |= cells
