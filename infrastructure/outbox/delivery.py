"""A delivery as a relay takes it out of `outbox_deliveries`, and as it writes what became of it (R5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.outbox.limits import ERROR_CHARACTERS_MAX
from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent, column
from outbox_kernel.infrastructure.outbox.sql.named import arrays

if TYPE_CHECKING:
    from collections.abc import Iterable


class DueDelivery(LoggedEvent):
    """A delivery that a relay has leased, with its event."""

    handler: str = column("handler")
    turn: str = column("order_key")
    place: int = column("place")
    attempts: int = column("attempts")
    is_skipped: bool = column("is_skipped")
    """Whether an operator has said so before its turn came."""


@attrs.define(eq=False)
class Outcome:
    """How a handler stands with an event that it did not succeed with at once."""

    row: LoggedEvent
    handler: str
    order_key: str
    status: str
    attempts: int = 0
    takeovers: int = 0
    on_dead: str = "park"
    delay_seconds: float = 0.0
    error_message: str | None = None

    @property
    def turn(self) -> tuple[str, str]:
        """The handler, and the key within which it takes one after the other."""
        return self.handler, self.order_key

    @property
    def has_passed(self) -> bool:
        """Whether later events of its turn have nothing to wait for."""
        return self.status in ("done", "skipped")

    def _settled(self) -> tuple[Any, ...]:
        return (
            *(self.row["event_id"], self.handler, self.status, self.attempts, self.on_dead),
            *(self.delay_seconds, self.error_message),
        )

    def _left(self) -> tuple[Any, ...]:
        row = self.row
        return (*self._settled(), row["position"], self.order_key, self.takeovers, row["not_before"])


_SETTLED = ("event_ids", "handlers", "states", "attempts", "on_dead", "delays", "errors")
_LEFT = (*_SETTLED, "places", "order_keys", "takeovers", "not_before")


def settled(outcomes: Iterable[Outcome]) -> dict[str, list[Any]]:
    """Return what SETTLE_DELIVERIES writes of deliveries that there are."""
    return arrays(_SETTLED, [each._settled() for each in outcomes])


def left(outcomes: Iterable[Outcome]) -> dict[str, list[Any]]:
    """Return what LEAVE_AND_MOVE writes of deliveries that there are from now on."""
    return arrays(_LEFT, [each._left() for each in outcomes])


def storable(text: str) -> str:
    """Return the words of an error as a column takes them."""
    # NUL is what a text column cannot hold, and a lone surrogate no encoding.
    text = text.replace("\0", "\\0")
    return text.encode(errors="backslashreplace").decode()[:ERROR_CHARACTERS_MAX]


@attrs.define
class Counts:
    """What a relay has done: events and deliveries, each for one handler or publisher."""

    claimed: int = 0
    delivered: int = 0
    left: int = 0
    settled: int = 0
    failed: int = 0
    dead: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Return both together."""
        return Counts(*(a + b for a, b in zip(attrs.astuple(self), attrs.astuple(other), strict=True)))

    def note_passed(self, events: int, left: int) -> None:
        """Count events that are passed, and how many of them have deliveries."""
        self.claimed += events
        self.delivered += events - left
        self.left += left

    def note_outcomes(self, outcomes: Iterable[Outcome]) -> None:
        """Count what deliveries came to."""
        for outcome in outcomes:
            self.settled += outcome.has_passed
            self.failed += outcome.status == "waiting" and outcome.error_message is not None
            self.dead += outcome.status == "dead"
