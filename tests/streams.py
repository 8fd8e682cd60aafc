"""An aggregate's events as queues bring them, and what the relay beside a consumer does with them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import attrs

from outbox_kernel.infrastructure.brokers.received import Received
from outbox_kernel.infrastructure.inbox.storing import Storage
from outbox_kernel.infrastructure.outbox.sql import at_home
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.relaying import Stage, handler

WALLET = UUID(int=7)


class Stream:
    """An aggregate's events, told by letters, as messages tell of them."""

    def __init__(self, whats: str = "abcdef", wallet: UUID = WALLET) -> None:
        self.whats, self.wallet, self.moment = whats, wallet, datetime.now(UTC)
        self.ids = {what: uuid4() for what in whats}

    def __getitem__(self, whats: str) -> list[Received]:
        return [self._received(what) for what in whats]

    def _received(self, what: str) -> Received:
        payload = {"event_id": str(self.ids[what]), "occurred_at": self.moment.isoformat(), "what": what}
        number = self.whats.index(what) + 1
        return Received(
            *(self.ids[what], "bank.noted", 1, "bank.wallet", self.wallet, number),
            *(json.dumps(payload), "{}", self.moment),
        )


def of(queue: str, act: Any, **options: Any) -> HandlerRegistration:
    """The handler of a queue, which has its name."""
    return handler(f"{queue}'s", act, queue=queue, **options)


async def handle(stage: Stage, *handlers: HandlerRegistration, at: float = 0) -> None:
    """Let the relay beside the consumer of these queues do what there is to do."""
    queues = [str(each.queue) for each in handlers]
    relay = OutboxRelay(stage.engine, stage.container, handlers=handlers, queues=queues, now=stage.at(at))
    stage.relays.append(relay)
    await relay.run_until_idle()


async def store(stage: Stage, queue: str, events: list[Received], line: Any = None) -> None:
    """Store what the queue brings, all of it; by a line, or a connection that a test has."""
    taken: Any = stage.line() if line is None else Direct(line)
    assert await Storage(queue).store(taken, events) == {}


@attrs.frozen
class Direct:
    """A connection as it came, for what a line sends."""

    connection: Any

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        """Run a statement where the search path finds its tables."""
        found: list[Any] = await self.connection.fetch(at_home(statement, None), *arguments)
        return found
