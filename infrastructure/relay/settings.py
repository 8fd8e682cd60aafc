"""The relay's settings, each bad value one sentence that names it (R15)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from outbox_kernel.infrastructure.number_settings import between, number, whole
from outbox_kernel.infrastructure.settings import names_channel
from outbox_kernel.kernel.retry import EXPONENTIAL, RetrySchedule

if TYPE_CHECKING:
    from collections.abc import Mapping

CHANNEL = "outbox_channel"


@frozen(kw_only=True)
class RelaySettings:
    """How a relay works; every field has the default that ships."""

    poll_interval_seconds: float = field(default=5.0, validator=between("OUTBOX_POLL_INTERVAL", 0.01, 3600))
    batch_size_max: int = field(default=1_000, validator=between("OUTBOX_BATCH_SIZE", 1, 10_000))
    concurrency: int = field(default=100, validator=between("OUTBOX_CONCURRENCY", 1, 10_000))
    retries_max: int = field(default=10, validator=between("OUTBOX_MAX_RETRIES", 1, 1_000_000))
    publish_retries_max: int | None = field(
        default=None, validator=between("OUTBOX_PUBLISH_RETRIES", 1, 1_000_000)
    )
    """How often a broker may refuse an event; None: as often as a handler may fail with one."""
    publish_for_ever: bool = False
    cleanup_days: float | None = field(default=7.0, validator=between("OUTBOX_CLEANUP_DAYS", 0, 36_500))
    """How long delivered events are kept; None: for ever."""
    lease_seconds: float = field(default=15.0, validator=between("OUTBOX_LEASE_SECONDS", 0.1, 3600))
    grace_seconds: float = field(default=10.0, validator=between("OUTBOX_GRACE_SECONDS", 0, 3600))
    channel: str = field(default=CHANNEL, validator=names_channel)
    listen_url: str | None = field(default=None, repr=False)
    code_version: str = "unknown"

    @property
    def publish_schedule(self) -> RetrySchedule:
        """When what a broker refuses is sent again."""
        if self.publish_for_ever:
            return EXPONENTIAL
        return RetrySchedule.bounded(self.publish_retries_max or self.retries_max)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> RelaySettings:
        """Read the settings; an empty variable counts as one that is not set."""
        found: dict[str, Any] = {}
        for name, variable, read in (
            ("poll_interval_seconds", "OUTBOX_POLL_INTERVAL", number),
            ("batch_size_max", "OUTBOX_BATCH_SIZE", whole),
            ("concurrency", "OUTBOX_CONCURRENCY", whole),
            ("retries_max", "OUTBOX_MAX_RETRIES", whole),
            ("cleanup_days", "OUTBOX_CLEANUP_DAYS", _days),
            ("lease_seconds", "OUTBOX_LEASE_SECONDS", number),
            ("grace_seconds", "OUTBOX_GRACE_SECONDS", number),
            ("channel", "OUTBOX_CHANNEL", None),
            ("listen_url", "OUTBOX_LISTEN_URL", None),
            ("code_version", "OUTBOX_CODE_VERSION", None),
        ):
            text = environ.get(variable, "").strip()
            if text:
                found[name] = text if read is None else read(variable, text)
        publishes = environ.get("OUTBOX_PUBLISH_RETRIES", "").strip()
        if publishes.lower() == "forever":
            found["publish_for_ever"] = True
        elif publishes:
            found["publish_retries_max"] = whole("OUTBOX_PUBLISH_RETRIES", publishes, also=", or forever")
        return cls(**found)


def _days(variable: str, text: str) -> float | None:
    return None if text.lower() == "never" else number(variable, text, also=", or never")
