"""Who is to handle an event: what this process carries, and what the database says is due (R2, R9)."""

from __future__ import annotations

import inspect
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from infrastructure.container import scope
from infrastructure.errors import InfrastructureError
from kernel import catalogue
from kernel.retry import RetrySchedule

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from lagom import Container

    from kernel.events import DomainEvent
    from kernel.handlers import HandlerRegistration


class HandlerNotBuilt(InfrastructureError):
    """The container cannot make a handler."""


@attrs.frozen(eq=False)
class Carried:
    """A handler that this process can run."""

    registration: HandlerRegistration
    call: Callable[[DomainEvent], Awaitable[None]]
    schedule: RetrySchedule
    name: str = attrs.field(init=False)
    ordered: bool = attrs.field(init=False)
    timeout_seconds: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Copy what is read for every event."""
        for name in ("name", "ordered", "timeout_seconds"):
            object.__setattr__(self, name, getattr(self.registration, name))

    @property
    def patterns(self) -> list[str]:
        """The event types it is for."""
        return sorted({catalogue.event_type_of(event).name for event in self.registration.events})


def carry(registration: HandlerRegistration, container: Container, retries_max: int) -> Carried:
    """Make a handler ready to run."""
    return Carried(
        registration,
        _caller(registration, container),
        registration.retry or RetrySchedule.bounded(retries_max),
    )


def _caller(
    registration: HandlerRegistration, container: Container
) -> Callable[[DomainEvent], Awaitable[None]]:
    cls: Any = registration.handler
    if not inspect.signature(cls).parameters:
        # What needs nothing is made once, and pays for no scope.
        handle: Callable[[DomainEvent], Awaitable[None]] = cls().handle
        return handle

    async def call(event: DomainEvent) -> None:
        async with scope(container) as inner:
            await inner[cls].handle(event)

    return call


async def check_buildable(registrations: Iterable[HandlerRegistration], container: Container) -> None:
    """Raise HandlerNotBuilt unless the container can make every handler; for start-up (R14)."""
    for registration in registrations:
        cls: Any = registration.handler
        try:
            if inspect.signature(cls).parameters:
                async with scope(container) as inner:
                    inner[cls]
            else:
                cls()
        except Exception as error:
            raise HandlerNotBuilt(
                f"handler {registration.name!r} cannot be made by the container "
                f"({type(error).__name__}: {error}); register what its constructor asks for in a wiring module"
            ) from error


@attrs.frozen
class Subscription:
    """An entry of `outbox_subscriptions`."""

    name: str
    kind: str
    patterns: tuple[str, ...]
    ordered: bool
    paused: bool
    retired: bool

    def matches(self, event_type: str) -> bool:
        """Whether it is for events of this type."""
        return not self.retired and any(fnmatchcase(event_type, pattern) for pattern in self.patterns)


@attrs.frozen
class Due:
    """Who is due for events of one type and version: those that run here, and those left for others."""

    run: tuple[Carried, ...]
    leave: tuple[Subscription, ...]


class Ability(NamedTuple):
    """What a claim of deliveries asks for."""

    handler: str
    event_type: str
    newest_version: int
    former: str | None = None
    """Another name of the handler, under which relays of older code may still be at work."""
    on_dead: str = "park"


class Roster:
    """What this process carries, held against the subscriptions; it changes only when they do."""

    def __init__(self, carried: Sequence[Carried]) -> None:
        self.carried = {each.name: each for each in carried}
        self.revision = -1
        self._subscriptions: tuple[Subscription, ...] = ()
        self._due: dict[tuple[str, int], Due] = {}

    def subscribe(self, subscriptions: Iterable[Subscription], revision: int) -> None:
        """Take note of what the database says."""
        self._subscriptions = tuple(subscriptions)
        self.revision = revision
        self._due.clear()

    def due(self, event_type: str, event_version: int) -> Due:
        """Return who is due for such events now."""
        found = self._due.get((event_type, event_version))
        if found is None:
            found = self._due[event_type, event_version] = self._find(event_type, event_version)
        return found

    def abilities(self) -> list[Ability]:
        """Return what may run here, without what an operator holds."""
        paused = {each.name for each in self._subscriptions if each.paused}
        return [
            Ability(
                *(each.name, pattern, newest_version(pattern)),
                *(each.registration.renamed_from, each.registration.on_dead),
            )
            for each in self.carried.values()
            if each.name not in paused
            for pattern in each.patterns
        ]

    def _find(self, event_type: str, event_version: int) -> Due:
        due = [each for each in self._subscriptions if each.matches(event_type)]
        run = tuple(
            each for each in due if not each.paused and self._can_run(each.name, event_type, event_version)
        )
        return Due(
            tuple(self.carried[each.name] for each in run), tuple(each for each in due if each not in run)
        )

    def _can_run(self, name: str, event_type: str, event_version: int) -> bool:
        carried = self.carried.get(name)
        return (
            carried is not None
            and event_type in carried.patterns
            and event_version <= newest_version(event_type)
        )


def newest_version(event_type: str) -> int:
    """Return the newest version of an event that this process knows, or 0."""
    return max(catalogue.definitions.event_by_name.get(event_type, {0: None}))
