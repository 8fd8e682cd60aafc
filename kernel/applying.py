"""The methods through which an aggregate that lives by its events changes its state (K3)."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.events import DomainEvent
from outbox_kernel.kernel.wire.types import is_subclass

if TYPE_CHECKING:
    from collections.abc import Callable

M = TypeVar("M", bound="Callable[..., None]")

_APPLIED_EVENTS = "__applied_events__"


def applies(*event_classes: type[DomainEvent]) -> Callable[[M], M]:
    """Mark the method through which these events change the aggregate's state (K3); may be stacked."""
    if not event_classes or not all(is_subclass(found, DomainEvent) for found in event_classes):
        raise DefinitionError("@applies needs the event class that the method applies: @applies(OrderPlaced)")

    def mark(method: M) -> M:
        setattr(method, _APPLIED_EVENTS, (*_applied_by(method), *event_classes))
        return method

    return mark


def appliers_of(cls: type[Any]) -> dict[type[DomainEvent], str]:
    """Return which method applies which event, by its name, so that an override is called as any other is."""
    found: dict[type[DomainEvent], str] = {}
    for base in reversed(cls.__mro__):
        own = _own_appliers(base)
        # A method that is marked anew applies what it now says, and nothing else.
        found = {event_class: name for event_class, name in found.items() if name not in own.values()} | own
    for name in found.values():
        _check_runs(cls, name)
    return found


def _own_appliers(base: type[Any]) -> dict[type[DomainEvent], str]:
    own: dict[type[DomainEvent], str] = {}
    for name, method in vars(base).items():
        for event_class in _applied_by(method):
            if own.setdefault(event_class, name) != name:
                raise DefinitionError(
                    f"{base.__name__} applies {event_class.__name__} in two methods, {own[event_class]} and {name}; "
                    "make them one"
                )
    return own


def _applied_by(method: Any) -> tuple[type[DomainEvent], ...]:
    marks: tuple[type[DomainEvent], ...] = getattr(method, _APPLIED_EVENTS, ())
    return marks if isinstance(marks, tuple) else ()


def _check_runs(cls: type[Any], name: str) -> None:
    method = getattr(cls, name)
    if (
        inspect.iscoroutinefunction(method)
        or inspect.isgeneratorfunction(method)
        or inspect.isasyncgenfunction(method)
    ):
        raise DefinitionError(
            f"{cls.__name__}.{name} is marked with @applies and would not run when it is called; "
            "make it a plain function, without async and yield"
        )
