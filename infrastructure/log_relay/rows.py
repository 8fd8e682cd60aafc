"""What is read of the log, and what is written of those who did not succeed with it."""

from __future__ import annotations

from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.outbox.decoding import decoder_for
from outbox_kernel.infrastructure.outbox.sql.fragments import SHARDS
from outbox_kernel.infrastructure.relay.work import ClaimedEvent
from outbox_kernel.kernel.events import stamp_event

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from outbox_kernel.infrastructure.outbox.decoding import Decode
    from outbox_kernel.kernel.events import DomainEvent


@cache
def _decoder(event_type: str, version: int) -> Decode:
    return decoder_for(event_type, version)


def forget_decoders() -> None:
    """Ask anew how events are decoded: others may be defined since."""
    _decoder.cache_clear()


def _column(name: str) -> Any:
    return property(itemgetter(name))


class LoggedEvent(ClaimedEvent):
    """An event as the driver gives it: to copy each into an object would cost a tenth of the throughput."""

    xid: int = _column("xid")
    not_before: datetime | None = _column("not_before")
    unsettled: Sequence[str] | None = _column("unsettled")
    """Handlers that have an unsettled delivery of its aggregate up to here."""

    def restored(self) -> DomainEvent:
        """Decode it into an event of its newest version, stamped with its aggregate."""
        event = _decoder(self["event_type"], self["event_version"])(self["payload"])
        stamp_event(
            event,
            self["aggregate_type"],
            self["aggregate_id"],
            self["aggregate_version"],
            aggregate_key=self["aggregate_key"],
            not_before=self["not_before"],
        )
        return event

    @property
    def is_readable(self) -> bool:
        """Whether all of it is what an event may be; as `fragments.MOMENTS` has it."""
        return self["occurred_at"] is not None

    @property
    def shard(self) -> int:
        """The shard it is of; as `fragments.SHARD` has it."""
        return int((self["aggregate_id"] or self["event_id"]).bytes[15] % SHARDS)


class DueDelivery(LoggedEvent):
    """A delivery that this relay has leased, with its event."""

    handler: str = _column("handler")
    turn: str = _column("order_key")
    place: int = _column("place")
    attempts: int = _column("attempts")


@attrs.define(eq=False)
class Outcome:
    """How a handler stands with an event that it did not succeed with at once: a row of `outbox_deliveries`."""

    row: LoggedEvent
    handler: str
    order_key: str
    status: str
    attempts: int = 0
    takeovers: int = 0
    on_dead: str = "park"
    delay_seconds: float = 0.0
    error_message: str | None = None
