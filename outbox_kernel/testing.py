"""What a tester takes: recorded events asserted without a database, time that stands still, handlers run by hand."""

from outbox_kernel.kernel.testing import (
    ANY,
    CommittedEvent,
    FrozenClock,
    Given,
    InMemoryRepository,
    InMemoryStore,
    InMemoryUnitOfWork,
    Outcome,
    assert_recorded,
    exactly,
    given,
    isolated_definitions,
    run_handler,
    using_clock,
    when,
)

__all__ = [
    "ANY",
    "CommittedEvent",
    "FrozenClock",
    "Given",
    "InMemoryRepository",
    "InMemoryStore",
    "InMemoryUnitOfWork",
    "Outcome",
    "assert_recorded",
    "exactly",
    "given",
    "isolated_definitions",
    "run_handler",
    "using_clock",
    "when",
]
