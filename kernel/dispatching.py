"""The port through which events leave a use case (K6); implementations belong to infrastructure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outbox_kernel.kernel.events import DomainEvent


@runtime_checkable
class EventDispatcher(Protocol):
    """Takes events and sees to it that their handlers get them."""

    async def dispatch(self, events: Iterable[DomainEvent]) -> None:
        """Hand the events over, in their order."""
