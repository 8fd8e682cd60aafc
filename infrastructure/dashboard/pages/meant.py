"""Which dead letters an address or a form means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from outbox_kernel.infrastructure.dashboard.kinds import kind_of
from outbox_kernel.infrastructure.dashboard.pages.limits import EVENTS_MAX
from outbox_kernel.infrastructure.dashboard.security import Refused
from outbox_kernel.infrastructure.operations.dead_letters import Meant
from outbox_kernel.infrastructure.operations.selection import AggregateKey, Moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FIELDS = ("handler", "kind", "type", "aggregate", "since")


def said_of(get: Callable[[str], str | None]) -> dict[str, str | None]:
    """Return what is said of a filter, as it is handed on."""
    return {name: get(name) for name in FIELDS}


def meant_of(said: dict[str, str | None]) -> Meant:
    """Read a filter, or refuse what is none."""
    if said["handler"] is None:
        raise Refused(404, "this address names no handler: choose a group of dead letters", "address")
    try:
        return Meant(
            handler=said["handler"],
            kind=kind_of(said["kind"]),
            event_type=said["type"],
            aggregate=AggregateKey.parse(said["aggregate"]) if said["aggregate"] else None,
            since=Moment.parse(said["since"]) if said["since"] else None,
        )
    except ValueError as error:
        raise Refused(
            400, f"this filter cannot be read ({error}): write TYPE:ID, or a moment such as 24h", "filter"
        ) from None


def ids_of(given: Iterable[str]) -> list[UUID]:
    """Read the ids of events that were chosen, or refuse what is none."""
    found: list[Any] = []
    for text in given:
        try:
            found.append(UUID(text))
        except ValueError:
            raise Refused(400, f"{text!r} is no event's id: choose from the list", "selection") from None
    if len(found) > EVENTS_MAX:
        raise Refused(400, f"more than {EVENTS_MAX} were chosen at once: choose by a filter", "selection")
    return found
