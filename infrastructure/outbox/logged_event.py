"""An event as it is read of the log: the record that the driver makes of a row (R1, O6)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import asyncpg
import attrs

from outbox_kernel.infrastructure.outbox.decoding import decoder_for
from outbox_kernel.infrastructure.outbox.sealing.boxes import put_together
from outbox_kernel.infrastructure.outbox.sealing.reading import uncharged
from outbox_kernel.infrastructure.outbox.sealing.scrubbing import texts_in
from outbox_kernel.infrastructure.outbox.sql.fragments import SHARDS
from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.context import Delivery
from outbox_kernel.kernel.events import stamp_event
from outbox_kernel.kernel.limits import NAME_CHARACTERS_MAX
from outbox_kernel.kernel.serialization import parsed
from outbox_kernel.kernel.stored import StoredEvent
from outbox_kernel.kernel.wire.owning import is_fixed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from outbox_kernel.infrastructure.outbox.decoding import Decode
    from outbox_kernel.infrastructure.outbox.sealing.keys import SubjectKey
    from outbox_kernel.kernel.context import Header
    from outbox_kernel.kernel.events import DomainEvent

_NO_HEADERS: dict[str, Header] = {}
_STORED_COLUMNS = tuple({each.name for each in attrs.fields(StoredEvent)} - {"payload", "headers"})


@cache
def _decoder(event_type: str, version: int) -> Decode:
    return decoder_for(event_type, version)


@cache
def _is_shared(event_type: str) -> bool:
    versions = catalogue.definitions.event_by_name[event_type]
    return is_fixed(versions[max(versions)].cls)


def forget_decoders() -> None:
    """Ask anew how events are decoded: others may be defined since."""
    _decoder.cache_clear()
    _is_shared.cache_clear()


def column(name: str) -> Any:
    """Return a property of a record that is one of its columns."""
    return property(itemgetter(name))


# From when on the server counts, in microseconds; as `fragments.MOMENTS` has them sent.
_SERVERS_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def _moment(name: str) -> Any:
    def moment(row: LoggedEvent) -> datetime | None:
        sent: bytes | None = row[name]
        if sent is None:
            return None
        return _SERVERS_EPOCH + timedelta(microseconds=int.from_bytes(sent, "big", signed=True))

    return property(moment)


class LoggedEvent(asyncpg.Record):
    """An event as the driver gives it: to copy each into an object would cost a tenth of the throughput."""

    position: int = column("position")
    event_id: UUID = column("event_id")
    event_type: str = column("event_type")
    event_version: int = column("event_version")
    aggregate_type: str | None = column("aggregate_type")
    aggregate_id: UUID | None = column("aggregate_id")
    aggregate_key: str | None = column("aggregate_key")
    aggregate_version: int | None = column("aggregate_version")
    occurred_at: datetime = _moment("occurred_at")
    created_at: datetime = _moment("created_at")
    xid: int = column("xid")
    not_before: datetime | None = column("not_before")
    unsettled: Sequence[str] | None = column("unsettled")
    """Handlers that have an unsettled delivery of its aggregate up to here."""

    subject_keys: Mapping[str, SubjectKey] | None = None
    """What opens its sealed fields, if it has any."""
    secrets: Sequence[str] = ()
    """What was in them, once they were opened."""
    _event: DomainEvent | None = None

    @property
    def payload(self) -> str:
        """What it says, its sealed fields opened, or as forgotten (O6)."""
        stored: str = self["payload"]
        if self.subject_keys is None:
            return stored
        with uncharged():
            payload, values = put_together(stored, self.subject_keys, self["event_type"], self["event_id"])
        self.secrets = texts_in(values) or self.secrets
        return payload

    @property
    def headers(self) -> dict[str, Header]:
        """The context it was recorded in."""
        text = self["headers"]
        if text == "{}":
            return _NO_HEADERS
        headers: dict[str, Header] = json.loads(text)
        return headers

    @property
    def order_key(self) -> str | None:
        """The aggregate within which order holds, as a delivery names it."""
        aggregate = self.ordered_in
        return None if aggregate is None else f"{aggregate[0]}:{aggregate[1]}"

    @property
    def ordered_in(self) -> tuple[str, UUID] | None:
        """The aggregate within which order holds; none, where it is handled from some moment on."""
        kind, identity = self["aggregate_type"], self["aggregate_id"]
        # One without the other was written past us, and so was a name for which the index of deliveries has no room.
        if (
            identity is None
            or kind is None
            or self["not_before"] is not None
            or len(kind) > NAME_CHARACTERS_MAX
        ):
            return None
        return kind, identity

    def stored(self) -> StoredEvent:
        """Return it as it is stored, for whoever need not know its class."""
        return StoredEvent(
            payload=parsed(self["event_type"], self.payload),
            headers=self.headers,
            **{name: getattr(self, name) for name in _STORED_COLUMNS},
        )

    def delivery(self, attempt: int) -> Delivery:
        """Return what a handler may read about this attempt."""
        return Delivery(self["event_id"], self["position"], attempt, self.headers)

    def restored(self) -> DomainEvent:
        """Return it as an event of its newest version, the same for all handlers if nothing in it can be changed."""
        event = self._event
        if event is None:
            event = self._decoded()
            # What is forgotten meanwhile is to be so for the next handler.
            if self.subject_keys is None and _is_shared(self["event_type"]):
                self._event = event
        return event

    def _decoded(self) -> DomainEvent:
        event = _decoder(self["event_type"], self["event_version"])(self.payload)
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
