"""When a message is sent: a moment, or a recurrence in the message's own time zone.

The wall clock leads. A message of 09:00 goes out at 09:00 local time, whatever the zone has done in between. Where a
clock is put forward, a local time that it skips is read with the offset from before: 02:30 becomes 03:30. Where it is
put back, a local time that comes twice is the first of the two. So RFC 5545 has it, in section 3.3.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from heapq import heappop, heappush
from itertools import dropwhile, takewhile
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

import attrs

from contexts.messaging.domain.errors import InvalidSchedule
from contexts.messaging.domain.recurrence import RecurrenceRule

YEARS_AHEAD_MAX = 10
YEARS_BACK_MAX = 1

# No clock was ever put forward by more.
_SKIPPED_MAX = timedelta(days=1)


class Unchanged(Enum):
    """Stands for what stays as it is, where None means something."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED


@attrs.frozen
class Schedule:
    """When a message is sent; what is in it has been checked, or was stored."""

    scheduled_at: datetime
    timezone: str
    recurrence_rule: str | None = None

    @classmethod
    def of(
        cls, scheduled_at: datetime, timezone: str, recurrence_rule: str | None, now: datetime
    ) -> Schedule:
        """Check and normalise what was written, or raise InvalidSchedule.

        A `scheduled_at` without an offset is local time in `timezone`. It counts to the second.
        """
        _check_year(scheduled_at, now)
        return cls._checked(scheduled_at, timezone, recurrence_rule)

    @classmethod
    def _checked(cls, scheduled_at: datetime, timezone: str, recurrence_rule: str | None) -> Schedule:
        rule = None if recurrence_rule is None else RecurrenceRule.parse(recurrence_rule)
        zone = _zone(timezone)
        moment = _moment(scheduled_at.replace(microsecond=0), zone)
        if rule is not None:
            _check_start(scheduled_at, moment, zone)
            rule.check_from(_local(moment, zone))
        return cls(moment, timezone, None if rule is None else rule.text)

    def changed(
        self,
        scheduled_at: datetime | Unchanged,
        timezone: str | Unchanged,
        recurrence_rule: str | Unchanged | None,
        now: datetime,
    ) -> Schedule:
        """Return the schedule that results, this one if nothing is to change; the moment stays, whatever its zone."""
        wanted = Schedule(
            self.scheduled_at if scheduled_at is UNCHANGED else scheduled_at,
            self.timezone if timezone is UNCHANGED else timezone,
            self.recurrence_rule if recurrence_rule is UNCHANGED else recurrence_rule,
        )
        if wanted == self:
            return self
        if wanted.scheduled_at != self.scheduled_at:
            _check_year(wanted.scheduled_at, now)  # of what was stored long ago nothing is asked any more
        return self._checked(wanted.scheduled_at, wanted.timezone, wanted.recurrence_rule)

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first moment after this one, in UTC, or None if there is none."""
        return next((at for at in self._moments_about(moment) if at > moment), None)

    def _moments_about(self, moment: datetime) -> Iterator[datetime]:
        """Yield, in order, every moment after this one; some before it may come first."""
        if self.recurrence_rule is None:
            return iter([self.scheduled_at])
        rule, zone = RecurrenceRule.parse(self.recurrence_rule), _zone(self.timezone)
        start, earliest = _local(self.scheduled_at, zone), _local(moment, zone) - _SKIPPED_MAX
        times = dropwhile(lambda time: time < earliest, rule.local_times(start, earliest))
        # The start is a moment, also where its local time comes twice.
        moments = _in_order(times, zone, {start: self.scheduled_at})
        return takewhile(lambda at: rule.until is None or at <= rule.until, moments)


def _in_order(
    times: Iterator[datetime], zone: ZoneInfo, known: dict[datetime, datetime]
) -> Iterator[datetime]:
    """Yield the moments of ascending local times, ascending: what a clock skips is made up for afterwards."""
    waiting: list[datetime] = []
    for time in times:
        while waiting and _local(waiting[0], zone) < time:
            yield heappop(waiting)
        heappush(waiting, known.get(time) or _moment(time, zone))
    while waiting:
        yield heappop(waiting)


def _moment(time: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment in UTC; the zone's own rule for what is skipped or repeated is the RFC's."""
    return (time if time.utcoffset() is not None else time.replace(tzinfo=zone)).astimezone(UTC)


def _local(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def _zone(name: str) -> ZoneInfo:
    if name not in _zones():
        raise InvalidSchedule(
            f"there is no time zone {name[:40]!r}: take a name of the IANA database, like Europe/Berlin or UTC"
        )
    return ZoneInfo(name)


@cache
def _zones() -> frozenset[str]:
    # A copy of one machine's own, and one for machines that were never told.
    return frozenset(available_timezones()) - {"localtime", "Factory"}


def _check_year(scheduled_at: datetime, now: datetime) -> None:
    if (refusal := refusal_of_year(scheduled_at, now)) is not None:
        raise InvalidSchedule(refusal)


def refusal_of_year(scheduled_at: datetime, now: datetime) -> str | None:
    """Say what is wrong with a year that nobody can mean, and that a database or a calendar may not have."""
    first, last = now.year - YEARS_BACK_MAX, now.year + YEARS_AHEAD_MAX
    if first <= scheduled_at.year <= last:
        return None
    return f"scheduled_at is in the year {scheduled_at.year}: give one from {first} to {last}"


def _check_start(written: datetime, moment: datetime, zone: ZoneInfo) -> None:
    # Taken as 03:30, it would go on at 03:30 for ever, which is not what was written.
    if written.utcoffset() is None and _local(moment, zone) != written.replace(microsecond=0, fold=0):
        raise InvalidSchedule(
            f"{written:%H:%M} is a time that the clocks of {zone.key} skip on {written:%Y-%m-%d}, so no recurrence "
            "can start then: start it a day later"
        )
