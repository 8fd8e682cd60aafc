"""Which recurrence rules are served, and at which local times they fire (X4)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from dateutil.rrule import rrulestr

from contexts.messaging.domain import InvalidRecurrenceRule, RecurrenceRule, recurrence
from contexts.messaging.domain.recurrence import CANDIDATES_MAX

# Local times have no zone.
START = datetime(2026, 3, 2, 9)  # noqa: DTZ001 - a Monday


def times(text: str, number: int = 3, start: datetime = START) -> list[str]:
    return [
        f"{time:%a %d %b %y %H:%M}" for time in islice(RecurrenceRule.parse(text).local_times(start), number)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FREQ=DAILY", ["Mon 02 Mar 26 09:00", "Tue 03 Mar 26 09:00", "Wed 04 Mar 26 09:00"]),
        ("FREQ=WEEKLY;BYDAY=TU,FR", ["Tue 03 Mar 26 09:00", "Fri 06 Mar 26 09:00", "Tue 10 Mar 26 09:00"]),
        ("FREQ=MONTHLY;BYMONTHDAY=31", ["Tue 31 Mar 26 09:00", "Sun 31 May 26 09:00", "Fri 31 Jul 26 09:00"]),
        ("FREQ=MONTHLY;BYDAY=-1FR", ["Fri 27 Mar 26 09:00", "Fri 24 Apr 26 09:00", "Fri 29 May 26 09:00"]),
        (
            "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29",
            ["Tue 29 Feb 28 09:00", "Sun 29 Feb 32 09:00", "Fri 29 Feb 36 09:00"],
        ),
        ("FREQ=HOURLY;INTERVAL=6", ["Mon 02 Mar 26 09:00", "Mon 02 Mar 26 15:00", "Mon 02 Mar 26 21:00"]),
        (
            "FREQ=DAILY;BYHOUR=8,20;BYMINUTE=30",
            ["Mon 02 Mar 26 20:30", "Tue 03 Mar 26 08:30", "Tue 03 Mar 26 20:30"],
        ),
        ("FREQ=DAILY;COUNT=2", ["Mon 02 Mar 26 09:00", "Tue 03 Mar 26 09:00"]),
        ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO;COUNT=1", ["Mon 11 May 26 09:00"]),
    ],
)
def test_a_rule_fires_when_it_says(text: str, expected: list[str]) -> None:
    assert times(text) == expected


def test_the_calendar_is_that_of_the_years_it_is_asked_of() -> None:
    # It is expanded in a later cycle of 400 years, whose days are the same: 2100 is no leap year there either.
    start, rule = START.replace(year=2099), RecurrenceRule.parse("FREQ=DAILY")
    assert list(islice(rule.local_times(start), 800)) == [
        start + timedelta(days=number) for number in range(800)
    ]
    assert times("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", 1, start) == ["Fri 29 Feb 04 09:00"]


@pytest.mark.parametrize(
    "written", ["RRULE:FREQ=WEEKLY;BYDAY=MO", "  freq=weekly;byday=mo\n", "rrule:FREQ=WEEKLY;BYDAY=MO"]
)
def test_a_rule_is_kept_in_one_way(written: str) -> None:
    assert RecurrenceRule.parse(written).text == "FREQ=WEEKLY;BYDAY=MO"


def test_count_and_until_are_kept_apart_from_the_rule() -> None:
    assert RecurrenceRule.parse("FREQ=DAILY;COUNT=3").count == 3
    rule = RecurrenceRule.parse("FREQ=DAILY;UNTIL=20260401T215959Z")
    assert rule.until == datetime(2026, 4, 1, 21, 59, 59, tzinfo=UTC)
    assert rule.text == "FREQ=DAILY;UNTIL=20260401T215959Z"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "cannot be read at '': write it like FREQ=WEEKLY"),
        ("every Monday", "cannot be read at 'EVERY MONDAY'"),
        ("FREQ=DAILY;", "cannot be read at ''"),
        ("FREQ=DAILY;FREQ=WEEKLY", "cannot be read at 'FREQ=WEEKLY'"),
        ("FREQ=DAILY;BYHOUR", "cannot be read at 'BYHOUR'"),
        ("INTERVAL=2", "no FREQ that is served: take one of HOURLY, DAILY"),
        ("FREQ=FORTNIGHTLY", "no FREQ that is served"),
        ("FREQ=DAILY;BYEASTER=1", "no part named 'BYEASTER'"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL=0: give 1 to 1,000"),
        ("FREQ=DAILY;INTERVAL=1,2", "INTERVAL=1,2: give 1 to 1,000"),
        ("FREQ=DAILY;INTERVAL=" + "9" * 300, "INTERVAL=9{40}: give 1 to 1,000"),
        ("FREQ=DAILY;COUNT=0", "COUNT=0: give 1 to 10,000"),
        ("FREQ=DAILY;COUNT=-1", "COUNT=-1: give 1 to 10,000"),
        ("FREQ=DAILY;COUNT=\u0661", "COUNT=\u0661: give 1 to 10,000"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR=24: give 0 to 23$"),
        ("FREQ=DAILY;BYHOUR=9,x", "BYHOUR=9,X: give 0 to 23"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "BYMONTHDAY=0: give 1 to 31, or -31 to -1"),
        ("FREQ=YEARLY;BYMONTH=-1", "BYMONTH=-1: give 1 to 12$"),
        ("FREQ=WEEKLY;BYDAY=XX", "BYDAY=XX: give days, like MO,TH$"),
        ("FREQ=WEEKLY;BYDAY=2MO", "BYDAY=2MO: give days, like MO,TH$"),
        ("FREQ=MONTHLY;BYDAY=0MO", "BYDAY=0MO: give days, like MO,TH or 2MO,-1FR"),
        ("FREQ=WEEKLY;WKST=MONDAY", "WKST=MONDAY: give a day, like MO"),
        ("FREQ=DAILY;UNTIL=20260401", "UNTIL=20260401: give a moment in UTC, like 20301231T225959Z"),
        ("FREQ=DAILY;UNTIL=20260401T090000", "give a moment in UTC"),
        ("FREQ=DAILY;UNTIL=20260230T090000Z", "give a moment in UTC"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20260401T090000Z", "both COUNT and UNTIL"),
        ("FREQ=DAILY;BYWEEKNO=3", "BYWEEKNO, which means nothing with FREQ=DAILY: leave it out"),
        ("FREQ=MONTHLY;BYYEARDAY=3", "BYYEARDAY, which means nothing with FREQ=MONTHLY"),
        ("FREQ=WEEKLY;BYMONTHDAY=3", "BYMONTHDAY, which means nothing with FREQ=WEEKLY"),
        ("FREQ=HOURLY;BYSETPOS=1", "BYSETPOS, which means nothing with FREQ=HOURLY"),
        ("DTSTART;TZID=Europe/Berlin:20260302T090000\nRRULE:FREQ=DAILY", "without DTSTART, TZID and dates"),
        ("DTSTART=20260302T090000Z;FREQ=DAILY", "without DTSTART, TZID and dates"),
        ("RRULE:FREQ=DAILY\nEXDATE:20260303T090000", "give the one RRULE alone"),
        ("FREQ=DAILY\nRRULE:FREQ=WEEKLY", "give the one RRULE alone"),
        ("FREQ=DAILY;BYDAY=" + "MO," * 200, "has 617 characters, and 500 are the limit"),
        ("FREQ=DAILY;BYHOUR=8,09,+8", "BYHOUR=8,09,\\+8, where a value comes twice: write each once"),
        ("FREQ=WEEKLY;BYDAY=MO,TU,MO", "BYDAY=MO,TU,MO, where a value comes twice"),
        ("FREQ=DAILY;BYSETPOS=" + ",".join(["2"] * 230), "where a value comes twice"),
        (
            "FREQ=MONTHLY;BYDAY=MO,TU;BYSETPOS=1,2,3,4,5,6,7,8,-1,-2,-3,-4,-5",
            "has 13 values of BYSETPOS, and 12 are the limit: give fewer",
        ),
        ("FREQ=DAILY;BYMINUTE=0,30", "more than once in 60 minutes, which is too often: give one BYMINUTE"),
        ("FREQ=HOURLY;BYSECOND=0,1", "more than once in 60 minutes"),
        ("FREQ=MINUTELY", "more than once in 60 minutes, which is too often"),
        ("FREQ=SECONDLY;INTERVAL=86400", "FREQ=HOURLY or slower"),
    ],
)
def test_what_is_no_rule_is_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InvalidRecurrenceRule, match=sentence):
        RecurrenceRule.parse(text)


HOURS = ",".join(map(str, range(24)))
WEEK = "MO,TU,WE,TH,FR,SA,SU"
NEVER = [
    "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
    "FREQ=YEARLY;BYMONTH=3;BYDAY=53MO",
    f"FREQ=MONTHLY;BYDAY={WEEK};BYSETPOS=31;BYMONTH=2",
    "FREQ=WEEKLY;BYDAY=MO;BYSETPOS=2",
    "FREQ=WEEKLY;BYSETPOS=2",
    f"FREQ=WEEKLY;BYDAY={WEEK};BYHOUR={HOURS};BYSETPOS=169",
    "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
    "FREQ=DAILY;INTERVAL=7;BYDAY=TU",
    f"FREQ=DAILY;BYHOUR={HOURS};BYSETPOS=-25",
    "FREQ=HOURLY;INTERVAL=2;BYHOUR=8",
    "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30;BYMINUTE=59;BYSECOND=59",
    "FREQ=HOURLY;BYDAY=MO;BYYEARDAY=366",
]


def test_what_is_rare_is_served_by_the_year_and_refused_by_the_hour() -> None:
    assert times("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO", 1) == ["Mon 29 Feb 44 09:00"]
    with pytest.raises(InvalidRecurrenceRule, match="say what is rare with FREQ=YEARLY"):
        RecurrenceRule.parse("FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=29").check_from(
            START.replace(year=2024, month=3)
        )


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """Every time that dateutil comes up with, and where it is told to start."""
    looked_at: list[datetime] = []

    def counted(text: str, dtstart: datetime) -> Iterator[datetime]:
        looked_at.append(dtstart)
        for time in rrulestr(text, dtstart=dtstart):
            looked_at.append(time)
            yield time

    monkeypatch.setattr(recurrence, "rrulestr", counted)
    return looked_at


@pytest.mark.parametrize("text", NEVER)
def test_a_rule_that_never_fires_is_refused_and_looked_at_no_longer_than_its_budget(
    looked_at: list[datetime], text: str
) -> None:
    with pytest.raises(
        InvalidRecurrenceRule, match="never fires, or not in a long time, since hardly any time"
    ):
        RecurrenceRule.parse(text).check_from(START)
    assert len(looked_at) <= CANDIDATES_MAX + 1
    # What dateutil itself passes over it looks at until the calendar's end, one cycle away at the most.
    assert all(time.year > 9_599 for time in looked_at)


@pytest.mark.parametrize("text", [text for text in NEVER if "BYSETPOS" in text and "BYMONTH" not in text])
def test_a_position_that_no_period_has_is_looked_for_nowhere(text: str) -> None:
    with pytest.raises(InvalidRecurrenceRule, match="never fires"):
        RecurrenceRule.parse(text)


@pytest.mark.parametrize("frequency", ["HOURLY", "DAILY"])
def test_dateutil_is_never_left_to_pass_over_days_or_hours(looked_at: list[datetime], frequency: str) -> None:
    rule = RecurrenceRule.parse(f"FREQ={frequency};BYMONTH=3;BYMONTHDAY=-30,2;BYDAY=MO,TU,WE,TH,FR;BYHOUR=9")
    assert next(rule.local_times(START + timedelta(days=1))) == START.replace(year=2027)
    assert len(looked_at) == 1 + 365


@pytest.mark.parametrize(
    ("text", "looked_at_most"),
    [
        ("FREQ=HOURLY;INTERVAL=7;BYDAY=MO", 7 * 24 // 7 + 2),
        ("FREQ=DAILY;INTERVAL=3;BYHOUR=8,20;BYSETPOS=-1", 3),
        ("FREQ=DAILY;COUNT=10000", 3_655),
    ],
)
def test_the_past_is_gone_through_where_it_is_counted_alone(
    looked_at: list[datetime], text: str, looked_at_most: int
) -> None:
    rule, moment = RecurrenceRule.parse(text), START + timedelta(days=3_650, hours=5)
    found = next(time for time in rule.local_times(START, moment) if time >= moment)
    assert len(looked_at) <= looked_at_most
    assert found == next(time for time in rule.local_times(START) if time >= moment)


def test_what_fits_gives_the_search_its_budget_anew() -> None:
    rule = RecurrenceRule.parse("FREQ=HOURLY;BYMONTH=3;BYMONTHDAY=2;BYHOUR=9")
    # One of the days of a year fits.
    years = CANDIDATES_MAX // 365 + 2
    assert len(list(islice(rule.local_times(START), years))) == years


@pytest.mark.parametrize(
    "text", ["FREQ=HOURLY", "FREQ=DAILY;BYHOUR=8,9;BYMINUTE=59", "FREQ=YEARLY;INTERVAL=1000"]
)
def test_a_rule_without_an_end_is_served(text: str) -> None:
    RecurrenceRule.parse(text).check_from(START)
