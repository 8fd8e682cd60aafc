"""The testing kit: use cases, aggregates and handlers under test without a database (K12).

async def test_closing_an_account_is_an_event() -> None:
    uow = InMemoryUnitOfWork()
    uow.store.put(Account(ACCOUNT_ID))
    await CloseAccount(uow)(ACCOUNT_ID, reason="asked")
    assert_recorded(uow, AccountClosed(ACCOUNT_ID, reason=ANY))

`unit_of_work` and `store` behave as capture on PostgreSQL does, which tests/conformance sees to; `assertions`,
`scenario` and `comparison` say what differs; `handling` runs one handler as a relay would. Tests of applications call
it by the name `outbox_kernel.testing`; the plugin of pytest gives parts of it as fixtures.

It may import the kernel, and nothing that needs a database.
"""

from unittest.mock import ANY

from outbox_kernel.kernel.catalogue import isolated_definitions
from outbox_kernel.kernel.clock import using_clock
from outbox_kernel.kernel.testing.assertions import assert_recorded
from outbox_kernel.kernel.testing.clock import FrozenClock
from outbox_kernel.kernel.testing.comparison import exactly
from outbox_kernel.kernel.testing.handling import run_handler
from outbox_kernel.kernel.testing.records import CommittedEvent
from outbox_kernel.kernel.testing.scenario import Given, Outcome, given, when
from outbox_kernel.kernel.testing.store import InMemoryStore
from outbox_kernel.kernel.testing.unit_of_work import InMemoryRepository, InMemoryUnitOfWork

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
