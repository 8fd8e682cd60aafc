"""Traces through a real outbox: from what writes an event to what handles it, here or elsewhere (K10, O4)."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import pytest
from lagom import Container
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import StatusCode

from outbox_kernel.infrastructure.brokers.memory import MemoryBroker
from outbox_kernel.infrastructure.inbox.consumer import Consumer
from outbox_kernel.infrastructure.outbox import OutboxEventDispatcher, bus_of
from outbox_kernel.infrastructure.outbox.dispatcher import OutboxMiddleware
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.kernel import EventBus, event_context
from tests.bank import Bank
from tests.domain import Announced, Noted, Wallet
from tests.posting import BANK, TOPOLOGY
from tests.posting import relay as publishing
from tests.relaying import Recorder, Stage, handler
from tests.streams import of
from tests.tracing import Traces, context_of, id_of, linked_by, parent_of, told, trace_of, traced

MODES = pytest.mark.parametrize("mode", ["linked", "one"])


async def headers_of(stage: Stage) -> list[dict[str, Any]]:
    rows = await stage.witness.fetch("SELECT headers FROM outbox_events ORDER BY position")
    return [json.loads(row["headers"]) for row in rows]


def traceparent(traces: Traces, number: int = 0) -> str:
    context = context_of(traces.named("create outbox")[number])
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


# --- writing ------------------------------------------------------------------------------------------


async def test_rows_carry_the_span_of_the_flush_that_wrote_them(stage: Stage) -> None:
    bank = Bank.on(stage.engine)
    with traced() as traces, event_context(user_id="ada"):
        async with bank.sessions() as session:
            session.add_all([Wallet.open("ada"), Wallet.open("bob")])
            await session.flush()
            bus_of(session).emit(Announced("later"))
            assert traces.spans == ()  # not before it is durable
            await session.commit()
    first, second = traces.named("create outbox")
    assert told(first)["messaging.batch.message_count"] == 2
    assert told(second)["outbox.event.type"] == "bank.announced"
    assert await headers_of(stage) == [
        {"user_id": "ada", "traceparent": traceparent(traces, number)} for number in (0, 0, 1)
    ]
    assert first.status.status_code is StatusCode.UNSET


async def test_what_is_rolled_back_leaves_a_span_that_says_so(stage: Stage) -> None:
    with traced() as traces:
        async with Bank.on(stage.engine).sessions() as session:
            session.add(Wallet.open("ada"))
            await session.flush()
            await session.rollback()
            await session.commit()
    assert traces.one("create outbox").status.description == "rolled back"


async def test_sessions_without_capture_carry_it_too(stage: Stage) -> None:
    from sqlalchemy.ext.asyncio import async_sessionmaker

    plain = async_sessionmaker(stage.engine)
    with traced() as traces:
        async with plain() as session:
            await OutboxEventDispatcher(session).dispatch([Noted("a")])
            bus = EventBus()
            bus.emit(Noted("b"))
            await OutboxMiddleware.flush(session, bus)
            await session.commit()
    assert [each["traceparent"] for each in await headers_of(stage)] == [
        traceparent(traces, n) for n in (0, 1)
    ]


async def test_without_opentelemetry_rows_carry_what_they_are_told(stage: Stage) -> None:
    """K10: a request's own context."""
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with event_context(traceparent=given):
        await Bank.on(stage.engine).open_wallet()
    assert await headers_of(stage) == [{"traceparent": given}]


# --- handling -----------------------------------------------------------------------------------------


@MODES
async def test_a_run_is_the_current_span_of_all_that_it_does(stage: Stage, mode: str) -> None:
    """O4: what it writes is a part of it, and carries it on."""
    bank, seen = Bank.on(stage.engine), list[int]()

    async def act(event: Any) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)
        await bank.open_wallet("bob")

    with traced(mode) as traces:
        async with bank.sessions() as session:
            bus_of(session).emit(Noted("a"))
            await session.commit()
        await stage.drain(handler("h", act))
        assert not trace.get_current_span().get_span_context().is_valid
    first, second = traces.named("create outbox")
    wait, process = traces.one("wait h"), traces.one("process h")
    assert seen == [id_of(process)]
    assert parent_of(second) == id_of(process)
    assert parent_of(wait) == id_of(first)
    if mode == "one":
        assert {trace_of(each) for each in traces.spans} == {trace_of(first)}
        assert parent_of(process) == id_of(wait)
    else:
        assert linked_by(process) == [id_of(first)]
        assert trace_of(process) != trace_of(first)
    assert (await headers_of(stage))[1]["traceparent"] == traceparent(traces, 1)


