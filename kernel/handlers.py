"""Handlers: who reacts to which event, under which stable name and by which rules (K5)."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import attrs

from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.errors import DefinitionError, DiscoveryError, DuplicateName
from outbox_kernel.kernel.events import DomainEvent
from outbox_kernel.kernel.retry import RetrySchedule, is_number
from outbox_kernel.kernel.wire.types import admits, is_subclass, resolved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from outbox_kernel.kernel.catalogue import EventType

E_contra = TypeVar("E_contra", bound=DomainEvent, contravariant=True)
H = TypeVar("H", bound=type)

TIMEOUT_SECONDS = 30.0


class EventHandler(Protocol[E_contra]):
    """Reacts to one event; its constructor's parameters are resolved by the container."""

    async def handle(self, event: E_contra, /) -> None:
        """React. Returning is success, raising is failure; `Reject` and `RetryAfter` say more."""


@attrs.frozen
class HandlerRegistration:
    """A handler class under its stable name, with what it handles and how."""

    name: str
    handler: type[EventHandler[Any]]
    events: tuple[type[DomainEvent], ...]
    renamed_from: str | None = None
    retry: RetrySchedule | None = None
    timeout_seconds: float = TIMEOUT_SECONDS
    ordered: bool = True
    on_dead: Literal["park", "continue"] = "park"
    queue: str | None = None


def handles(
    *events: type[DomainEvent],
    name: str | None = None,
    renamed_from: str | None = None,
    retry: RetrySchedule | None = None,
    timeout: float = TIMEOUT_SECONDS,
    ordered: bool = True,
    on_dead: Literal["park", "continue"] = "park",
    queue: str | None = None,
) -> Callable[[H], H]:
    """Register a class as handler of these events; may be stacked, one stable name per set of options."""
    for found in events:
        if not is_subclass(found, DomainEvent):
            raise DefinitionError(
                f"@handles takes event classes, and {found!r} is none: @handles(AccountCreated)"
            )

    def register(cls: H) -> H:
        _check_handler(cls, events)
        registration = HandlerRegistration(
            _default_name(cls) if name is None else name,
            cls,
            events,
            renamed_from,
            retry,
            timeout,
            ordered,
            on_dead,
            queue,
        )
        _check_options(registration)
        _add(registration)
        return cls

    return register


def get_handlers_for(event_class: type[DomainEvent]) -> tuple[HandlerRegistration, ...]:
    """Return who handles events of this class, by name."""
    return tuple(found for found in registered_handlers() if event_class in found.events)


def registered_handlers() -> tuple[HandlerRegistration, ...]:
    """Return every registered handler, by name."""
    return tuple(registration for _, registration in sorted(catalogue.definitions.handlers.items()))


def _check_handler(cls: type, events: tuple[type[DomainEvent], ...]) -> None:
    if not isinstance(cls, type):
        raise DefinitionError(f"@handles stands on a class, and {cls!r} is none")
    if not events:
        raise DefinitionError(f"@handles on {cls.__name__} names no event; write @handles(AccountCreated)")
    for event_class in events:
        if event_class not in catalogue.definitions.event_by_class:
            raise DefinitionError(
                f"@handles on {cls.__name__}: {event_class!r} is no event; put @event on it"
            )
    handle = getattr(cls, "handle", None)
    if not inspect.iscoroutinefunction(handle):
        raise DefinitionError(f"{cls.__name__} is no EventHandler; give it `async def handle(self, event)`")
    try:
        inspect.signature(handle).bind(None, None)
    except TypeError as error:
        raise DefinitionError(
            f"{cls.__name__}.handle must take the event and nothing else it needs ({error}); "
            "dependencies belong in the constructor"
        ) from error
    for event_class in events:
        _check_annotation(cls, handle, event_class)


def _check_annotation(cls: type, handle: Any, event_class: type[DomainEvent]) -> None:
    """Refuse an event that `handle` plainly does not take."""
    taken = [parameter.annotation for parameter in inspect.signature(handle).parameters.values()][1:2]
    if taken in ([], [inspect.Parameter.empty]):
        return
    declared = resolved(taken[0], handle.__module__)
    if not admits(declared, partial(issubclass, event_class)):
        raise DefinitionError(
            f"@handles on {cls.__name__} names {event_class.__name__}, but its handle takes "
            f"{inspect.formatannotation(declared)}; make these the same, or annotate a union of all its events"
        )


