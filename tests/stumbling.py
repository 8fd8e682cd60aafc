"""A unit of work that fails at one of its steps.

Its steps are the calls of a method of its own or of its repositories, and each event that an aggregate records. What
was done before a call has been sent to the database by then, so that a failure that leaves nothing has taken something
back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from itertools import count
from types import TracebackType
from typing import Any, Self

import pytest

from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.kernel import AggregateRoot, DomainEvent

STEPS_MAX = 50


class Stumbled(Exception):
    """The step that was to fail did."""


class StumblingUnitOfWork:
    """Everything that the given one is, up to the step that fails. Entering it and leaving it are none."""

    def __init__(self, uow: SqlAlchemyUnitOfWork, fails_at: int) -> None:
        self._uow, self._fails_at = uow, fails_at
        self.steps: list[str] = []
        """The calls so far by name, the one that failed included."""

    async def __aenter__(self) -> Self:
        await self._uow.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._uow.__aexit__(kind, error, traceback)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._uow, name)
        return self.step(name, found) if callable(found) else _Repository(self, name, found)

    def step(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Make a method count as a step."""
        if not iscoroutinefunction(method):

            def call(*arguments: Any) -> Any:
                self._begin(name)
                return method(*arguments)

            return call

        async def call_and_wait(*arguments: Any) -> Any:
            await self._uow.session.flush()
            self._begin(name)
            return await method(*arguments)

        return call_and_wait

    @contextmanager
    def recording_in_steps(self) -> Iterator[None]:
        """Make it a step too when an aggregate records an event: a command may have several."""
        record = AggregateRoot.record

        def step(aggregate: AggregateRoot, event: DomainEvent) -> None:
            self._begin(f"record {type(event).__name__}")
            record(aggregate, event)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AggregateRoot, "record", step)
            yield

    def _begin(self, name: str) -> None:
        self.steps.append(name)
        if len(self.steps) == self._fails_at:
            raise Stumbled(f"before {name}, step {self._fails_at}")


class _Repository:
    def __init__(self, uow: StumblingUnitOfWork, name: str, repository: Any) -> None:
        self._uow, self._name, self._repository = uow, name, repository

    def __getattr__(self, method: str) -> Any:
        return self._uow.step(f"{self._name}.{method}", getattr(self._repository, method))


async def stumbling(
    uow: SqlAlchemyUnitOfWork, use_case: Callable[[Any], Awaitable[object]]
) -> AsyncIterator[str]:
    """Run a use case with its first step failing, then its second, until none is left to fail and it succeeds.

    Yields the name of the step after each failure.
    """
    for fails_at in count(1):
        assert fails_at <= STEPS_MAX, "the use case comes to no end"
        attempt = StumblingUnitOfWork(uow, fails_at)
        try:
            with attempt.recording_in_steps():
                await use_case(attempt)
        except Stumbled:
            yield attempt.steps[-1]
        else:
            return
