"""Recurrence rules as RFC 5545 writes them (section 3.3.10), checked and expanded by dateutil.

dateutil takes more than the RFC allows, and less care: an interval of nothing never ends, an unknown combination is
passed over in silence, and a rule of one line can keep it busy for minutes. So what it is handed has been read part by
part before, and is such that it has never far to look.
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice

import attrs
from dateutil.rrule import rrulestr

from contexts.messaging.domain.errors import InvalidRecurrenceRule

RULE_CHARACTERS_MAX = 500
INTERVAL_MAX = 1_000
COUNT_MAX = 10_000
SET_POSITIONS_MAX = 12
SPACING_SECONDS_MIN = 3_600
# How many times in a row are passed over on the way to one that fits: over a year of hours, 27 years of days.
CANDIDATES_MAX = 10_000

_FREQUENCIES = ("HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_DAY_NAMES = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_DAY = f"(?:{'|'.join(_DAY_NAMES)})"
_PLAIN_DAYS = re.compile(f"{_DAY}(?:,{_DAY})*")
_DAYS = re.compile(f"(?:[+-]?[1-9][0-9]?)?{_DAY}(?:,(?:[+-]?[1-9][0-9]?)?{_DAY})*")
_UNTIL = re.compile(r"\d{8}T\d{6}Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,6}", re.ASCII)
_AS_IN = "write it like FREQ=WEEKLY;BYDAY=MO,TH"

# The lowest and the highest number, and whether it may be negative, which counts from the end.
_NUMBERS: Mapping[str, tuple[int, int, bool]] = {
    "INTERVAL": (1, INTERVAL_MAX, False),
    "COUNT": (1, COUNT_MAX, False),
    "BYSECOND": (0, 59, False),
    "BYMINUTE": (0, 59, False),
    "BYHOUR": (0, 23, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYMONTH": (1, 12, False),
    "BYSETPOS": (1, 366, True),
}
_SINGLE = ("INTERVAL", "COUNT")
# With one minute and one second, whatever fires twice does so an hour apart.
_ONCE_AN_HOUR = ("BYMINUTE", "BYSECOND")

# What the RFC forbids; and BYSETPOS of an hour, which has one moment to choose from at the most.
_NOT_WITHIN: Mapping[str, tuple[str, ...]] = {
    "BYWEEKNO": ("HOURLY", "DAILY", "WEEKLY", "MONTHLY"),
    "BYYEARDAY": ("DAILY", "WEEKLY", "MONTHLY"),
    "BYMONTHDAY": ("WEEKLY",),
    "BYSETPOS": ("HOURLY",),
}

# dateutil looks for a next time until the year 9999. The calendar repeats itself after 400 years, weekdays included:
# near its end the search is a matter of milliseconds, where it goes by weeks, months or years.
_CYCLE_YEARS, _CYCLE_DAYS, _LAST_YEAR = 400, 146_097, 9_999

# Where it goes by days or hours these parts only leave some out, so that is done here, where it can be counted.
_FINE = {"HOURLY": timedelta(hours=1), "DAILY": timedelta(days=1)}
_SAID_OF_DAYS: Mapping[str, Callable[[datetime], set[int | str]]] = {
    "BYMONTH": lambda time: {time.month},
    "BYMONTHDAY": lambda time: _from_both_ends(time.day, monthrange(time.year, time.month)[1]),
    "BYYEARDAY": lambda time: _from_both_ends(time.timetuple().tm_yday, 365 + isleap(time.year)),
    "BYDAY": lambda time: {_DAY_NAMES[time.weekday()]},
}

# How many days a period can have in the set that BYSETPOS chooses from, if not as many as BYDAY names.
_DAYS_AT_MOST: Mapping[str, int] = {"DAILY": 1, "MONTHLY": 31, "YEARLY": 366}


@attrs.frozen
class RecurrenceRule:
    """The local times at which something happens again, from a start on."""

    text: str
    count: int | None = attrs.field(repr=False)
    until: datetime | None = attrs.field(repr=False)
    _endless: str = attrs.field(repr=False)
    _days: Mapping[str, frozenset[int | str]] = attrs.field(repr=False, eq=False)
    _step: timedelta | None = attrs.field(repr=False)

    @classmethod
    def parse(cls, written: str) -> RecurrenceRule:
        """Read the text of a rule, or raise InvalidRecurrenceRule."""
        parts = _parts_of(written)
        _check_frequency(parts)
        for name, value in parts.items():
            _check_part(name, value, parts["FREQ"])
        _check_positions(parts)
        if "COUNT" in parts and "UNTIL" in parts:
            raise InvalidRecurrenceRule("the recurrence rule has both COUNT and UNTIL: leave one of them out")
        count, until = parts.get("COUNT"), parts.get("UNTIL")
        unit = _FINE.get(parts["FREQ"])
        days = _SAID_OF_DAYS.keys() & parts.keys() if unit else set()
        return cls(
            _text_of(parts),
            None if count is None else int(count),
            None if until is None else _until(until),
            _text_of({name: value for name, value in parts.items() if name not in {"COUNT", "UNTIL", *days}}),
            {name: frozenset(_values(parts[name])) for name in days},
            unit and unit * int(parts.get("INTERVAL", "1")),
        )

    def local_times(self, start: datetime, earliest: datetime | None = None) -> Iterator[datetime]:
        """Yield local times from `start` on, up to COUNT; UNTIL is a moment, and left to whoever has a zone.

        Those before `earliest` may be left out. It ends where none of the next CANDIDATES_MAX fits.
        """
        if earliest is not None and earliest > start and self._step is not None and self.count is None:
            # The past need not be gone through: by hours or days, it is the same from every step on.
            start += (earliest - start) // self._step * self._step
        return islice(self._fitting(start), self.count)

    def _fitting(self, start: datetime) -> Iterator[datetime]:
        passed_over = 0
        for time in self._candidates(start):
            if all(_SAID_OF_DAYS[name](time) & days for name, days in self._days.items()):
                passed_over = 0
                yield time
            elif (passed_over := passed_over + 1) == CANDIDATES_MAX:
                return

    def _candidates(self, start: datetime) -> Iterator[datetime]:
        cycles = (_LAST_YEAR - start.year) // _CYCLE_YEARS
        ahead = timedelta(days=cycles * _CYCLE_DAYS)
        try:
            for time in rrulestr(self._endless, dtstart=start + ahead):
                yield time - ahead
        except (ValueError, IndexError):
            # No time is left: no hour fits, a month has no such week, or dateutil's calendar is at its end.
            return

    def check_from(self, start: datetime) -> None:
        """Raise InvalidRecurrenceRule if it never fires."""
        if next(self.local_times(start), None) is None:
            raise _never_fires()


def _parts_of(written: str) -> dict[str, str]:
    text = written.strip().upper().removeprefix("RRULE:")
    if len(text) > RULE_CHARACTERS_MAX:
        raise InvalidRecurrenceRule(
            f"the recurrence rule has {len(text):,} characters, and {RULE_CHARACTERS_MAX} are the limit: shorten it"
        )
    if re.search("DTSTART|TZID|RDATE|EXDATE|EXRULE|RRULE", text):
        raise InvalidRecurrenceRule(
            "the recurrence rule has more than the rule in it: give the one RRULE alone, without DTSTART, TZID and "
            "dates, since scheduled_at and timezone say when it starts"
        )
    parts: dict[str, str] = {}
    for part in text.split(";"):
        name, equals, value = part.partition("=")
        if not (name and equals and value) or name in parts:
            raise InvalidRecurrenceRule(f"the recurrence rule cannot be read at {part[:40]!r}: {_AS_IN}")
        parts[name] = value
    return parts


def _check_frequency(parts: Mapping[str, str]) -> None:
    frequency = parts.get("FREQ")
    if frequency in ("SECONDLY", "MINUTELY"):
        raise _too_frequent()
    if frequency not in _FREQUENCIES:
        raise InvalidRecurrenceRule(
            f"the recurrence rule has no FREQ that is served: take one of {', '.join(_FREQUENCIES)}"
        )


def _check_part(name: str, value: str, frequency: str) -> None:
    if frequency in _NOT_WITHIN.get(name, ()):
        raise InvalidRecurrenceRule(
            f"the recurrence rule has {name}, which means nothing with FREQ={frequency}: leave it out"
        )
    if name in _NUMBERS:
        _check_numbers(name, value)
        _check_repeated(name, value)
    elif name == "BYDAY":
        _check_days(value, frequency)
    elif name == "WKST":
        _check_form(name, value, re.compile(_DAY), "a day, like MO")
    elif name == "UNTIL":
        _until(value)
    elif name != "FREQ":
        raise InvalidRecurrenceRule(f"the recurrence rule has no part named {name[:40]!r}: {_AS_IN}")


def _check_numbers(name: str, value: str) -> None:
    lowest, highest, signed = _NUMBERS[name]
    written = value.split(",")
    fits = all(
        _NUMBER.fullmatch(each) and lowest <= (abs(int(each)) if signed else int(each)) <= highest
        for each in written
    )
    if not fits or (name in _SINGLE and len(written) > 1):
        also = f", or -{highest} to -{lowest}" if signed else ""
        raise InvalidRecurrenceRule(
            f"the recurrence rule has {name}={value[:40]}: give {lowest} to {highest:,}{also}"
        )


def _check_repeated(name: str, value: str) -> None:
    values = _values(value)
    if len(set(values)) < len(values):
        raise InvalidRecurrenceRule(
            f"the recurrence rule has {name}={value[:40]}, where a value comes twice: write each once"
        )
    if name in _ONCE_AN_HOUR and len(values) > 1:
        raise _too_frequent()


def _check_positions(parts: Mapping[str, str]) -> None:
    if "BYSETPOS" not in parts:
        return
    positions = [abs(int(each)) for each in parts["BYSETPOS"].split(",")]
    if len(positions) > SET_POSITIONS_MAX:
        raise InvalidRecurrenceRule(
            f"the recurrence rule has {len(positions)} values of BYSETPOS, and {SET_POSITIONS_MAX} are the limit: "
            "give fewer"
        )
    days = _DAYS_AT_MOST.get(parts["FREQ"]) or len(_values(parts.get("BYDAY", "")))
    if max(positions) > days * len(_values(parts.get("BYHOUR", ""))):
        raise _never_fires()


def _check_days(value: str, frequency: str) -> None:
    # Which Monday, is asked of a month or a year; dateutil would take any.
    if frequency in ("MONTHLY", "YEARLY"):
        _check_form("BYDAY", value, _DAYS, "days, like MO,TH or 2MO,-1FR")
    else:
        _check_form("BYDAY", value, _PLAIN_DAYS, "days, like MO,TH")
    _check_repeated("BYDAY", value)


def _check_form(name: str, value: str, form: re.Pattern[str], like: str) -> None:
    if not form.fullmatch(value):
        raise InvalidRecurrenceRule(f"the recurrence rule has {name}={value[:40]}: give {like}")


def _until(value: str) -> datetime:
    try:
        if _UNTIL.fullmatch(value):
            return datetime.strptime(value, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        pass  # 30 February, or hour 24
    raise InvalidRecurrenceRule(
        f"the recurrence rule has UNTIL={value[:40]}: give a moment in UTC, like 20301231T225959Z"
    )


def _values(written: str) -> list[int | str]:
    """Read a list; one value of it may be written in several ways, like 5, 05 and +5."""
    return [int(each) if _NUMBER.fullmatch(each) else each for each in written.split(",")]


def _from_both_ends(number: int, of: int) -> set[int | str]:
    return {number, number - of - 1}


def _text_of(parts: Mapping[str, str]) -> str:
    return ";".join(f"{name}={value}" for name, value in parts.items())


def _too_frequent() -> InvalidRecurrenceRule:
    return InvalidRecurrenceRule(
        f"the recurrence rule fires more than once in {SPACING_SECONDS_MIN // 60} minutes, which is too often: give "
        "one BYMINUTE and BYSECOND at the most, and FREQ=HOURLY or slower"
    )


def _never_fires() -> InvalidRecurrenceRule:
    return InvalidRecurrenceRule(
        "the recurrence rule never fires, or not in a long time, since hardly any time fits all of its parts: change "
        "or leave out one, or say what is rare with FREQ=YEARLY"
    )
