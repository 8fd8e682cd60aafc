"""Strict conversion of scalars: a value is written only as the type its field declares (K8, C7).

A lenient converter would store `5` in a field declared `str`, and the relay would find out when nobody
can mend it any more.
"""

from __future__ import annotations

import binascii
import math
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from outbox_kernel.kernel.wire.types import is_subclass

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from cattrs import Converter


class Misfit(ValueError):
    """Says why a value is refused without quoting it, so that it may be said of a secret too (K11)."""


def refusal(value: object, expected: str) -> Misfit:
    """Return the error for a value of another type than the declared one."""
    return Misfit(f"holds {type(value).__name__} where {expected} is declared")


def str_out(value: Any) -> str:
    """Return text that PostgreSQL can store."""
    if not isinstance(value, str):
        raise refusal(value, "str")
    if "\0" in value:
        raise Misfit("holds a NUL character, which PostgreSQL cannot store; remove it")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Misfit(
                "holds a lone surrogate, which is no Unicode text; decode the input properly"
            ) from None
    return value


def _int_out(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise refusal(value, "int")
    return value


def float_out(value: Any) -> float:
    """Return a number that JSON can carry."""
    if not isinstance(value, float | int) or isinstance(value, bool):
        raise refusal(value, "float")
    if isinstance(value, int):
        return _float_of(value)
    if not math.isfinite(value):
        raise Misfit(f"holds {value!r}, which JSON cannot carry; use None or leave the event out")
    return value


def _float_of(value: int) -> float:
    try:
        equal = float(value)
    except OverflowError:
        equal = math.inf
    if equal != value:
        raise Misfit("holds an int that no float equals; declare int or Decimal")
    return equal


def _bool_out(value: Any) -> bool:
    if not isinstance(value, bool):
        raise refusal(value, "bool")
    return value


def _uuid_out(value: Any) -> str:
    if not isinstance(value, UUID):
        raise refusal(value, "UUID")
    return str(value)


def offset_of(moment: datetime) -> timedelta:
    """Return the offset from UTC, or raise Misfit for a naive datetime."""
    offset = moment.utcoffset()
    if offset is None:
        raise Misfit("holds a naive datetime; give it a time zone, for example datetime.now(UTC)")
    return offset


def _datetime_out(value: Any) -> str:
    if not isinstance(value, datetime):
        raise refusal(value, "datetime")
    if offset_of(value).microseconds:
        raise Misfit("holds an offset from UTC with a fraction of a second, which Python cannot read back")
    return value.isoformat()


def _date_out(value: Any) -> str:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise refusal(value, "date")
    return value.isoformat()


def _decimal_out(value: Any) -> str:
    if not isinstance(value, Decimal):
        raise refusal(value, "Decimal")
    if not value.is_finite():
        # A NaN may carry digits of its own.
        shown = "NaN" if value.is_nan() else "Infinity"
        raise Misfit(f"holds the Decimal {shown}, which equals nothing when it comes back; use None")
    return str(value)


def _bytes_out(value: Any) -> str:
    if not isinstance(value, bytes):
        raise refusal(value, "bytes")
    return binascii.b2a_base64(value, newline=False).decode()


def _bytes_in(value: Any, _: type) -> bytes:
    if not isinstance(value, str):
        raise refusal(value, "bytes")
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        raise Misfit("holds text that is no base64") from None


def _exactly(expected: type) -> Callable[[Any, type], Any]:
    def structure(value: Any, declared: type) -> Any:
        if type(value) is not expected:
            raise refusal(value, expected.__name__)
        if declared is expected:
            return value
        # cattrs sends an Enum that is a str or an int here as well.
        return declared(value) if is_subclass(declared, Enum) else value

    return structure


def _float_in(value: Any, _: type) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise refusal(value, "float")
    return float(value)


def _parsed(parse: Callable[[str], Any]) -> Callable[[Any, type], Any]:
    def structure(value: Any, declared: type) -> Any:
        if not isinstance(value, str):
            raise refusal(value, declared.__name__)
        return parse(value)

    return structure


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.utcoffset() is None:
        raise Misfit("holds a moment without its offset from UTC")
    return moment


def _finite(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise Misfit("holds a Decimal that is no number")
    return number


def register_scalars(converter: Converter) -> None:
    """Teach a converter the scalars of the wire."""
    for cls, out, structure in (
        (str, str_out, _exactly(str)),
        (int, _int_out, _exactly(int)),
        (bool, _bool_out, _exactly(bool)),
        (float, float_out, _float_in),
        (UUID, _uuid_out, _parsed(UUID)),
        (datetime, _datetime_out, _parsed(_moment)),
        (date, _date_out, _parsed(date.fromisoformat)),
        (Decimal, _decimal_out, _parsed(_finite)),
        (bytes, _bytes_out, _bytes_in),
    ):
        converter.register_unstructure_hook(cls, out)
        converter.register_structure_hook(cls, structure)