def _check_options(registration: HandlerRegistration) -> None:
    catalogue.check_wire_name("handler", registration.name)
    if registration.renamed_from is not None:
        catalogue.check_wire_name("handler", registration.renamed_from)
    if not is_number(registration.timeout_seconds) or not 0 < registration.timeout_seconds < float("inf"):
        raise DefinitionError(
            f"handler {registration.name!r} has timeout={registration.timeout_seconds!r}; "
            "give seconds above zero"
        )
    if registration.on_dead not in ("park", "continue"):
        raise DefinitionError(
            f"handler {registration.name!r} has on_dead={registration.on_dead!r}; choose 'park' or 'continue'"
        )
    if registration.retry is not None and not isinstance(registration.retry, RetrySchedule):
        raise DefinitionError(
            f"handler {registration.name!r} has retry={registration.retry!r}; give a RetrySchedule"
        )
    if registration.ordered not in (True, False):
        raise DefinitionError(
            f"handler {registration.name!r} has ordered={registration.ordered!r}; give True or False"
        )
    if registration.queue is not None and not (
        isinstance(registration.queue, str) and registration.queue.strip()
    ):
        raise DefinitionError(
            f"handler {registration.name!r} has queue={registration.queue!r}; give the name of a queue, or leave it out"
        )
    if registration.renamed_from == registration.name:
        raise DefinitionError(f"handler {registration.name!r} is renamed from itself; drop renamed_from")


def _default_name(cls: type) -> str:
    """Name a handler <context>.<ClassName>: the context is the package that has the `handlers` room."""
    parts = cls.__module__.split(".")
    context = parts[parts.index("handlers", 1) - 1] if "handlers" in parts[1:] else parts[-1]
    return f"{context}.{cls.__name__}"


def _add(registration: HandlerRegistration) -> None:
    handlers = catalogue.definitions.handlers
    _check_rename(registration)
    present = handlers.get(registration.name)
    anew = present is not None and present.handler is not registration.handler
    if present is None or (anew and catalogue.is_redefined(present.handler, registration.handler)):
        handlers[registration.name] = registration
        return
    if anew:
        raise DuplicateName(
            f"handler name {registration.name!r} is claimed by {catalogue.full_name(present.handler)} and by "
            f"{catalogue.full_name(registration.handler)}; give one of them another name="
        )
    if attrs.evolve(present, events=registration.events) != registration:
        raise DefinitionError(
            f"handler {registration.name!r} is registered twice with different options; "
            "use one @handles for all its events, or give the second another name="
        )
    events = dict.fromkeys((*present.events, *registration.events))
    handlers[registration.name] = attrs.evolve(present, events=tuple(events))


def _check_rename(registration: HandlerRegistration) -> None:
    """Refuse a name that another handler was renamed from: its deliveries belong to that one."""
    for other in registered_handlers():
        claimed = {other.name, other.renamed_from} & {registration.name, registration.renamed_from} - {None}
        if other.name != registration.name and claimed:
            raise DefinitionError(
                f"handlers {other.name!r} and {registration.name!r} both claim the name {claimed.pop()!r}; "
                "a name that a handler was renamed from belongs to that handler alone"
            )


def discover_handlers(contexts: str | Iterable[str]) -> tuple[HandlerRegistration, ...]:
    """Import the `handlers` module or package of each context package; report all that fail, by module."""
    failures: dict[str, BaseException] = {}
    for context in (contexts,) if isinstance(contexts, str) else contexts:
        _import_handlers(context, failures)
    if failures:
        raise DiscoveryError(failures)
    check_versions_handled()
    return registered_handlers()


def check_versions_handled() -> None:
    """Raise a DefinitionError if a handler waits for a class of which no event is ever restored; for start-up."""
    for registration in registered_handlers():
        for event_class in registration.events:
            handled = catalogue.event_type_of(event_class)
            newest = catalogue.newest_event_type(handled.name)
            if newest.cls is not event_class:
                raise _never_due(registration, handled, newest)


def _never_due(registration: HandlerRegistration, handled: EventType, newest: EventType) -> DefinitionError:
    if handled.version == newest.version:
        return DefinitionError(
            f"handler {registration.name!r} handles a {handled.cls.__name__} that has been defined anew since; "
            f"run {registration.handler.__module__} again too"
        )
    return DefinitionError(
        f"handler {registration.name!r} handles {handled.cls.__name__}, version {handled.version} of event "
        f"{handled.name!r}, but every such event is delivered as {newest.cls.__name__}, version {newest.version}; "
        "let it handle that one"
    )


def _import_handlers(context: str, failures: dict[str, BaseException]) -> None:
    name = f"{context}.handlers"
    try:
        present = importlib.util.find_spec(name) is not None
    except Exception as error:  # noqa: BLE001 - it imports the context, which may raise anything
        failures[name] = error
        return
    if present:
        _import_whole(name, failures)


def _import_whole(name: str, failures: dict[str, BaseException]) -> None:
    """Import a module and, if it is a package, all that is in it."""
    try:
        module = importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - an import may raise anything; all of it is reported
        failures[name] = error
        return
    for inner in pkgutil.iter_modules(getattr(module, "__path__", ()), prefix=f"{name}."):
        _import_whole(inner.name, failures)
