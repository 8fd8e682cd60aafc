"""The relay's settings; each bad value is one sentence that names it (R15)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from infrastructure.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attrs import Attribute

CHANNEL = "outbox_channel"
_IDENTIFIER_BYTES_MAX = 63


def _between(name: str, low: float, high: float) -> Any:
    def check(_: object, __: Attribute[Any], value: float | None) -> None:
        if value is not None and not low <= value <= high:
            raise BadSetting(name, f"is {value:g}: give a number from {low:g} to {high:g}")

    return check


def _channel(_: object, __: Attribute[Any], value: str) -> None:
    if not value.isidentifier() or len(value.encode()) > _IDENTIFIER_BYTES_MAX:
        raise BadSetting(
            "OUTBOX_CHANNEL",
            f"is {value!r}, which names no channel: give letters, digits and underscores, "
            f"{_IDENTIFIER_BYTES_MAX} bytes at most",
        )


@frozen(kw_only=True)
class RelaySettings:
    """How a relay works; every field has the default that ships."""

    poll_interval_seconds: float = field(default=5.0, validator=_between("OUTBOX_POLL_INTERVAL", 0.01, 3600))
    batch_size_max: int = field(default=1_000, validator=_between("OUTBOX_BATCH_SIZE", 1, 10_000))
    concurrency: int = field(default=100, validator=_between("OUTBOX_CONCURRENCY", 1, 10_000))
    retries_max: int = field(default=10, validator=_between("OUTBOX_MAX_RETRIES", 1, 1_000_000))
    cleanup_days: float | None = field(default=7.0, validator=_between("OUTBOX_CLEANUP_DAYS", 0, 36_500))
    """How long delivered events are kept; None: for ever."""
    lease_seconds: float = field(default=15.0, validator=_between("OUTBOX_LEASE_SECONDS", 0.1, 3600))
    grace_seconds: float = field(default=10.0, validator=_between("OUTBOX_GRACE_SECONDS", 0, 3600))
    channel: str = field(default=CHANNEL, validator=_channel)
    listen_url: str | None = field(default=None, repr=False)
    code_version: str = "unknown"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> RelaySettings:
        """Read the settings; an empty variable counts as one that is not set."""
        found: dict[str, Any] = {}
        for name, variable, read in (
            ("poll_interval_seconds", "OUTBOX_POLL_INTERVAL", _number),
            ("batch_size_max", "OUTBOX_BATCH_SIZE", _whole),
            ("concurrency", "OUTBOX_CONCURRENCY", _whole),
            ("retries_max", "OUTBOX_MAX_RETRIES", _whole),
            ("cleanup_days", "OUTBOX_CLEANUP_DAYS", _days),
            ("lease_seconds", "OUTBOX_LEASE_SECONDS", _number),
            ("grace_seconds", "OUTBOX_GRACE_SECONDS", _number),
            ("channel", "OUTBOX_CHANNEL", _text),
            ("listen_url", "OUTBOX_LISTEN_URL", _text),
            ("code_version", "OUTBOX_CODE_VERSION", _text),
        ):
            text = environ.get(variable, "").strip()
            if text:
                found[name] = _read(variable, text, read)
        return cls(**found)


def _read(variable: str, text: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except ValueError:
        kind = "a whole number" if read is _whole else "a number"
        also = ", or never" if read is _days else ""
        raise BadSetting(variable, f"is {text!r}: give {kind}{also}") from None


def _number(text: str) -> float:
    return float(text)


def _whole(text: str) -> int:
    return int(text)


def _days(text: str) -> float | None:
    return None if text.lower() == "never" else float(text)


def _text(text: str) -> str:
    return text
