"""Subscriptions: what this process carries, what the database says is due, and whether both agree (R2, R9, R14).

What handlers had under former names becomes theirs, for as long as old relays may run (R13).
"""

from __future__ import annotations

from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Self
from uuid import UUID

import attrs

from outbox_kernel.infrastructure.calling import Call, caller
from outbox_kernel.infrastructure.errors import NamesCollide, SourceChanged
from outbox_kernel.infrastructure.outbox.sql import cursors
from outbox_kernel.infrastructure.outbox.sql import subscriptions as sql
from outbox_kernel.infrastructure.outbox.sql.named import arrays
from outbox_kernel.infrastructure.relay.limits import WINDOW_ROWS
from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.matching import matches
from outbox_kernel.kernel.retry import RetrySchedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outbox_kernel.infrastructure.brokers import Outlet, Publisher
    from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
    from outbox_kernel.infrastructure.outbox.own_connection import Step
    from outbox_kernel.infrastructure.relay.log import Log
    from outbox_kernel.infrastructure.scopes import AnyContainer
    from outbox_kernel.kernel.events import DomainEvent
    from outbox_kernel.kernel.handlers import HandlerRegistration
    from outbox_kernel.kernel.stored import StoredEvent

ANY_TYPE = "*"
ANY_VERSION = 2**31 - 1


@attrs.frozen(eq=False)
class Carried:
    """A handler that this process can run."""

    registration: HandlerRegistration
    call: Call
    schedule: RetrySchedule
    kind: ClassVar[str] = "handler"
    name: str = attrs.field(init=False)
    ordered: bool = attrs.field(init=False)
    timeout_seconds: float = attrs.field(init=False)
    renamed_from: str | None = attrs.field(init=False)
    on_dead: str = attrs.field(init=False)
    atomic: bool = attrs.field(init=False)
    batch: int | None = attrs.field(init=False)
    is_bounded: bool = attrs.field(init=False)
    """Whether all of it is one relay's, so that a bound of it is one of the fleet (R16)."""

    def __attrs_post_init__(self) -> None:
        """Copy what is read for every event."""
        for each in attrs.fields(Carried):
            if not each.init:
                object.__setattr__(self, each.name, getattr(self.registration, each.name))

    @property
    def from_beginning(self) -> bool:
        """Whether it is to get all of the log when it is new."""
        return self.registration.start == "beginning"

    @property
    def patterns(self) -> list[str]:
        """The event types it is for."""
        return sorted(self.abilities)

    @property
    def source(self) -> str | None:
        """The queue whose events it is for, and for no others; None: those written here."""
        return self.registration.queue

    @cached_property
    def _newest(self) -> dict[str, int]:
        """The newest version of each type of which it is for a class."""
        names = (catalogue.event_type_of(event).name for event in self.registration.events)
        return {name: catalogue.newest_event_type(name).version for name in names}

    @cached_property
    def abilities(self) -> dict[str, int]:
        """The newest version of each event type that it can be given."""
        return {**self._newest, **dict.fromkeys(self.registration.patterns, ANY_VERSION)}

    def can_run(self, event_type: str, event_version: int) -> bool:
        """Whether it can be given such an event."""
        return any(
            event_version <= newest and matches(event_type, (pattern,))
            for pattern, newest in self.abilities.items()
        )

    def given(self, row: LoggedEvent) -> DomainEvent | StoredEvent:
        """Return an event as the handler gets it: of a class that it is for, else as it is stored."""
        if self.registration.patterns:
            newest = self._newest.get(row["event_type"])
            if newest is None or row["event_version"] > newest:
                return row.stored()
        return row.restored()


@attrs.frozen(eq=False)
class CarriedPublisher:
    """A publisher that this process can reach the broker for; it sends what is stored, of any type and version."""

    publisher: Publisher
    outlet: Outlet
    schedule: RetrySchedule
    from_beginning: bool = False
    """Whether it is to get all of the log when it is new."""
    kind: ClassVar[str] = "publisher"
    ordered: ClassVar[bool] = True
    renamed_from: ClassVar[str | None] = None
    source: ClassVar[str | None] = None
    on_dead: ClassVar[str] = "park"
    is_bounded: ClassVar[bool] = False
    batch: ClassVar[int | None] = None
    timeout_seconds: ClassVar[float] = inf
    """Its outlet has a deadline of its own."""

    @cached_property
    def name(self) -> str:
        """What its subscription is called."""
        return self.publisher.name

    @property
    def patterns(self) -> list[str]:
        """The event types it is for."""
        return sorted(self.publisher.patterns)

    @property
    def abilities(self) -> dict[str, int]:
        """The newest version of each event type that it can be given: it sends whatever it is due for."""
        return {ANY_TYPE: ANY_VERSION}

    def can_run(self, _event_type: str, _event_version: int) -> bool:
        """Whatever its subscription is due for, it can send."""
        return True


CarriedAny = Carried | CarriedPublisher


