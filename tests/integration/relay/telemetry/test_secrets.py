"""No secret in any line: what an event marks as sensitive stays out of the log, whatever goes wrong (K11, O4)."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from datetime import date
from typing import Any
from uuid import uuid4

import pytest
from lagom import Container

from outbox_kernel.infrastructure.brokers.memory import MemoryBroker, MemoryOutlet
from outbox_kernel.infrastructure.brokers.port import Message, Outcome
from outbox_kernel.infrastructure.in_process import InProcessEventDispatcher
from outbox_kernel.infrastructure.inbox.consumer import Consumer
from outbox_kernel.infrastructure.outbox import bus_of
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.infrastructure.telemetry import set_up_logs
from outbox_kernel.kernel import DomainEvent, Reject, event, sensitive
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.bank import Bank
from tests.posting import BANK, TOPOLOGY
from tests.posting import relay as publishing
from tests.relaying import Stage, handler
from tests.streams import of
from tests.waiting import until

SECRET = "s3cret-iban-of-ada"


@event("bank.confided")
class Confided(DomainEvent):
    what: str
    iban: str = sensitive()
    limit: int = sensitive(default=0)
    since: date | None = sensitive(default=None)


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    """All that is logged meanwhile, at every level, as programs read it."""
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    set_up_logs(as_json=True, stream=stream, environ={"OUTBOX_LOG_LEVEL": "DEBUG"})
    yield stream
    root.handlers[:], root.level = handlers, level


def actions(said: io.StringIO) -> set[str]:
    """What has been told of; the secret is in none of it."""
    assert SECRET not in said.getvalue()
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    return {line["action"] for line in lines if line["logger"].startswith("outbox.")}


async def confide(stage: Stage, *whats: str, **changes: Any) -> None:
    async with Bank.on(stage.engine).sessions() as session:
        for what in whats:
            bus_of(session).emit(Confided(what, SECRET), aggregate_type="bank.wallet", aggregate_id=uuid4())
        await session.commit()
    for name, value in changes.items():
        await stage.witness.execute(f"UPDATE outbox_events SET {name} = {value}")


def confided(act: Any, **options: Any) -> HandlerRegistration:
    return handler("h", act, Confided, **options)


async def test_a_handler_that_fails_over_an_event_tells_of_it_by_its_id(
    stage: Stage, said: io.StringIO
) -> None:
    async def act(given: Any) -> None:
        if given.what == "rejected":
            raise Reject(f"not this one: {given}")
        raise ValueError(f"no: {given!r}")

    await confide(stage, "failed", "rejected")
    await stage.drain(confided(act))
    assert actions(said) == {"handler.failed", "handler.dead"}


async def test_one_that_has_committed_and_one_that_forgets_to(stage: Stage, said: io.StringIO) -> None:
    async def act(given: Any) -> None:
        if given.what == "forgets":
            async with stage.uow() as uow:
                uow.emit(Confided("another", SECRET))
            return
        await stage.enter("its effect")
        raise ValueError(str(given))

    await confide(stage, "commits", "forgets")
    await stage.drain(confided(act))
    assert actions(said) == {"handler.failed_after_commit", "handler.uncommitted"}


async def test_a_batch_that_fails(stage: Stage, said: io.StringIO) -> None:
    async def act(events: Any) -> None:
        raise ValueError(str(events))

    await confide(stage, "a", "b")
    await stage.relay(confided(act, batch=2), concurrency=1).run_until_idle()
    assert actions(said) == {"handler.batch.split", "handler.failed"}


@pytest.mark.parametrize(
    "payload",
    [
        f"""'{{"what": "a", "iban": ["{SECRET}"]}}'""",
        f"""payload || '{{"limit": "{SECRET}"}}'""",
        f"""payload || '{{"since": "{SECRET}"}}'""",
        f"""payload - 'what' || '{{"{SECRET}": 1}}'""",
    ],
)
async def test_a_payload_that_is_none_of_its_class(stage: Stage, said: io.StringIO, payload: str) -> None:
    """R9: what was in its place is told by its name, and not by what it was."""
    await confide(stage, "a", payload=payload)
    await stage.drain(confided(nothing))
    assert actions(said) == {"handler.failed"}
    [row] = await stage.witness.fetch("SELECT error_message FROM outbox_deliveries")
    assert SECRET not in row["error_message"]


async def nothing(_: Any) -> None: ...


async def test_a_row_that_nobody_can_read(stage: Stage, said: io.StringIO) -> None:
    await confide(stage, "a", payload=f"""'["{SECRET}"]'""")
    await stage.drain(confided(nothing))
    assert actions(said) == {"delivery.unreadable"}


class Talkative(MemoryOutlet):
    """Fails with all that it knows."""

    async def publish(self, message: Message) -> Outcome:
        raise ValueError(f"cannot send {message!r}")


async def test_what_a_broker_refuses_and_what_an_outlet_fails_over(stage: Stage, said: io.StringIO) -> None:
    broker = MemoryBroker()
    broker.declare(TOPOLOGY)
    broker.full = {"notes"}
    await confide(stage, "a")
    await publishing(stage, broker.outlet(BANK, TOPOLOGY), retries_max=1).run_until_idle()
    assert actions(said) == {"publisher.event.dead"}
    await confide(stage, "b")
    await publishing(stage, Talkative(broker, BANK, TOPOLOGY)).run_until_idle()
    assert actions(said) == {"publisher.event.dead", "publisher.outlet.failed", "publisher.event.refused"}


async def test_what_arrives_and_cannot_be_stored(stage: Stage, said: io.StringIO) -> None:
    broker = MemoryBroker()
    broker.declare(TOPOLOGY)
    moment = "2026-01-02T03:04:05+00:00"
    whole = {"event_id": str(uuid4()), "occurred_at": moment, "event_type": "bank.confided", "iban": SECRET}
    for body in (
        f"no JSON: {SECRET}".encode(),
        json.dumps([SECRET]).encode(),
        json.dumps({**whole, "event_id": None}).encode(),
        json.dumps({**whole, "iban": SECRET + "\0"}).encode(),
        json.dumps(whole).encode(),
        # The same id with something else in it.
        json.dumps({**whole, "what": "other"}).encode(),
    ):
        broker.put("notes", Message("m-1", "bank.confided", body, {}))
    relay = OutboxRelay(stage.engine, Container(), handlers=[of("notes", nothing)], queues=["notes"])
    consumer = Consumer(broker, TOPOLOGY, ["notes"], stage.engine, relay=relay)
    serving, taking = asyncio.create_task(relay.run()), asyncio.create_task(consumer.run())
    await consumer.consuming.wait()

    async def are_buried() -> bool:
        return len(broker.queues[TOPOLOGY.dead_letter_queue]) == 5

    await until(are_buried)
    consumer.stop()
    relay.stop()
    await asyncio.gather(serving, taking)
    assert "consumer.message.buried" in actions(said)


async def test_an_event_that_is_handled_at_once(
    stage: Stage, said: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(given: Any) -> None:
        raise ValueError(str(given))

    registered = confided(act)
    monkeypatch.setattr("outbox_kernel.infrastructure.in_process.get_handlers_for", lambda _: [registered])
    await InProcessEventDispatcher(stage.container).dispatch([Confided("a", SECRET)])
    assert actions(said) == {"dispatch.failed"}
