"""Who is to handle an event: what this process carries, and what the database says is due (R2, R9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import attrs
from lagom import Container
from lagom.exceptions import UnresolvableType

from outbox_kernel.infrastructure.calling import Call, NotMade, caller, made_once
from outbox_kernel.infrastructure.errors import HandlerNotBuilt, NamesCollide, SourceChanged
from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.handlers import HandlerRegistration
from outbox_kernel.kernel.matching import matches
from outbox_kernel.kernel.retry import RetrySchedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from outbox_kernel.infrastructure.brokers import Outlet, Publisher
    from outbox_kernel.infrastructure.relay.rows import LoggedEvent
    from outbox_kernel.infrastructure.scopes import AnyContainer
    from outbox_kernel.kernel.events import DomainEvent
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

    def __attrs_post_init__(self) -> None:
        """Copy what is read for every event."""
        for name in ("name", "ordered", "timeout_seconds", "renamed_from", "on_dead", "atomic", "batch"):
            object.__setattr__(self, name, getattr(self.registration, name))

    @property
    def from_beginning(self) -> bool:
        """Whether it is to get all of the log when it is new."""
        return self.registration.start == "beginning"

    @property
    def is_bounded(self) -> bool:
        """Whether all of it is one relay's, so that a bound of it is one of the fleet (R16)."""
        return self.registration.is_bounded

    @property
    def patterns(self) -> list[str]:
        """The event types it is for."""
        return sorted({*self._known_types, *self.registration.patterns})

    @property
    def _known_types(self) -> set[str]:
        return {catalogue.event_type_of(event).name for event in self.registration.events}

    @property
    def source(self) -> str | None:
        """The queue whose events it is for, and for no others; None: those written here."""
        return self.registration.queue

    @property
    def abilities(self) -> dict[str, int]:
        """The newest version of each event type that it can be given."""
        known = {name: newest_version(name) for name in self._known_types}
        return {**known, **dict.fromkeys(self.registration.patterns, ANY_VERSION)}

    def can_run(self, event_type: str, event_version: int) -> bool:
        """Whether it can be given such an event."""
        return any(
            event_version <= newest and matches(event_type, (pattern,))
            for pattern, newest in self.abilities.items()
        )

    def given(self, row: LoggedEvent) -> DomainEvent | StoredEvent:
        """Return an event as the handler gets it: of a class that it is for, else as it is stored."""
        if self.registration.patterns:
            event_type, version = row["event_type"], row["event_version"]
            if event_type not in self._known_types or version > newest_version(event_type):
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
    name: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Copy what is read for every event."""
        object.__setattr__(self, "name", self.publisher.name)

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


Claim = tuple[str, str, str | None]


def claim_of(each: CarriedAny | HandlerRegistration | Publisher) -> Claim:
    """Return what it is, its name, and the name it had."""
    if isinstance(each, Carried | HandlerRegistration):
        return Carried.kind, each.name, each.renamed_from
    return CarriedPublisher.kind, each.name, None


def check_names(claims: Iterable[Claim]) -> None:
    """Raise NamesCollide if a name, former ones included, is claimed twice; for start-up (R14)."""
    claimed: dict[str, Claim] = {}
    for each in claims:
        kind, own, former = each
        for name in (own, former):
            other = each if name is None else claimed.setdefault(name, each)
            if other is not each:
                raise NamesCollide(
                    f"{other[0]} {other[1]!r} and {kind} {own!r} both claim the name {name!r}, by which the outbox "
                    "knows who has handled what: give one of them another name"
                )


async def check_buildable(registrations: Iterable[HandlerRegistration], container: AnyContainer) -> None:
    """Raise HandlerNotBuilt unless the container can make every handler; for start-up (R14)."""
    for registration in registrations:
        handler, is_class = registration.handler, isinstance(registration.handler, type)
        try:
            made = await made_once(registration, container)
        except DefinitionError as error:
            raise HandlerNotBuilt(f"handler {registration.name!r} cannot be called: {error}") from error
        except Exception as error:
            asking = "its constructor asks" if is_class else "it asks"
            own = error.what if isinstance(error, NotMade) else handler.__name__
            reason = error.__cause__ if isinstance(error, NotMade) else error
            ours = isinstance(container, Container)
            remedy = f"register what {asking} for in a wiring module" if ours else f"let it make {own}"
            raise HandlerNotBuilt(
                f"handler {registration.name!r} cannot be made by the container ({_lacking(reason)}): {remedy}"
            ) from error
        if is_class and not callable(getattr(made, "handle", None)):
            raise HandlerNotBuilt(
                f"for handler {registration.name!r} the container gives {made!r:.80}, which has no `handle`: let it "
                f"return an instance of {handler.__name__}"
            )


def _lacking(error: BaseException | None) -> str:
    """Say what there is not: the container names only what was asked for, and the rest in its causes."""
    path: list[str] = []
    while isinstance(error, UnresolvableType):
        if error.dep_type not in path:
            path.append(error.dep_type)
        error = error.__cause__ or error.__context__
    words = [" needs ".join(path)] if path else []
    return ": ".join(words if error is None else [*words, f"{type(error).__name__}: {error}"])


@attrs.frozen
class Subscription:
    """An entry of `outbox_subscriptions`."""

    name: str
    kind: str
    patterns: tuple[str, ...]
    ordered: bool
    paused: bool
    retired: bool
    source: str | None = None
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


@attrs.frozen
class Due:
    """Who is due for events of one type and version: those that run here, and those left for others."""

    run: tuple[Carried, ...]
    publish: tuple[CarriedPublisher, ...]
    leave: tuple[Subscription, ...]


class Ability(NamedTuple):
    """What a claim of deliveries asks for."""

    handler: str
    event_type: str
    newest_version: int
    former: str | None = None
    """Another name of the handler, under which relays of older code may still be at work."""
    on_dead: str = "park"
    runs_code: bool = True
    """Whether somebody's code runs, which may kill the process; to publish does not."""


