"""The unit of work: what a use case changes is committed as one, with its events, or not at all."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, overload

from outbox_kernel.kernel.aggregate import AggregateRoot
from outbox_kernel.kernel.errors import ConcurrencyError, DefinitionError
from outbox_kernel.kernel.limits import CONFLICT_ATTEMPTS_MAX, FIRST_PAUSE_SECONDS
from outbox_kernel.kernel.wire.types import is_subclass

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime
    from types import TracebackType

    from outbox_kernel.kernel.bus import EventBus
    from outbox_kernel.kernel.events import DomainEvent

A = TypeVar("A", bound=AggregateRoot)
P = ParamSpec("P")
T = TypeVar("T")


class Repository(Protocol[A]):
    """The aggregates of one class, as if they were all in memory."""

    def add(self, aggregate: A) -> None:
        """Take a new aggregate in."""

    async def get(self, identity: object) -> A | None:
        """Return the aggregate with this id, loaded anew if it is stale, or None."""

    async def remove(self, aggregate: A) -> None:
        """Delete an aggregate; its events are kept."""


class UnitOfWork(Protocol):
    """`async with uow:` … `await uow.commit()`; leaving without a commit rolls back."""

    @property
    def bus(self) -> EventBus:
        """The collector of this unit's emitted events."""

    async def __aenter__(self) -> Self:
        """Begin."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Roll back what was not committed."""

    async def commit(self) -> None:
        """Make everything since the last commit durable, events included, or raise and store nothing."""

    async def rollback(self) -> None:
        """Undo everything since the last commit."""

    def emit(
        self,
        event: DomainEvent,
        *,
        aggregate_type: str | type[AggregateRoot] | None = None,
        aggregate_id: object = None,
        not_before: datetime | None = None,
    ) -> None:
        """Commit an event that no aggregate of this unit records; with `not_before`, to be handled from then on."""

    def repository(self, aggregate_class: type[A]) -> Repository[A]:
        """Return the repository of an aggregate class."""


def check_aggregate_class(cls: object) -> None:
    """Refuse a repository of what records no events, and has no version that would tell its writers apart."""
    if not is_subclass(cls, AggregateRoot):
        shown = cls.__name__ if isinstance(cls, type) else type(cls).__name__
        raise DefinitionError(
            f"repository(…) takes the class of an aggregate, and {shown} is none: derive it from AggregateRoot or "
            "MappedAggregate, or reach it through its aggregate or a query"
        )


@overload
def retry_on_conflict(
    use_case: Callable[P, Coroutine[Any, Any, T]], /
) -> Callable[P, Coroutine[Any, Any, T]]: ...
@overload
def retry_on_conflict(
    *, attempts: int = CONFLICT_ATTEMPTS_MAX
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]: ...
def retry_on_conflict(
    use_case: Callable[P, Coroutine[Any, Any, T]] | None = None, /, *, attempts: int = CONFLICT_ATTEMPTS_MAX
) -> (
    Callable[P, Coroutine[Any, Any, T]]
    | Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]
):
    """Run a use case again, from its first line, when another writer was first (C4)."""
    if attempts < 1:
        raise ValueError(f"retry_on_conflict makes at least one attempt, not {attempts}")

    def wrap(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @functools.wraps(function)
        async def attempt(*args: P.args, **kwargs: P.kwargs) -> T:
            for failures in range(1, attempts):
                try:
                    return await function(*args, **kwargs)
                except ConcurrencyError:
                    await _pause(FIRST_PAUSE_SECONDS * 2**failures)
            return await function(*args, **kwargs)

        return attempt

    return wrap if use_case is None else wrap(use_case)


async def _pause(seconds_max: float) -> None:
    # A fifth of the kernel's import time, and only a conflict needs it.
    import asyncio  # noqa: PLC0415

    # A random pause parts writers that would otherwise collide in step again.
    await asyncio.sleep(seconds_max * random.random())  # noqa: S311 - no secret
