"""When a message is sent, by the clocks of its own zone (X4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from contexts.messaging.domain import InvalidRecurrenceRule, InvalidSchedule, Schedule

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BERLIN, NEW_YORK, LORD_HOWE, TROLL = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
)


def local(text: str) -> datetime:
    return datetime.fromisoformat(text)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def made(at: str, zone: str = BERLIN, rule: str | None = None, now: datetime = NOW) -> Schedule:
    return Schedule.of(local(at), zone, rule, now)


def following(schedule: Schedule, after: str, number: int = 3) -> list[str]:
    """The next moments as the clocks of the zone show them, with their offset."""
    zone, moment, shown = ZoneInfo(schedule.timezone), utc(after), []
    for _ in range(number):
        found = schedule.next_after(moment)
        if found is None:
            break
        shown.append(f"{found.astimezone(zone):%d %b %H:%M %z}")
        moment = found
    return shown


# --- one moment ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "zone", "moment"),
    [
        ("2026-05-17T09:00", BERLIN, "2026-05-17T07:00"),
        ("2026-05-17T09:00+00:00", BERLIN, "2026-05-17T09:00"),
        ("2026-05-17T09:00-05:00", BERLIN, "2026-05-17T14:00"),
        ("2026-05-17T09:00:30.999", NEW_YORK, "2026-05-17T13:00:30"),
        # Skipped when the clocks go forward: the offset from before counts.
        ("2026-03-29T02:30", BERLIN, "2026-03-29T01:30"),
        ("2026-10-04T02:15", LORD_HOWE, "2026-10-03T15:45"),
        # Twice when they go back: the first.
        ("2026-10-25T02:30", BERLIN, "2026-10-25T00:30"),
        ("2026-10-25T02:30+01:00", BERLIN, "2026-10-25T01:30"),
    ],
)
def test_a_moment_is_kept_in_utc_to_the_second(written: str, zone: str, moment: str) -> None:
    schedule = made(written, zone)
    assert schedule.scheduled_at == utc(moment)
    assert schedule.scheduled_at.tzinfo is UTC
    assert schedule.next_after(utc(moment) - timedelta(seconds=1)) == utc(moment)
    assert schedule.next_after(utc(moment)) is None


def test_a_skipped_time_goes_out_by_the_clock_an_hour_later() -> None:
    assert following(made("2026-03-29T02:30"), "2026-03-28T12:00") == ["29 Mar 03:30 +0200"]


# --- recurrence -----------------------------------------------------------------------------------------------


def test_nine_o_clock_stays_nine_o_clock_in_spring() -> None:
    schedule = made("2026-03-27T09:00", rule="FREQ=DAILY")
    assert following(schedule, "2026-03-28T00:00") == [
        "28 Mar 09:00 +0100",
        "29 Mar 09:00 +0200",
        "30 Mar 09:00 +0200",
    ]


def test_nine_o_clock_stays_nine_o_clock_in_autumn() -> None:
    schedule = made("2026-10-20T09:00", NEW_YORK, "FREQ=DAILY")
    assert following(schedule, "2026-10-31T00:00") == [
        "31 Oct 09:00 -0400",
        "01 Nov 09:00 -0500",
        "02 Nov 09:00 -0500",
    ]


def test_a_time_that_is_skipped_once_is_made_up_for_and_comes_back() -> None:
    schedule = made("2026-03-27T02:30", rule="FREQ=DAILY")
    assert following(schedule, "2026-03-28T00:00") == [
        "28 Mar 02:30 +0100",
        "29 Mar 03:30 +0200",
        "30 Mar 02:30 +0200",
    ]


def test_a_time_that_comes_twice_is_taken_once_and_the_first_time() -> None:
    schedule = made("2026-10-23T02:30", rule="FREQ=DAILY")
    assert following(schedule, "2026-10-24T00:00") == [
        "24 Oct 02:30 +0200",
        "25 Oct 02:30 +0200",
        "26 Oct 02:30 +0100",
    ]
    assert following(schedule, "2026-10-25T01:15", 1) == ["26 Oct 02:30 +0100"]


def test_a_start_at_the_second_of_two_equal_times_is_that_moment() -> None:
    schedule = made("2026-10-25T02:30+01:00", rule="FREQ=DAILY")
    assert following(schedule, "2026-10-24T00:00", 2) == ["25 Oct 02:30 +0100", "26 Oct 02:30 +0100"]


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        (BERLIN, "2026-03-28"),
        (BERLIN, "2026-10-24"),
        (LORD_HOWE, "2026-10-03"),
        (LORD_HOWE, "2026-04-04"),
        # Troll moves its clocks by two hours.
        (TROLL, "2026-03-28"),
        (TROLL, "2026-10-24"),
    ],
)
def test_hour_by_hour_each_moment_comes_once_and_in_order(zone: str, day: str) -> None:
    schedule, start = made(f"{day}T00:00", zone, "FREQ=HOURLY"), local(f"{day}T00:00")
    clock = ZoneInfo(zone)
    moments = {
        (start + timedelta(hours=hour)).replace(tzinfo=clock).astimezone(UTC) for hour in range(24 * 2)
    }
    expected = [f"{moment.astimezone(clock):%d %b %H:%M %z}" for moment in sorted(moments)[1:]]
    assert following(schedule, schedule.scheduled_at.isoformat()[:19], len(expected)) == expected


def test_two_hours_that_are_skipped_are_made_up_for_in_order() -> None:
    schedule = made("2026-03-01T00:00", TROLL, "FREQ=HOURLY")
    assert following(schedule, "2026-03-29T00:00", 4) == [
        "29 Mar 03:00 +0200",
        "29 Mar 04:00 +0200",
        "29 Mar 05:00 +0200",
        "29 Mar 06:00 +0200",
    ]


def test_what_is_made_up_for_waits_for_what_comes_before_it() -> None:
    # 02:30 becomes 04:30, which is after 03:30.
    schedule = made("2026-03-28T02:30", TROLL, "FREQ=DAILY;BYHOUR=2,3")
    assert following(schedule, "2026-03-28T12:00", 3) == [
        "29 Mar 03:30 +0200",
        "29 Mar 04:30 +0200",
        "30 Mar 02:30 +0200",
    ]


def test_what_is_made_up_for_is_ahead_though_its_local_time_is_past() -> None:
    # At 03:10 in Berlin the 02:30 of that day is still to come, at 03:30.
    schedule = made("2026-03-27T02:30", rule="FREQ=DAILY")
    assert following(schedule, "2026-03-29T01:10", 1) == ["29 Mar 03:30 +0200"]


def test_the_start_is_no_moment_if_the_rule_does_not_say_so() -> None:
    schedule = made("2026-03-04T09:00", rule="FREQ=WEEKLY;BYDAY=MO")
    assert following(schedule, "2026-03-01T12:00", 1) == ["09 Mar 09:00 +0100"]


def test_until_is_a_moment_and_included() -> None:
    schedule = made("2026-03-28T09:00", rule="FREQ=DAILY;UNTIL=20260330T070000Z")
    assert following(schedule, "2026-03-27T12:00", 9) == [
        "28 Mar 09:00 +0100",
        "29 Mar 09:00 +0200",
        "30 Mar 09:00 +0200",
    ]
    earlier = made("2026-03-28T09:00", rule="FREQ=DAILY;UNTIL=20260330T065959Z")
    assert len(following(earlier, "2026-03-27T12:00", 9)) == 2


def test_count_counts_from_the_start_on_and_not_from_now() -> None:
    schedule = made("2026-02-27T09:00", rule="FREQ=DAILY;COUNT=4")
    assert following(schedule, "2026-03-01T12:00", 9) == ["02 Mar 09:00 +0100"]


def test_a_recurrence_that_is_over_has_no_next_moment() -> None:
    schedule = made("2026-02-01T09:00", rule="FREQ=DAILY;COUNT=3")
    assert schedule.next_after(NOW) is None


def test_a_recurrence_of_long_ago_goes_on() -> None:
    schedule = Schedule(utc("2019-03-05T08:00"), BERLIN, "FREQ=WEEKLY")
    assert following(schedule, "2026-03-01T12:00", 1) == ["03 Mar 09:00 +0100"]


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "zone", ["", "Berlin", "Europe", "../etc/passwd", "localtime", "Europe/Berlin\0", "MARS" * 99]
)
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(
        InvalidSchedule, match=r"there is no time zone '.{0,45}: take a name of the IANA database"
    ):
        made("2026-05-17T09:00", zone)


@pytest.mark.parametrize("year", ["0001", "2024", "2037", "9999"])
def test_a_year_far_off_is_refused(year: str) -> None:
    with pytest.raises(InvalidSchedule, match=f"in the year {int(year)}: give one from 2025 to 2036"):
        made(f"{year}-01-01T00:00", "Pacific/Kiritimati")


def test_an_offset_does_not_lead_out_of_the_years() -> None:
    at = datetime(2036, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-23)))
    assert Schedule.of(at, BERLIN, None, NOW).scheduled_at == utc("2037-01-01T22:59")


def test_no_recurrence_starts_at_a_time_that_is_skipped() -> None:
    with pytest.raises(
        InvalidSchedule, match="02:30 is a time that the clocks of Europe/Berlin skip on 2026-03-29"
    ):
        made("2026-03-29T02:30", rule="FREQ=DAILY")


def test_a_rule_is_checked_from_its_start_on() -> None:
    with pytest.raises(InvalidRecurrenceRule, match="never fires"):
        made("2026-05-17T09:00", rule="FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30")
