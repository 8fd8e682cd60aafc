"""What operators decide, and what a relay then does (R2, R4, R6, R9)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from lagom import Container

from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.operations import AggregateKey, Selection
from outbox_kernel.infrastructure.operations.mending import choose_for_retry, choose_for_skip, retry, skip
from outbox_kernel.infrastructure.operations.replaying import replay, rewind
from outbox_kernel.infrastructure.operations.subscriptions import pause, resume, retire
from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
from outbox_kernel.kernel import DomainEvent, RetrySchedule, event, handles
from outbox_kernel.kernel.catalogue import isolated_definitions
from outbox_kernel.kernel.handlers import registered_handlers

HANDLER = "post.Office"


class Post:
    """What the handler has seen, and what it refuses."""

    def __init__(self) -> None:
        self.handled: list[str] = []
        self.broken: set[str] = set()


@pytest.fixture
async def office(outbox: Any) -> AsyncIterator[Any]:
    """A relay with one handler, whose first failure is its last."""
    with isolated_definitions():
        post = Post()

        @event("post.letter")
        class Letter(DomainEvent):
            what: str

        @handles(Letter, name=HANDLER, retry=RetrySchedule.bounded(1), start="beginning")
        class Office:
            async def handle(self, event: Letter) -> None:
                if event.what in post.broken:
                    raise ValueError(event.what)
                post.handled.append(event.what)

        engine = create_engine(outbox.url)
        mine = [each for each in registered_handlers() if each.name == HANDLER]

        async def deliver() -> list[str]:
            post.handled.clear()
            relay = OutboxRelay(engine, Container(), handlers=mine, settings=RelaySettings())
            await relay.run_until_idle()
            return list(post.handled)

        async def send(wallet: UUID, *letters: str) -> None:
            for what in letters:
                payload = {"event_id": str(uuid4()), "occurred_at": "2026-01-31T12:00:00Z", "what": what}
                await outbox.event(wallet, event_type="post.letter", payload=payload)

        post.deliver, post.send = deliver, send  # type: ignore[attr-defined]
        yield post
        await engine.dispose()


async def test_a_retried_dead_letter_and_those_behind_it_are_handled_in_order(
    outbox: Any, office: Any
) -> None:
    office.broken = {"b"}
    await office.send(uuid4(), "a", "b", "c", "d")
    assert await office.deliver() == ["a"]
    office.broken = set()
    await retry(outbox.desk, await choose_for_retry(outbox.desk, Selection()))
    assert await office.deliver() == ["b", "c", "d"]
    assert await outbox.value("SELECT count(*) FROM outbox_status WHERE status = 'delivered'") == 4


async def test_those_behind_a_skipped_dead_letter_go_on(outbox: Any, office: Any) -> None:
    office.broken = {"b"}
    await office.send(uuid4(), "a", "b", "c")
    await office.deliver()
    await skip(outbox.desk, await choose_for_skip(outbox.desk, Selection()))
    assert await office.deliver() == ["c"]
    assert await outbox.value("SELECT count(*) FROM outbox_status WHERE status = 'delivered'") == 3


async def test_a_replay_is_in_order_and_new_events_come_after_it(outbox: Any, office: Any) -> None:
    """R4, R17: what is dead comes again at its turn, too."""
    wallet = uuid4()
    office.broken = {"c"}
    await office.send(wallet, "a", "b", "c", "d")
    assert await office.deliver() == ["a", "b"]
    office.broken = set()
    assert (await rewind(outbox.desk, HANDLER, 2)).events == 3
    await office.send(wallet, "e")
    assert await office.deliver() == ["b", "c", "d", "e"]
    assert await outbox.value("SELECT count(*) FROM outbox_deliveries") == 0


async def test_a_handler_that_is_held_goes_back_and_on_once_it_is_let(outbox: Any, office: Any) -> None:
    """R17: as when it is mended meanwhile."""
    await office.send(uuid4(), "a", "b")
    await office.deliver()
    await pause(outbox.desk, HANDLER)
    await rewind(outbox.desk, HANDLER, 1)
    assert await office.deliver() == []
    assert await outbox.value("SELECT count(*) FROM outbox_status WHERE status = 'pending'") == 2
    await resume(outbox.desk, HANDLER)
    assert await office.deliver() == ["a", "b"]


async def test_single_events_come_again_in_order_and_new_ones_after_them(outbox: Any, office: Any) -> None:
    """R4, R17."""
    wallet = uuid4()
    await office.send(wallet, "a", "b", "c")
    await office.deliver()
    assert (await replay(outbox.desk, HANDLER, aggregate=AggregateKey(wallet))).due == 3
    await office.send(wallet, "d")
    assert await office.deliver() == ["a", "b", "c", "d"]


async def test_a_paused_handlers_events_wait_for_it_in_order(outbox: Any, office: Any) -> None:
    wallet = uuid4()
    await office.send(wallet, "a")
    await office.deliver()
    await pause(outbox.desk, HANDLER)
    await office.send(wallet, "b", "c")
    assert await office.deliver() == []
    await resume(outbox.desk, HANDLER)
    await office.send(wallet, "d")
    assert await office.deliver() == ["b", "c", "d"]


async def test_a_retired_handler_is_due_for_nothing(outbox: Any, office: Any) -> None:
    office.broken = {"a"}
    wallet = uuid4()
    await office.send(wallet, "a", "b")
    await office.deliver()
    assert (await retire(outbox.desk, HANDLER)).skipped == 2
    assert await outbox.value("SELECT count(*) FROM outbox_status WHERE status = 'delivered'") == 2
    assert await outbox.value("SELECT count(*) FROM outbox_deliveries WHERE NOT settled") == 0
