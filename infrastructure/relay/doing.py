"""Who does what a subscriber has in hand, who hears of it, and who writes how deliveries went (R5, R7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from outbox_kernel.infrastructure.relay.pausing import Pause
    from outbox_kernel.infrastructure.relay.rows import LoggedEvent, Outcome
    from outbox_kernel.infrastructure.relay.running import Verdict
    from outbox_kernel.infrastructure.relay.workers import Worker
    from outbox_kernel.infrastructure.relay.works import Work
    from outbox_kernel.infrastructure.telemetry.counting import SubscriptionCounts


class Settling(Protocol):
    """Who writes how deliveries went."""

    def settle(self, row: LoggedEvent, outcome: Outcome) -> None:
        """Write how a delivery went."""

    def give_back(self, row: LoggedEvent, handler: str) -> None:
        """Write that a delivery is to be run again, uncharged."""

    def look_everywhere(self) -> None:
        """Look for deliveries of which nobody has said anything."""


class Doing(Protocol):
    """What a subscriber does with an event."""

    counts: SubscriptionCounts | None
    """Where it is counted, if anybody asks for numbers."""

    @property
    def is_away(self) -> bool:
        """Whether what it delivers to is away."""

    @property
    def pause(self) -> Pause | None:
        """Why it stands still, for people to read."""

    def __call__(self, worker: Worker, work: Work) -> Awaitable[Verdict | None]:
        """Do it; raise Away if it is nobody's failure that it was not done, and it is to be done again."""

    def given_up(self, worker: Worker, work: Work) -> None:
        """Decide about a run that does not end even when it is cancelled."""


class Performer(Protocol):
    """Who says what a worker does, and hears what became of it."""

    def perform(self, worker: Worker, work: Work) -> Awaitable[Verdict | None]:
        """Do one work; None if what became of it is of no account. Raise Away if it is to be done again."""

    def note_pause(self) -> bool:
        """Stand still while there is reason to."""

    def settled(self, work: Work, verdict: Verdict, *, is_late: bool) -> None:
        """Take note of an end."""

    def stepped_aside(self, work: Work) -> None:
        """Take note that a work is slow."""

    def given_up(self, worker: Worker, work: Work) -> None:
        """Decide about a run that does not end even when it is cancelled."""

    def given_back(self, work: Work, *, is_late: bool) -> None:
        """Take note that a work was ended by the relay, and is to be done again."""

    def place_freed(self) -> None:
        """Take note that there is room for one more that is slow."""

    def must_wait(self, work: Work) -> bool:
        """Whether something before it is unsettled; then it has been left for later."""
