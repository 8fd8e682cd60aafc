"""The names of the numbers: what they are called, and that the reference has them all (O4)."""

from __future__ import annotations

import re

from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes, http_attributes, url_attributes
from opentelemetry.semconv.metrics import http_metrics

from outbox_kernel.infrastructure.telemetry import instruments as numbers
from outbox_kernel.infrastructure.telemetry.instruments import ALL, label
from tests.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \| ([^|]+) \|$", re.MULTILINE)
OURS = "outbox."


def standard(*modules: object) -> set[str]:
    """What OpenTelemetry's conventions name there."""
    found = [each for module in modules for each in vars(module).items()]
    return {value for name, value in found if name.isupper() and isinstance(value, str)}


def test_what_the_conventions_have_a_name_for_is_called_so() -> None:
    """O4: all else begins with our own name."""
    named = standard(messaging_metrics, http_metrics)
    assert {each.name for each in ALL if not each.name.startswith(OURS)} <= named
    attributes = standard(messaging_attributes, error_attributes, http_attributes, url_attributes)
    assert {each for number in ALL for each in number.labels if not each.startswith(OURS)} <= attributes


def test_no_name_stands_for_two_numbers() -> None:
    assert len({each.name for each in ALL}) == len({each.prometheus for each in ALL}) == len(ALL)


def test_every_number_is_among_all() -> None:
    declared = {each for each in vars(numbers).values() if isinstance(each, numbers.Instrument)}
    assert declared == {*ALL}


def test_every_number_stands_in_the_reference() -> None:
    """O4: as Prometheus has it, with its kind, its labels and what it tells."""
    told = [
        (name, kind, {*re.findall(r"`(\w+)`", labels)}, words)
        for name, kind, labels, words in ROW.findall(PAGE.read_text())
    ]
    assert told == [
        (each.prometheus, each.kind, {*map(label, each.labels)}, each.help.rstrip(".")) for each in ALL
    ]
