"""A timedelta as ISO 8601 writes a duration, exact to the microsecond: `P1DT2H`, `-PT0.5S`, `PT0S` (K8)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from outbox_kernel.kernel.wire.scalars import Misfit, refusal

_ISO = re.compile(
    r"(?P<sign>-?)P(?=\d|T\d)(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<fraction>\d{1,6}))?S)?)?",
    re.ASCII,
)
_HOUR, _MINUTE = 3600, 60


def duration_out(value: Any) -> str:
    """Write a timedelta."""
    # One of a subclass may count days, or parts of a microsecond, in a way of its own.
    if type(value) is not timedelta:
        raise refusal(value, "timedelta")
    length = abs(value)
    hours, rest = divmod(length.seconds, _HOUR)
    minutes, seconds = divmod(rest, _MINUTE)
    fraction = f".{length.microseconds:06}".rstrip("0") if length.microseconds else ""
    clock = "".join(
        (
            f"{hours}H" if hours else "",
            f"{minutes}M" if minutes else "",
            f"{seconds}{fraction}S" if seconds or fraction else "",
        )
    )
    days = f"{length.days}D" if length.days else ""
    sign = "-" if value < timedelta() else ""
    return f"{sign}P{days}" + (f"T{clock}" if clock else "" if days else "T0S")


def duration_in(value: Any, _: Any) -> timedelta:
    """Restore a timedelta."""
    if not isinstance(value, str):
        raise refusal(value, "timedelta")
    written = _ISO.fullmatch(value)
    if written is None:
        raise Misfit("holds no ISO 8601 duration of days, hours, minutes and seconds")
    parts = {name: int(written[name] or 0) for name in ("days", "hours", "minutes", "seconds")}
    microseconds = int((written["fraction"] or "").ljust(6, "0"))
    try:
        length = timedelta(**parts, microseconds=microseconds)
    except OverflowError:
        raise Misfit("holds a duration of more days than Python counts") from None
    return -length if written["sign"] else length