def carry(registration: HandlerRegistration, container: AnyContainer, retries_max: int) -> Carried:
    """Make a handler ready to run."""
    return Carried(
        registration,
        caller(registration, container),
        registration.retry or RetrySchedule.bounded(retries_max),
    )


def check_names(handlers: Iterable[HandlerRegistration], publishers: Iterable[Publisher]) -> None:
    """Raise NamesCollide if a name, former ones included, is claimed twice; for start-up (R14)."""
    claims: list[tuple[str, str, str | None]] = [
        *((Carried.kind, each.name, each.renamed_from) for each in handlers),
        *((CarriedPublisher.kind, each.name, None) for each in publishers),
    ]
    claimed: dict[str, tuple[str, str, str | None]] = {}
    for claim in claims:
        kind, own, former = claim
        for name in (own, former):
            other = claim if name is None else claimed.setdefault(name, claim)
            if other is not claim:
                raise NamesCollide(
                    f"{other[0]} {other[1]!r} and {kind} {own!r} both claim the name {name!r}, by which the outbox "
                    "knows who has handled what: give one of them another name"
                )


@attrs.frozen
class Subscription:
    """An entry of `outbox_subscriptions`."""

    patterns: tuple[str, ...]
    paused: bool
    retired: bool
    source: str | None
    """The queue whose events it is for; None: those written here."""

    def matches(self, event_type: str) -> bool:
        """Whether it is for events of this type."""
        return not self.retired and matches(event_type, self.patterns)


def check_sources(carried: Iterable[CarriedAny], subscriptions: Mapping[str, Subscription]) -> None:
    """Raise SourceChanged if one is due for another queue than it says, under its name or its former one (R14)."""
    for each in carried:
        for name in (each.name, each.renamed_from):
            found = subscriptions.get(name or "")
            if found is not None and not found.retired and found.source != each.source:
                raise SourceChanged(
                    f"{each.kind} {each.name!r} is for {_what_comes(each.source)}, and its subscription {name!r} for "
                    f"{_what_comes(found.source)}, which it would not get any more: give it a name of its own, and "
                    f"end the other with `outbox retire {name}` once nothing waits for it"
                )


def _what_comes(source: str | None) -> str:
    return "what is written here" if source is None else f"queue {source!r}"


async def subscriptions_now(control: Log) -> tuple[dict[str, Subscription], int]:
    """Return all subscriptions by name, and their revision."""
    rows = await control.run(sql.SUBSCRIPTIONS)
    found = {
        row["name"]: Subscription(tuple(row["patterns"]), row["paused"], row["retired"], row["source"])
        for row in rows
    }
    return found, rows[0]["revision"] if rows else 0


_FIRST_ID = UUID(int=0)


@attrs.define(eq=False)
class Renaming:
    """Remembers what is left to move, so that a name that changed long ago costs next to nothing."""

    log: Log
    pairs: dict[str, list[Any]]
    """Names, and those that they were formerly, as statements take them."""
    _is_due: bool = True
    """Whether relays of older code may have been at work the last time: what they left is to be moved."""
    _receipts_after: UUID = _FIRST_ID

    @classmethod
    def of(cls, log: Log, carried: Iterable[CarriedAny]) -> Self:
        """Return what is to be moved for those that were renamed."""
        renamed = [(each.name, each.renamed_from) for each in carried if each.renamed_from is not None]
        return cls(log, arrays(("names", "former"), renamed))

    def steps(self) -> list[Step]:
        """Return the statements, all of one transaction, that move cursors and deliveries and end the former names.

        A relay of older code that owns cursors keeps them until its hands are empty: then it gives them, where they
        stand.
        """
        if not self.pairs["names"]:
            return []
        return [
            self.log.step(cursors.RENAME_CURSORS, **self.pairs),
            self.log.step(sql.RETIRE_FORMER, **self.pairs),
            self.log.step(cursors.DROP_CURSORS),
            self.log.step(sql.RENAME_DELIVERIES, **self.pairs),
            self.log.step(sql.RENAME_WHAT_IS_SAID, **self.pairs),
            self.log.step(sql.DROP_FORMER_DELIVERIES, **self.pairs),
        ]

    async def step(self) -> None:
        """Move what relays of older code have written since the last time, and a window of receipts."""
        if not self.pairs["names"]:
            return
        [row] = await self.log.run(sql.FORMER_AT_WORK, former=self.pairs["former"])
        if row["found"] or self._is_due:
            await self.log.line.transact(self.steps())
        self._is_due = row["found"]
        await self.move_receipts()

    async def move_receipts(self) -> None:
        """Move one window of receipts, round and round."""
        if self.pairs["names"]:
            window = {"after": self._receipts_after, "rows_max": WINDOW_ROWS}
            [row] = await self.log.run(sql.RENAME_RECEIPTS, **self.pairs, **window)
            self._receipts_after = row["last"] or _FIRST_ID
