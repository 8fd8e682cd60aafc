"""The testing kit as pytest fixtures; installed with the distribution, loaded by pytest itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outbox_kernel.testing import FrozenClock, InMemoryUnitOfWork

# The kit is imported by the fixtures that use it: this plugin is loaded into every pytest of its environment.


@pytest.fixture
def in_memory_uow() -> InMemoryUnitOfWork:
    """A unit of work in memory on a store of its own, for use cases under test."""
    from outbox_kernel.testing import InMemoryUnitOfWork  # noqa: PLC0415 - as said above

    return InMemoryUnitOfWork()


@pytest.fixture
def frozen_clock() -> Iterator[FrozenClock]:
    """A clock that stands still until `advance(seconds)`, in use; event ids are counted."""
    from outbox_kernel.testing import FrozenClock, using_clock  # noqa: PLC0415 - as said above

    with using_clock(FrozenClock()) as clock:
        yield clock


@pytest.fixture
def isolated_event_definitions() -> Iterator[None]:
    """Events, aggregates, upcasters and handlers defined in the test are forgotten after it."""
    from outbox_kernel.testing import isolated_definitions  # noqa: PLC0415 - as said above

    with isolated_definitions():
        yield
