"""Strict conversion of scalars: a value is written only as the type its field declares (K8, C7).

A lenient converter would store `5` in a field declared `str`, and the relay would find out when nobody
can mend it any more.
"""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable

    from cattrs import Converter


def refusal(value: object, expected: str) -> ValueError:
    """Return the error for a value of another type than the declared one."""
    return ValueError(f"holds {type(value).__name__} where {expected} is declared")


def _str_out(value: str) -> str:
    if not isinstance(value, str):
        raise refusal(value, "str")
    if "\0" in value:
        raise ValueError("holds a NUL character, which PostgreSQL cannot store; remove it")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(
                "holds a lone surrogate, which is no Unicode text; decode the input properly"
            ) from None
    return value


def _int_out(value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise refusal(value, "int")
    return value


def _float_out(value: float) -> float:
    if not isinstance(value, float | int) or isinstance(value, bool):
        raise refusal(value, "float")
    if not math.isfinite(value):
        raise ValueError(f"holds {value!r}, which JSON cannot carry; use None or leave the event out")
    return value


def _bool_out(value: bool) -> bool:  # noqa: FBT001 - a hook takes its value in place
    if not isinstance(value, bool):
        raise refusal(value, "bool")
    return value


def _uuid_out(value: UUID) -> str:
    if not isinstance(value, UUID):
        raise refusal(value, "UUID")
    return str(value)


def _datetime_out(value: datetime) -> str:
    if not isinstance(value, datetime):
        raise refusal(value, "datetime")
    if value.utcoffset() is None:
        raise ValueError("holds a naive datetime; give it a time zone, for example datetime.now(UTC)")
    return value.isoformat()


def _date_out(value: date) -> str:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise refusal(value, "date")
    return value.isoformat()


def _decimal_out(value: Decimal) -> str:
    if not isinstance(value, Decimal):
        raise refusal(value, "Decimal")
    if not value.is_finite():
        raise ValueError(f"holds the Decimal {value}, which equals nothing when it comes back; use None")
    return str(value)


def _exactly(expected: type) -> Callable[[Any, type], Any]:
    def structure(value: Any, _: type) -> Any:
        if type(value) is not expected:
            raise refusal(value, expected.__name__)
        return value

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


def register_scalars(converter: Converter) -> None:
    """Teach a converter the scalars of the wire."""
    for cls, hook in (
        (str, _str_out),
        (int, _int_out),
        (float, _float_out),
        (bool, _bool_out),
        (UUID, _uuid_out),
        (datetime, _datetime_out),
        (date, _date_out),
        (Decimal, _decimal_out),
    ):
        converter.register_unstructure_hook(cls, hook)
    for exact in (str, int, bool):
        converter.register_structure_hook(exact, _exactly(exact))
    converter.register_structure_hook(float, _float_in)
    converter.register_structure_hook(UUID, _parsed(UUID))
    converter.register_structure_hook(datetime, _parsed(datetime.fromisoformat))
    converter.register_structure_hook(date, _parsed(date.fromisoformat))
    converter.register_structure_hook(Decimal, _parsed(Decimal))