class Roster:
    """What this process carries, held against the subscriptions; it changes only when they do."""

    def __init__(self, carried: Sequence[CarriedAny]) -> None:
        check_names(map(claim_of, carried))
        self.carried = {each.name: each for each in carried}
        self.has_handlers = any(isinstance(each, Carried) for each in carried)
        """Whether it carries any, and not publishers alone."""
        self.names_in_order = [
            name
            for each in carried
            if each.ordered
            for name in (each.name, each.renamed_from)
            if name is not None
        ]
        """Names under which an unsettled delivery keeps later events of its aggregate waiting."""
        self.held: set[str] = set()
        """Publishers that are paused here: what waits for them is not claimed."""
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
        paused = {each.name for each in self._subscriptions if each.paused} | self.held
        return [
            Ability(
                *(each.name, pattern, version, each.renamed_from, each.on_dead),
                runs_code=isinstance(each, Carried),
            )
            for each in self.carried.values()
            if each.name not in paused
            for pattern, version in each.abilities.items()
        ]

    def _find(self, event_type: str, event_version: int) -> Due:
        due = [each for each in self._subscriptions if each.matches(event_type)]
        here = [
            carried
            for each in due
            if not each.paused
            and (carried := self.carried.get(each.name)) is not None
            and carried.can_run(event_type, event_version)
        ]
        names = {each.name for each in here}
        return Due(
            tuple(each for each in here if isinstance(each, Carried)),
            tuple(each for each in here if isinstance(each, CarriedPublisher)),
            tuple(each for each in due if each.name not in names),
        )


def newest_version(event_type: str) -> int:
    """Return the newest version of an event that this process knows, or 0."""
    return max(catalogue.definitions.event_by_name.get(event_type, {0: None}))
