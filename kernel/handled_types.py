"""What a handler takes, by its annotation: refused where it plainly is not what it is registered for (K5)."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, get_args, get_origin

from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.stored import StoredEvent
from outbox_kernel.kernel.wire.types import admits, is_union, unwrapped

if TYPE_CHECKING:
    from outbox_kernel.kernel.events import DomainEvent


def check_annotation(
    name: str,
    declared: Any,
    classes: tuple[type[DomainEvent], ...],
    patterns: tuple[str, ...],
    *,
    in_batches: bool,
) -> None:
    """Refuse an event that a handler plainly does not take; in batches, what plainly is no sequence of them."""
    shown = inspect.formatannotation(declared)
    if in_batches:
        first = classes[0].__name__ if classes else "StoredEvent"
        declared = _element(declared, f"@handles on {name} has batch=, but its handle takes {shown}", first)
    for event_class in classes:
        if not _takes(declared, event_class):
            several = (
                "" if in_batches or not _is_list(declared) else ", or give it batch= to get several at once"
            )
            raise DefinitionError(
                f"@handles on {name} names {event_class.__name__}, but its handle takes {shown}; "
                f"make these the same, or annotate a union of all its events{several}"
            )
    if patterns and not _takes(declared, StoredEvent):
        raise DefinitionError(
            f"@handles on {name} names the pattern {patterns[0]!r}, but its handle takes {shown}; "
            "let it take a StoredEvent, in a union with the classes that are named as well"
        )


def _element(declared: Any, refused: str, event: str) -> Any:
    """Return of what a list may be given; Any, if that cannot be told."""
    declared = unwrapped(declared)
    if is_union(declared):
        declared = next((member for member in get_args(declared) if _is_list(member)), declared)
    if _is_list(declared):
        return next(iter(get_args(declared)), Any)
    origin = get_origin(declared)
    if admits(origin if isinstance(origin, type) else declared, partial(issubclass, list)):
        return Any
    raise DefinitionError(f"{refused}; annotate Sequence[{event}], since it gets several events at once")


def _is_list(declared: Any) -> bool:
    """Whether it is list or what a list is, such as Sequence."""
    origin = get_origin(unwrapped(declared)) or unwrapped(declared)
    return isinstance(origin, type) and origin is not object and issubclass(list, origin)


def _takes(declared: Any, cls: type) -> bool:
    """Whether a parameter of this type may be given such an object; what cannot be told may."""
    declared = unwrapped(declared)
    if is_union(declared):
        return any(_takes(member, cls) for member in get_args(declared))
    origin = get_origin(declared)
    # Of `list[X]` a list is meant, whatever is in it.
    return admits(origin if isinstance(origin, type) else declared, partial(issubclass, cls))
