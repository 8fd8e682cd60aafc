"""Handlers: who reacts to which event, under which stable name and by which rules (K5)."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import attrs

from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.calling import check_parameters
from outbox_kernel.kernel.errors import DefinitionError, DiscoveryError, DuplicateName
from outbox_kernel.kernel.events import DomainEvent
from outbox_kernel.kernel.handled_types import check_annotation
from outbox_kernel.kernel.handler_options import check_options
from outbox_kernel.kernel.limits import TIMEOUT_SECONDS
from outbox_kernel.kernel.matching import check_pattern, matches
from outbox_kernel.kernel.stored import StoredEvent
from outbox_kernel.kernel.wire.types import is_subclass, resolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from outbox_kernel.kernel.catalogue import EventType
    from outbox_kernel.kernel.retry import RetrySchedule

E_contra = TypeVar("E_contra", bound=DomainEvent | StoredEvent, contravariant=True)
H = TypeVar("H", bound=Callable[..., Any])


class EventHandler(Protocol[E_contra]):
    """Reacts to one event; its constructor's parameters are resolved by the container."""

    async def handle(self, event: E_contra, /) -> None:
        """React. Returning is success, raising is failure; `Reject` and `RetryAfter` say more."""


class BatchHandler(Protocol[E_contra]):
    """Reacts to several events at once, under `batch=`; its effect is one for all of them."""

    async def handle(self, events: Sequence[E_contra], /) -> None:
        """React to all. What is raised is the failure of one of them, which is then sought."""


@attrs.frozen
class HandlerRegistration:
    """A handler, a class or a function, under its stable name, with what it handles and how."""

    name: str
    handler: type[EventHandler[Any] | BatchHandler[Any]] | Callable[..., Any]
    events: tuple[type[DomainEvent], ...]
    """Whose events it gets as objects of their classes."""
    renamed_from: str | None = None
    retry: RetrySchedule | None = None
    timeout_seconds: float = TIMEOUT_SECONDS
    ordered: bool = True
    on_dead: Literal["park", "continue"] = "park"
    queue: str | None = None
    patterns: tuple[str, ...] = ()
    """Whose other events it gets as they are stored."""
    atomic: bool = False
    """Whether all that a run commits is one transaction."""
    start: Literal["now", "beginning"] = "now"
    """From where on it gets events of the log, once a relay carries it for the first time."""
    concurrency: int | None = None
    """How many of its runs there may be at once, over all relays; None: each relay has a limit of its own."""
    rate: str | None = None
    """How many of its runs may begin in how long, over all relays."""
    batch: int | None = None
    """How many events it is given at once, at the most; None: each by itself."""

    @property
    def is_bounded(self) -> bool:
        """Whether a bound holds over all relays, so that it runs in one of them."""
        return self.concurrency is not None or self.rate is not None

    def is_for(self, event_class: type[DomainEvent]) -> bool:
        """Whether it handles events of this class."""
        known = catalogue.definitions.event_by_class.get(event_class)
        return event_class in self.events or (known is not None and matches(known.name, self.patterns))


def handles(  # noqa: PLR0913 - options, each by its name
    *events: type[DomainEvent] | str,
    name: str | None = None,
    renamed_from: str | None = None,
    retry: RetrySchedule | None = None,
    timeout: float = TIMEOUT_SECONDS,
    ordered: bool = True,
    on_dead: Literal["park", "continue"] = "park",
    queue: str | None = None,
    atomic: bool = False,
    start: Literal["now", "beginning"] = "now",
    concurrency: int | None = None,
    rate: str | None = None,
    batch: int | None = None,
) -> Callable[[H], H]:
    """Register a class or a function as handler of these events, given as classes or as patterns of their names.

    It may be stacked, one stable name per set of options. An event of a class is given as that class; any other that
    a pattern means as a `StoredEvent`.
    """
    classes = tuple(found for found in events if not isinstance(found, str))
    patterns = tuple(found for found in events if isinstance(found, str))
    _check_events(classes, patterns)

    def register(handler: H) -> H:
        _check_handler(handler, classes, patterns, in_batches=batch is not None)
        own = _default_name(handler) if name is None else name
        _add(
            HandlerRegistration(
                *(own, handler, classes, renamed_from, retry, timeout, ordered, on_dead, queue, patterns),
                *(atomic, start, concurrency, rate, batch),
            )
        )
        return handler

    return register


def get_handlers_for(event_class: type[DomainEvent]) -> tuple[HandlerRegistration, ...]:
    """Return who handles events of this class, by name."""
    return tuple(found for found in registered_handlers() if found.is_for(event_class))