async def test_a_handler_that_fails_and_recovers_has_a_span_for_each_run(stage: Stage) -> None:
    act = Recorder().fail("a", ValueError("not yet"))
    with traced() as traces:
        async with Bank.on(stage.engine).sessions() as session:
            bus_of(session).emit(Noted("a"))
            await session.commit()
        await stage.drain(handler("h", act))
        await stage.drain(handler("h", act), at=5)
    failed, done = traces.named("process h")
    assert (failed.status.description, done.status.status_code) == ("ValueError: not yet", StatusCode.UNSET)
    assert [told(each)["outbox.attempt"] for each in (failed, done)] == [1, 2]
    assert len(traces.named("wait h")) == 1


async def test_an_unsampled_request_makes_no_spans_at_the_relay(stage: Stage) -> None:
    """O4: its flag decides."""
    with traced(sampler=ParentBased(ALWAYS_OFF)):
        async with Bank.on(stage.engine).sessions() as session:
            bus_of(session).emit(Noted("a"))
            await session.commit()
    act = Recorder()
    with traced() as traces:
        await stage.drain(handler("h", act))
    assert act.seen == ["a"]
    assert traces.spans == ()


async def test_a_batch_is_one_span_over_its_events(stage: Stage) -> None:
    async def act(events: Any) -> None:
        assert len(events) == 3

    with traced() as traces:
        for what in ("a", "b", "c"):
            async with Bank.on(stage.engine).sessions() as session:
                bus_of(session).emit(Noted(what))
                await session.commit()
        await stage.relay(handler("h", act, batch=5), concurrency=1).run_until_idle()
    process = traces.one("process h")
    assert linked_by(process) == [id_of(each) for each in traces.named("create outbox")]
    assert len(traces.named("wait h")) == 3


# --- elsewhere ----------------------------------------------------------------------------------------


@MODES
async def test_an_event_is_followed_through_a_broker_to_a_handler_elsewhere(
    stage: Stage, elsewhere: Bank, mode: str
) -> None:
    """O4: whose database has its own clock, and whose outbox the event waits in once more."""
    broker = MemoryBroker()
    broker.declare(TOPOLOGY)
    with traced(mode) as traces:
        async with Bank.on(stage.engine).sessions() as session:
            bus_of(session).emit(Noted("a"), aggregate_type="bank.wallet", aggregate_id=uuid4())
            await session.commit()
        await publishing(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
        act = Recorder()
        await handled(elsewhere, broker, act)
    assert act.seen == ["a"]
    create, send, receive = (traces.one(each) for each in ("create outbox", "send bank", "receive notes"))
    process, waits = traces.one("process notes's"), (traces.one("wait bank"), traces.one("wait notes's"))
    assert [parent_of(each) for each in waits] == [id_of(create)] * 2
    assert told(send)["messaging.destination.name"] == "bank"
    assert (
        told(receive)["messaging.destination.name"] == told(process)["messaging.destination.name"] == "notes"
    )
    if mode == "one":
        assert {trace_of(each) for each in traces.spans} == {trace_of(create)}
        assert parent_of(receive) == id_of(create)
        assert parent_of(process) == id_of(waits[1])
    else:
        assert len({trace_of(each) for each in (create, send, receive, process)}) == 4
        assert {*linked_by(send), *linked_by(receive), *linked_by(process)} == {id_of(create)}


async def handled(there: Bank, broker: MemoryBroker, act: Recorder) -> None:
    """Consume what lies in the queue, and run its handler."""
    relay = OutboxRelay(there.engine, Container(), handlers=[of("notes", act)], queues=["notes"])
    consumer = Consumer(broker, TOPOLOGY, ["notes"], there.engine, relay=relay)
    serving, taking = asyncio.create_task(relay.run()), asyncio.create_task(consumer.run())
    await consumer.consuming.wait()
    await consumer.emptied()
    consumer.stop()
    await taking
    relay.stop()
    await serving
    await relay.run_until_idle()


async def test_what_the_broker_refuses_is_a_span_that_failed(stage: Stage) -> None:
    broker = MemoryBroker()
    broker.declare(TOPOLOGY)
    broker.full = {"notes"}
    with traced() as traces:
        async with Bank.on(stage.engine).sessions() as session:
            bus_of(session).emit(Noted("a"))
            await session.commit()
        await publishing(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
        broker.down = "it is away"
        await publishing(stage, broker.outlet(BANK, TOPOLOGY), at=5).run_until_idle()
    refused = traces.named("send bank")[0]
    assert refused.status.description == "queue 'notes' takes no more"
