"""The testing kit: use cases, aggregates and handlers under test without a database (K12).

async def test_closing_an_account_is_an_event() -> None:
    uow = InMemoryUnitOfWork()
    uow.store.put(Account(ACCOUNT_ID))
    await CloseAccount(uow)(ACCOUNT_ID, reason="asked")
    assert_recorded(uow, AccountClosed(ACCOUNT_ID, reason=ANY))
"""

from unittest.mock import ANY

from kernel.catalogue import isolated_definitions
from kernel.clock import using_clock
from kernel.testing.assertions import assert_recorded
from kernel.testing.clock import FrozenClock
from kernel.testing.comparison import exactly
from kernel.testing.handling import run_handler
from kernel.testing.records import CommittedEvent
from kernel.testing.scenario import Given, Outcome, given, when
from kernel.testing.store import InMemoryStore
from kernel.testing.unit_of_work import InMemoryRepository, InMemoryUnitOfWork

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
