"""Free JSON, where a field declares `Any`: whatever JSON can carry and give back equal (K8, C7)."""

from __future__ import annotations

from typing import Any

from outbox_kernel.kernel.wire.limits import LEVELS_MAX
from outbox_kernel.kernel.wire.scalars import Misfit, float_out, str_out

# From here on Python writes a float with an exponent, which PostgreSQL writes out: 1e23 comes back as the integer
# of that power of ten, which the float is not.
_FLOAT_WRITTEN_OUT = 1e16


def is_free(declared: object) -> bool:
    """Tell whether a type leaves open what its values are."""
    return declared is Any or declared is object


def free_out(value: Any, levels: int = LEVELS_MAX) -> Any:
    """Return the value as JSON can carry it, or raise Misfit."""
    kind = type(value)
    if kind is str:
        return str_out(value)
    if value is None or kind is int or kind is bool:
        return value
    if kind is dict and levels:
        return {_key_out(key): free_out(member, levels - 1) for key, member in value.items()}
    if kind is list and levels:
        return [free_out(member, levels - 1) for member in value]
    if kind is float:
        return float_out(value) if -_FLOAT_WRITTEN_OUT < value < _FLOAT_WRITTEN_OUT else _equal_int(value)
    if kind is dict or kind is list:
        raise Misfit(f"holds free JSON of more than {LEVELS_MAX} levels; flatten it")
    raise Misfit(
        f"holds {kind.__name__} in free JSON, where it would not come back equal; give None, bool, int, float, str, "
        "a list, or a dict with str keys"
    )


def free_in(value: Any, _: Any) -> Any:
    """Return a value as it was stored."""
    return value


def own_free(value: Any) -> Any:
    """Copy free JSON as deep as it can change."""
    if isinstance(value, dict):
        return {key: own_free(member) for key, member in value.items()}
    if isinstance(value, list):
        return [own_free(member) for member in value]
    return value


def _equal_int(value: float) -> int:
    return int(float_out(value))


def _key_out(key: Any) -> str:
    if type(key) is not str:
        raise Misfit(
            f"holds a key of type {type(key).__name__} in free JSON, where keys are str; give its text"
        )
    return str_out(key)