def registered_handlers() -> tuple[HandlerRegistration, ...]:
    """Return every registered handler, by name."""
    return tuple(registration for _, registration in sorted(catalogue.definitions.handlers.items()))


def _check_events(classes: tuple[Any, ...], patterns: tuple[str, ...]) -> None:
    for found in classes:
        if not is_subclass(found, DomainEvent):
            raise DefinitionError(
                f"@handles takes event classes and patterns of their names, and {found!r} is none: "
                '@handles(AccountCreated), @handles("order.*")'
            )
    for pattern in patterns:
        check_pattern(pattern)


def _check_handler(
    handler: Any, classes: tuple[type[DomainEvent], ...], patterns: tuple[str, ...], *, in_batches: bool
) -> None:
    if not isinstance(handler, type) and not inspect.isfunction(handler):
        raise DefinitionError(f"@handles stands on a class or a function, and {handler!r} is neither")
    if not (classes or patterns):
        raise DefinitionError(
            f"@handles on {handler.__name__} names no event; write @handles(AccountCreated)"
        )
    for event_class in classes:
        if event_class not in catalogue.definitions.event_by_class:
            raise DefinitionError(
                f"@handles on {handler.__name__}: {event_class!r} is no event; put @event on it"
            )
    handle = handler
    if isinstance(handler, type):
        handle = _checked_method(handler)
    else:
        _check_function(handler)
    taken = [each.annotation for each in inspect.signature(handle).parameters.values()]
    taken = taken[1:2] if isinstance(handler, type) else taken[:1]
    if taken not in ([], [inspect.Parameter.empty]):
        declared = resolved(taken[0], handle.__module__)
        check_annotation(handler.__name__, declared, classes, patterns, in_batches=in_batches)


def _checked_method(cls: type) -> Any:
    """Return a class's `handle`, or refuse the class."""
    handle: Any = getattr(cls, "handle", None)
    if not inspect.iscoroutinefunction(handle):
        raise DefinitionError(
            f"{cls.__name__} is no EventHandler; give it `async def handle(self, event)`, or put @handles on a "
            "function: one that is not async runs in a thread"
        )
    try:
        inspect.signature(handle).bind(None, None)
    except TypeError as error:
        raise DefinitionError(
            f"{cls.__name__}.handle must take the event and nothing else it needs ({error}); "
            "dependencies belong in the constructor"
        ) from error
    return handle


def _check_function(function: Callable[..., Any]) -> None:
    owner = function.__qualname__.rpartition(".")[0]
    if owner and not owner.endswith("<locals>"):
        raise DefinitionError(
            f"@handles stands on {function.__qualname__}, a method; put it on the class, or on a function"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(f"{function.__qualname__} yields, so calling it does nothing; let it return")
    check_parameters(function)


def _default_name(handler: Callable[..., Any]) -> str:
    """Name a handler <context>.<its own name>: the context is the package that has the `handlers` room."""
    parts = handler.__module__.split(".")
    context = parts[parts.index("handlers", 1) - 1] if "handlers" in parts[1:] else parts[-1]
    return f"{context}.{handler.__name__}"


def _add(registration: HandlerRegistration) -> None:
    check_options(registration)
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
    if attrs.evolve(present, events=registration.events, patterns=registration.patterns) != registration:
        raise DefinitionError(
            f"handler {registration.name!r} is registered twice with different options; "
            "use one @handles for all its events, or give the second another name="
        )
    events = dict.fromkeys((*present.events, *registration.events))
    patterns = dict.fromkeys((*present.patterns, *registration.patterns))
    handlers[registration.name] = attrs.evolve(present, events=tuple(events), patterns=tuple(patterns))


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


def unknown_types(registrations: Iterable[HandlerRegistration]) -> list[tuple[str, str]]:
    """Return a sentence for each pattern that names no event known here, after its handler's name; for start-up.

    It is no error: another service may record the type, or a queue bring it. Of a queue's, only what is nearly the name
    of a known type is told.
    """
    known = catalogue.definitions.event_by_name
    found = []
    for each in registrations:
        for pattern in each.patterns:
            if "*" in pattern or pattern in known:
                continue
            near = get_close_matches(pattern, known, n=1)
            if near or each.queue is None:
                meant = f"if {near[0]!r} is meant, correct it" if near else "correct it if it is misspelt"
                sentence = (
                    f"handler {each.name} is for {pattern!r}, and no event of that name is known here: {meant}, else "
                    "let it be, if another service records such events"
                )
                found.append((each.name, sentence))
    return found


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
