"""Which events or deliveries an operator means, as it is typed and as the statements take it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import attrs

from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.outbox.sql.inspection import AGGREGATE_TYPES, SINCE
from outbox_kernel.kernel.identity import stream_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from outbox_kernel.infrastructure.operations.desk import Desk

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)")
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class NothingFound(InfrastructureError):
    """Nothing in the outbox is what the operator named."""


@attrs.frozen
class AggregateKey:
    """An aggregate by its id as it is written, and its type where that was said."""

    id: UUID | str
    type: str | None = None

    @classmethod
    def parse(cls, text: str) -> AggregateKey:
        """Read TYPE:ID or ID, or raise ValueError; the id may be anything that is one, also with colons in it."""
        kind, _, identity = text.partition(":") if ":" in text else ("", "", text)
        known = stream_key(identity)
        if known is None:
            raise ValueError(f"{text!r} names no aggregate")
        uuid, key = known
        return cls(uuid if key is None else key, kind or None)

    def __str__(self) -> str:
        return f"{self.type}:{self.id}" if self.type else str(self.id)

    @property
    def ids(self) -> list[UUID]:
        """The UUIDs by which the outbox may know it: a text may be a UUID in another writing, or a key like any."""
        known = stream_key(self.id)
        return [*{*([] if known is None else [known[0]]), *_uuids_in(str(self.id))}]

    async def types(self, desk: Desk) -> list[str]:
        """Return the types it may be of: asked by type and id, the outbox answers from an index."""
        return [self.type] if self.type else [row[0] for row in await desk.run(AGGREGATE_TYPES)]


@attrs.frozen
class Moment:
    """A point in time, or how long ago it is by the server's clock."""

    at: datetime | None = None
    ago: timedelta = timedelta()

    @classmethod
    def parse(cls, text: str) -> Moment:
        """Read an ISO 8601 moment (UTC where it says nothing else), or an age such as 90m, 24h, 7d."""
        if age := _AGE.fullmatch(text.strip()):
            try:
                return cls(ago=timedelta(**{_UNITS[age[2]]: float(age[1])}))
            except OverflowError as error:
                raise ValueError(str(error)) from error
        at = datetime.fromisoformat(text.strip())
        try:
            return cls(at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC))
        except OverflowError as error:
            raise ValueError(str(error)) from error

    async def resolved(self, desk: Desk) -> datetime:
        """Return the point in time."""
        if self.at is not None:
            return self.at
        clock = await desk.clock()
        return clock - self.ago if self.ago < clock - _EARLIEST else _EARLIEST

    async def position(self, desk: Desk) -> int:
        """Return the position of the first event that was stored since; of none yet, the next there may be."""
        position: int = (await desk.run_one(SINCE, since=await self.resolved(desk)))["position"]
        return position


@attrs.frozen
class Selection:
    """Deliveries of an event, a handler, an aggregate, an event type; of all, where nothing is said."""

    event_id: UUID | None = None
    handler: str | None = None
    aggregate: AggregateKey | None = None
    event_type: str | None = None

    async def arguments(self, desk: Desk) -> dict[str, object]:
        """Return what CHOOSE_DELIVERIES takes of it."""
        return {
            "event_id": self.event_id,
            "handler": self.handler,
            "pattern": type_pattern([self.event_type]) if self.event_type else None,
            "types": await self.aggregate.types(desk) if self.aggregate else None,
            "ids": self.aggregate and self.aggregate.ids,
        }


def _uuids_in(text: str) -> list[UUID]:
    try:
        return [UUID(text)]
    except ValueError:
        return []


def no_subscription(name: str, names: Sequence[str]) -> NothingFound:
    """Say that a name is none of those there are."""
    known = f"there are {', '.join(names)}" if names else "there is none until a relay has started once"
    return NothingFound(f"there is no subscription {name!r}: {known}")


def no_event(event: UUID | int) -> NothingFound:
    """Say that there is no event of this id, or at this position."""
    return NothingFound(f"there is no event {event}: `outbox events` lists the newest")


def type_pattern(patterns: Iterable[str], *, but: Iterable[str] = ()) -> str:
    """Turn event types with `*` for any part into a regular expression of the server; `but` leaves others out."""
    other_than = "".join(f"(?!{_regular(pattern)}$)" for pattern in but)
    return f"^{other_than}(" + "|".join(_regular(pattern) for pattern in patterns) + ")$"


def _regular(pattern: str) -> str:
    return "".join(
        ".*" if character == "*" else "." if character == "?" else re.escape(character)
        for character in pattern
    )
