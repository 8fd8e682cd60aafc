"""What did not succeed at once in the shop: the dead, what waits behind them, what is tried again, what was let go."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.sample.limits import (
    AGAIN_SECONDS,
    DEAD_APART_SECONDS,
    DEAD_SECONDS,
    DONE_SECONDS,
    LATER_SECONDS,
    LEASED_SECONDS,
    NEWER_SECONDS,
    RETRYING_SECONDS,
)
from outbox_kernel.infrastructure.sample.shop import DEAD, NEWER, RETRYING, SUBSCRIPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from outbox_kernel.infrastructure.sample.shop import Died
    from outbox_kernel.infrastructure.sample.story import Told

_VERSION_OF_NOBODY = 2


@attrs.frozen(kw_only=True)
class Row:
    """A delivery of the sample."""

    event_id: UUID
    handler: str
    state: str
    attempts: int = 0
    error: str | None = None
    seconds: float = 0.0
    """How long ago it last changed."""
    next_seconds: float = 0.0
    relay: UUID | None = None


class Failures:
    """Chooses, of a week's events, those that have deliveries."""

    def __init__(self, told: Sequence[Told], relay: UUID) -> None:
        self.rows: list[Row] = []
        self.receipts: list[tuple[UUID, str, str]] = []
        self._relay = relay
        self._due = {
            each.name: [event for event in told if each.is_due(event.event_type, event.source)]
            for each in SUBSCRIPTIONS
        }
        self._taken: set[tuple[str, UUID]] = set()
        for died in DEAD:
            self._die(died)
        self._try_again()
        self._hold("search.IndexProducts")
        self._settle("mail.Welcome")
        self._wait(next(event for event in told if event.waits))

    def _die(self, died: Died) -> None:
        for number, error in zip(range(died.letters), cycle(died.errors), strict=False):
            event = self._next(died.handler, DEAD_SECONDS + DEAD_APART_SECONDS * number)
            words = {"customer": event.payload.get("customer", "?"), "code": 4_000 + 37 * number}
            self._add(event, died.handler, "dead", attempts=died.attempts, error=error.format(**words))
            self._park(event, died.handler)
            if died.half_done:
                self.receipts.append((event.event_id, died.handler, "done"))

    def _park(self, dead: Told, handler: str) -> None:
        """Let the later events of its aggregate wait behind a dead delivery."""
        for event in self._due[handler]:
            is_behind = event.key == dead.key and event.aggregate_type == dead.aggregate_type
            is_taken = (handler, event.event_id) in self._taken
            if dead.key is not None and is_behind and event.seconds < dead.seconds and not is_taken:
                self._taken.add((handler, event.event_id))
                self._add(event, handler, "waiting")

    def _try_again(self) -> None:
        for number in range(1, RETRYING.letters + 1):
            event = self._next(RETRYING.handler, RETRYING_SECONDS)
            error = RETRYING.errors[0].format(code=10 + number)
            self._add(
                event,
                RETRYING.handler,
                "waiting",
                attempts=number,
                error=error,
                next_seconds=AGAIN_SECONDS * number,
            )

    def _hold(self, handler: str) -> None:
        """Let a relay have one in its hands."""
        self._add(self._next(handler, LEASED_SECONDS), handler, "leased", relay=self._relay)

    def _settle(self, handler: str) -> None:
        """Let one have succeeded at last, and one have been skipped."""
        for state in ("done", "skipped"):
            event = self._next(handler, DONE_SECONDS)
            self._add(event, handler, state, attempts=1)
            self.receipts.append((event.event_id, handler, state))

    def _wait(self, later: Told) -> None:
        """Let one wait for its time, and one for a relay with newer code."""
        self._add(later, "messaging", "waiting", next_seconds=LATER_SECONDS)
        newer = self._next(NEWER, NEWER_SECONDS)
        newer.event_version = _VERSION_OF_NOBODY
        self._add(newer, NEWER, "waiting")

    def _next(self, handler: str, older_than: float) -> Told:
        """Choose the newest that is old enough, and the first of what may wait behind it."""
        event = next(
            event
            for event in reversed(self._due[handler])
            if event.seconds > older_than
            and (handler, event.event_id) not in self._taken
            and not event.event_type.endswith(".confirmed")
        )
        self._taken.add((handler, event.event_id))
        return event

    def _add(self, event: Told, handler: str, state: str, **more: Any) -> None:
        seconds = max(0.0, event.seconds - 300.0)
        self.rows.append(Row(event_id=event.event_id, handler=handler, state=state, seconds=seconds, **more))

    def columns(self) -> dict[str, list[Any]]:
        """Return the deliveries as the statement takes them."""
        return {
            "event_ids": [row.event_id for row in self.rows],
            "handlers": [row.handler for row in self.rows],
            "states": [row.state for row in self.rows],
            "attempts": [row.attempts for row in self.rows],
            "errors": [row.error for row in self.rows],
            "seconds": [row.seconds for row in self.rows],
            "next_seconds": [row.next_seconds for row in self.rows],
            "relays": [row.relay for row in self.rows],
        }

    def receipt_columns(self) -> dict[str, list[Any]]:
        """Return the receipts as the statement takes them."""
        event_ids, handlers, outcomes = zip(*self.receipts, strict=True)
        return {"event_ids": [*event_ids], "handlers": [*handlers], "outcomes": [*outcomes]}
