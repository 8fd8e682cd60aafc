"""The next moment of a schedule, against a model that writes down every local time there is (X4)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import attrs
from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as st

from contexts.messaging.domain import InvalidSchedule, RecurrenceRule, Schedule

# When clocks are turned: by an hour, by half of one on Lord Howe, by two at Troll, and in Kathmandu never.
TURNS = (
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Antarctica/Troll", "2026-03-29"),
    ("Antarctica/Troll", "2026-10-25"),
    ("Asia/Kathmandu", "2026-03-29"),
)
ZONES = sorted({zone for zone, _ in TURNS})
STEPS = {"HOURLY": timedelta(hours=1), "DAILY": timedelta(days=1), "WEEKLY": timedelta(weeks=1)}
DAYS = 12

SHARE = settings(max_examples=settings().max_examples // 2)


@attrs.frozen
class Recurring:
    schedule: Schedule
    zone: ZoneInfo
    start: datetime
    step: timedelta
    count: int | None
    turn: datetime

    def moments(self) -> list[datetime]:
        """Every moment of the first days, by the rule that Python has for times that are skipped or repeated."""
        number = min(self.count or 10_000, (timedelta(days=DAYS) + self.step) // self.step + 1)
        times = (self.start + index * self.step for index in range(number))
        found = {time.replace(tzinfo=self.zone).astimezone(UTC) for time in times}
        # A start at the second of two equal times is that one.
        start = self.schedule.scheduled_at
        return sorted({start, *(moment for moment in found if moment > start)})


@st.composite
def recurring(draw: st.DrawFn) -> Recurring:
    name, turn = draw(st.sampled_from(TURNS))
    zone = ZoneInfo(name)
    frequency = draw(st.sampled_from(sorted(STEPS)))
    interval, count = draw(st.integers(1, 5)), draw(st.none() | st.integers(1, 30))
    # Clocks are turned between one and three.
    midnight = datetime.fromisoformat(turn)
    quarters, days = draw(st.integers(4, 12)), draw(st.integers(-DAYS // 2, 1))
    written = midnight + timedelta(days=days, minutes=15 * quarters)
    # A recurrence starts at a time that there is: what is skipped is taken for what it becomes.
    scheduled_at = written.replace(tzinfo=zone).astimezone(UTC)
    rule = f"FREQ={frequency};INTERVAL={interval}" + ("" if count is None else f";COUNT={count}")
    schedule = Schedule.of(scheduled_at, zone.key, rule, scheduled_at)
    start = scheduled_at.astimezone(zone).replace(tzinfo=None, fold=0)
    turning = midnight.replace(tzinfo=zone).astimezone(UTC)
    return Recurring(schedule, zone, start, interval * STEPS[frequency], count, turning)


def moments_about(found: Recurring) -> st.SearchStrategy[datetime]:
    away = st.one_of(
        st.sampled_from([timedelta(), timedelta(seconds=1), timedelta(seconds=-1)]),
        st.integers(-2 * 4, 2 * 4).map(lambda quarters: timedelta(minutes=15 * quarters)),
    )
    within = [at for at in found.moments() if at < found.schedule.scheduled_at + timedelta(days=DAYS)]
    return st.builds(lambda moment, step: moment + step, st.sampled_from(within), away)


@given(data=st.data())
def test_the_next_moment_is_the_first_in_the_future(data: st.DataObject) -> None:
    found = data.draw(recurring())
    moments, drawn = found.moments(), data.draw(moments_about(found))
    # Every quarter of an hour of the night in which the clocks are turned.
    night = [found.turn + timedelta(minutes=15 * quarter) for quarter in range(7 * 4)]
    for moment in (drawn, *night):
        assert found.schedule.next_after(moment) == next((at for at in moments if at > moment), None)


@SHARE
@given(data=st.data())
def test_a_later_look_never_finds_an_earlier_moment(data: st.DataObject) -> None:
    found = data.draw(recurring())
    earlier, later = sorted([data.draw(moments_about(found)), data.draw(moments_about(found))])
    first, second = found.schedule.next_after(earlier), found.schedule.next_after(later)
    if first is None:
        assert second is None
    elif second is not None:
        assert earlier < first <= second


@SHARE
@given(data=st.data(), hour=st.integers(0, 23), minute=st.sampled_from([0, 15, 30, 59]))
def test_the_local_time_is_kept_on_every_day_that_has_it(data: st.DataObject, hour: int, minute: int) -> None:
    found = data.draw(recurring())
    moment = data.draw(moments_about(found))
    schedule = attrs.evolve(
        found.schedule, recurrence_rule=f"FREQ=DAILY;BYHOUR={hour};BYMINUTE={minute};BYSECOND=0"
    )
    after = schedule.next_after(moment)
    assert after is not None
    shown = after.astimezone(found.zone)
    written = shown.replace(hour=hour, minute=minute, fold=0)
    skipped = written.astimezone(UTC).astimezone(found.zone).replace(tzinfo=None) != written.replace(
        tzinfo=None
    )
    assert skipped or shown == written


def _listed(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


numbers = st.integers(-60, 400).map(str)
PARTS = st.one_of(
    st.tuples(st.sampled_from(["FREQ"]), st.sampled_from([*STEPS, "MONTHLY", "YEARLY", "MINUTELY", ""])),
    st.tuples(
        st.sampled_from(
            [
                "INTERVAL",
                "COUNT",
                "BYSECOND",
                "BYMINUTE",
                "BYHOUR",
                "BYMONTHDAY",
                "BYYEARDAY",
                "BYWEEKNO",
                "BYMONTH",
                "BYSETPOS",
            ]
        ),
        st.lists(numbers, min_size=1, max_size=3).map(",".join)
        | st.lists(st.integers(-60, 60).map(str), max_size=100, unique=True).map(",".join),
    ),
    st.tuples(st.just("BYHOUR"), st.lists(st.integers(0, 23), min_size=1, unique=True).map(_listed)),
    st.tuples(st.just("BYSETPOS"), st.lists(st.integers(1, 31), min_size=1, max_size=14).map(_listed)),
    st.tuples(st.just("BYMONTHDAY"), st.lists(st.integers(1, 31), min_size=1, unique=True).map(_listed)),
    st.tuples(st.just("BYDAY"), st.sampled_from(["MO", "TU,TH", "2MO", "-1FR", "53SU", "XX"])),
    st.tuples(st.just("UNTIL"), st.sampled_from(["20260401T000000Z", "20991231T235959Z", "20260401", "x"])),
    st.tuples(st.just("WKST"), st.sampled_from(["SU", "MO"])),
)
RULES = st.one_of(
    st.text(max_size=30),
    st.lists(PARTS, max_size=4).map(
        lambda parts: ";".join(f"{name}={value}" for name, value in [("FREQ", "YEARLY"), *parts][-4:])
    ),
    st.builds(
        lambda frequency, parts: ";".join(
            [f"FREQ={frequency}", *(f"{name}={value}" for name, value in parts)]
        ),
        st.sampled_from([*STEPS, "MONTHLY", "YEARLY"]),
        st.lists(PARTS, max_size=3),
    ),
)


@SHARE
@given(rule=RULES, zone=st.sampled_from(ZONES))
def test_every_text_is_a_rule_with_a_next_moment_or_refused(rule: str, zone: str) -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    try:
        schedule = Schedule.of(now - timedelta(days=1), zone, rule, now)
    except InvalidSchedule:
        return
    found = schedule.next_after(now)
    assert found is None or found > now
    assert schedule == Schedule.of(schedule.scheduled_at, zone, schedule.recurrence_rule, now)


LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "BYMONTH": st.lists(st.integers(1, 12), min_size=1, max_size=6, unique=True),
        "BYMONTHDAY": st.lists(
            st.integers(1, 31) | st.integers(-31, -1), min_size=1, max_size=20, unique=True
        ),
        "BYDAY": st.lists(st.sampled_from(["MO", "TU", "WE", "TH", "FR"]), min_size=1, unique=True),
        "BYHOUR": st.lists(st.integers(0, 23), min_size=1, max_size=5, unique=True),
        "BYYEARDAY": st.lists(
            st.integers(1, 366) | st.integers(-366, -1), min_size=1, max_size=300, unique=True
        ),
    },
)


@SHARE
@given(
    limits=LIMITS,
    frequency=st.sampled_from(["HOURLY", "DAILY"]),
    interval=st.integers(1, 30),
    # Near the calendar's end, since dateutil looks for a next time until there.
    start=st.datetimes(datetime(9996, 1, 1), datetime(9998, 1, 1)),  # noqa: DTZ001 - local times have no zone
)
def test_days_and_hours_are_left_out_as_dateutil_does_it(
    limits: dict[str, list[int] | list[str]], frequency: str, interval: int, start: datetime
) -> None:
    start = start.replace(microsecond=0)
    if frequency == "DAILY":
        limits.pop("BYYEARDAY", None)  # which the RFC does not have there
    parts = {name: ",".join(map(str, values)) for name, values in limits.items()}
    text = ";".join(f"{name}={value}" for name, value in {"INTERVAL": str(interval), **parts}.items())
    if len(text) > 480:
        return
    soon = start + timedelta(days=370)
    found = takewhile(
        lambda time: time <= soon, RecurrenceRule.parse(f"FREQ={frequency};{text}").local_times(start)
    )
    ended = f"FREQ={frequency};{text};UNTIL={soon:%Y%m%dT%H%M%S}"
    assert list(islice(found, 50)) == list(islice(_expanded(ended, start), 50))


def _expanded(text: str, start: datetime) -> Iterator[datetime]:
    try:
        yield from rrulestr(text, dtstart=start)
    except ValueError:  # as it says that no hour fits
        return
