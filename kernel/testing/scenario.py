"""Given, when, then: an aggregate's behaviour as a sentence.

given(account).when(lambda account: account.close("asked")).then(AccountClosed(reason="asked"))
given(Account, AccountOpened(ID)).when(Account.close).then_raises(ValueError, match="reason")
when(lambda: Account.open(ID)).then(AccountOpened(ID))
"""

from __future__ import annotations

import inspect
import re
import reprlib
from typing import TYPE_CHECKING, Generic, TypeVar

from outbox_kernel.kernel.aggregate import AggregateRoot
from outbox_kernel.kernel.bus import in_order
from outbox_kernel.kernel.testing.assertions import assert_recorded
from outbox_kernel.kernel.testing.comparison import described
from outbox_kernel.kernel.testing.copying import copied, refill
from outbox_kernel.kernel.wire.types import is_subclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from outbox_kernel.kernel.events import DomainEvent
    from outbox_kernel.kernel.testing.comparison import Expected

A = TypeVar("A", bound=AggregateRoot)


def given(aggregate: A | type[A], *events: DomainEvent) -> Given[A]:
    """Start from an aggregate as it is, or from a class that lives by its events (K3) and its history."""
    if not (isinstance(aggregate, AggregateRoot) or is_subclass(aggregate, AggregateRoot)):
        raise TypeError(
            "given(…) takes an aggregate, or an aggregate's class with its history, and "
            f"{reprlib.repr(aggregate)} is neither"
        )
    if isinstance(aggregate, type):
        return Given(aggregate.replay(events))
    if events:
        raise TypeError("given(…) takes a history with a class: given(Account, AccountOpened(…))")
    # Whatever made it what it is was long committed.
    aggregate._forget_events(up_to=aggregate.version)
    return Given(aggregate)


def when(action: Callable[[], object]) -> Outcome:
    """Run an action that starts from nothing and returns the aggregate it makes."""
    return Outcome(action)


class Given(Generic[A]):
    """An aggregate that something is about to happen to; each `when` starts from it as it was given."""

    def __init__(self, aggregate: A) -> None:
        self.aggregate = aggregate
        self._start = copied(aggregate)

    def when(self, action: Callable[[A], object]) -> Outcome:
        """Run an action on the aggregate."""
        refill(self.aggregate, self._start)
        self.aggregate._forget_events(above=self.aggregate.version)
        return Outcome(lambda: action(self.aggregate), self.aggregate)


class Outcome:
    """What an action recorded, returned or raised."""

    def __init__(self, action: Callable[[], object], *aggregates: AggregateRoot) -> None:
        self.result: object = None
        """What the action returned."""
        self._error: Exception | None = None
        try:
            self.result = action()
        except Exception as error:  # noqa: BLE001 - `then` raises it, `then_raises` expects it
            self._error = error
        if inspect.isawaitable(self.result):
            raise TypeError(
                "when(…) runs plain functions; await a use case and assert_recorded(uow, …) instead"
            )
        made = [self.result] if isinstance(self.result, AggregateRoot) else []
        sources = {id(each): each for each in (*aggregates, *made)}.values()
        self.events: tuple[DomainEvent, ...] = tuple(
            in_order([event for each in sources for event in each.recorded_events])
        )
        """What the aggregate, and the one that the action returned, recorded."""

    def then(self, *expected: Expected) -> Outcome:
        """Assert that the action recorded exactly these events, as `assert_recorded` compares them."""
        __tracebackhide__ = True
        if self._error is not None:
            raise self._error
        assert_recorded(self.events, *expected)
        return self

    def then_nothing(self) -> Outcome:
        """Assert that the action recorded nothing and raised nothing."""
        __tracebackhide__ = True
        return self.then()

    def then_raises(self, error: type[Exception], match: str | None = None) -> Outcome:
        """Assert that the action raised this, with a message that the pattern is found in."""
        __tracebackhide__ = True
        if self._error is None:
            recorded = ", ".join(described(event) for event in self.events) or "nothing"
            raise AssertionError(f"{error.__name__} was expected, but none was raised; recorded: {recorded}")
        if not isinstance(self._error, error):
            raise self._error
        if match is not None and not re.search(match, str(self._error)):
            raise AssertionError(
                f"{type(self._error).__name__} was raised as expected, but {match!r} is not found in "
                f"{str(self._error)!r}"
            ) from self._error
        return self
