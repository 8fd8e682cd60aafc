"""Charts are shapes that no style sheet of a page's own is needed for (O3)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest

from outbox_kernel.infrastructure.dashboard.charts import (
    DURATIONS,
    LAG_SECONDS_LEAST,
    RATES,
    SPARK_HEIGHT,
    area,
    spark,
)


def drawing(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - our own


NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MOMENTS = [NOW + timedelta(minutes=minute) for minute in range(3)]


@pytest.mark.parametrize(
    ("highest", "written"),
    [
        (0.0, "1 s"),
        (0.0042, "5 ms"),
        (0.3, "500 ms"),
        (1.0, "1 s"),
        (34.0, "50 s"),
        (55.0, "1 min"),
        (400.0, "10 min"),
        (3_000.0, "50 min"),
        (3_600.0, "1 h"),
        (60_000.0, "20 h"),
        (80_000.0, "1 d"),
        (900_000.0, "20 d"),
    ],
)
def test_an_axis_of_durations_ends_at_a_round_one(highest: float, written: str) -> None:
    top = DURATIONS.top_of([None, highest, highest / 3])
    assert top >= highest
    assert DURATIONS.written(top) == written


@pytest.mark.parametrize(
    ("highest", "written"),
    [
        (0.0, "1 /h"),
        (0.0005, "2 /h"),
        (0.05, "5 /min"),
        (0.9, "1 /s"),
        (34.0, "50 /s"),
        (1_001.0, "2,000 /s"),
    ],
)
def test_an_axis_of_rates_ends_at_a_round_one(highest: float, written: str) -> None:
    assert RATES.written(RATES.top_of([highest])) == written


def test_what_is_not_known_is_a_gap() -> None:
    drawn = drawing(spark([1.0, 2.0, None, 4.0], "a <label> & more"))
    assert drawn.attrib["aria-label"] == "a <label> & more"
    assert drawn.attrib["role"] == "img"
    assert len(drawn.findall("polyline")) == 2


def test_what_is_little_looks_little_where_there_is_no_axis() -> None:
    def highest(svg: str) -> float:
        [line] = drawing(svg).findall("polyline")
        return min(float(point.partition(",")[2]) for point in line.attrib["points"].split())

    assert highest(spark([0.0, 0.5, 0.0], "half a second", LAG_SECONDS_LEAST)) > SPARK_HEIGHT * 0.9
    assert highest(spark([0.0, 3_600.0, 0.0], "an hour", LAG_SECONDS_LEAST)) < SPARK_HEIGHT * 0.1


@pytest.mark.parametrize("values", [[], [None], [0.0, 0.0]])
def test_where_nothing_was_nothing_fails(values: list[float | None]) -> None:
    drawing(spark(values, "nothing"))
    drawing(area(values, MOMENTS[: len(values)], "nothing", RATES))


def test_an_area_stays_within_its_frame_and_says_each_step() -> None:
    drawn = drawing(area([1.0, 5.0, 3.0], MOMENTS, "Delivered", RATES))
    numbers = [
        float(number)
        for line in drawn.findall("polyline")
        for number in re.split("[ ,]", line.attrib["points"])
    ]
    assert all(0 <= y <= 140 for y in numbers[1::2])
    assert all(0 <= x <= 600 for x in numbers[::2])
    assert [each.text for each in drawn.iter("title")] == [
        "2026-01-31 12:00 UTC: 1 /s",
        "2026-01-31 12:01 UTC: 5 /s",
        "2026-01-31 12:02 UTC: 3 /s",
    ]


def test_no_shape_has_a_style_of_its_own() -> None:
    assert "style" not in area([1.0, 5.0, 3.0], MOMENTS, "Delivered", RATES)
