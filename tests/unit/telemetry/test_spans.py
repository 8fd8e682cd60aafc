"""Spans of who writes, waits, runs, sends and receives; linked, or in one trace (K10, O4)."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

from outbox_kernel.infrastructure.telemetry import instruments as names
from outbox_kernel.infrastructure.telemetry.counting import ServerClock
from outbox_kernel.infrastructure.telemetry.limits import LINKS_MAX
from outbox_kernel.infrastructure.telemetry.spans import Spans
from outbox_kernel.infrastructure.telemetry.tracing import tracing
from tests.tracing import Traces, context_of, id_of, linked_by, parent_of, told, trace_of, traced
from tests.unit.telemetry.runs import ID, LABELS, Ended, Over, clock, row

REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
REMOTE_TRACE, REMOTE_SPAN = int(REMOTE[3:35], 16), int(REMOTE[36:52], 16)
MILLISECOND_NS = 1_000_000


class Event:
    event_id = ID
    event_type = "shop.ordered"


def spans_of(_: Traces) -> Spans:
    found = tracing.spans()
    assert found is not None
    return found


def headers(traceparent: str = REMOTE, **others: Any) -> str:
    return json.dumps({"traceparent": traceparent, **others})


# --- who takes spans ----------------------------------------------------------------------------------


def test_nobody_has_set_up_opentelemetry_and_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracing.spans() is None  # its API is there, and no provider
    assert tracing.ids() == {}
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert tracing.spans() is None


def test_traces_may_be_turned_off() -> None:
    with traced("off"):
        assert tracing.spans() is None
    with traced() as traces:
        assert tracing.spans() is tracing.spans()
        linked = tracing.spans()
    with traced("one"):
        assert tracing.spans() is not linked
        found = tracing.spans()
        assert found is not None
        assert found.is_one
        assert traces.spans == ()


# --- writing ------------------------------------------------------------------------------------------


def test_what_is_written_carries_the_context_of_its_span() -> None:
    with traced() as traces:
        carried, creating = spans_of(traces).create({"user_id": "ada"}, [Event()])
        creating.end(is_durable=True)
    span = traces.one("create outbox")
    assert (span.kind, span.parent, span.status.status_code) == (SpanKind.PRODUCER, None, StatusCode.UNSET)
    flags = context_of(span).trace_flags
    traceparent = f"00-{trace_of(span):032x}-{id_of(span):016x}-{flags:02x}"
    assert carried == {"user_id": "ada", "traceparent": traceparent}
    assert told(span) == {
        "messaging.system": "outbox",
        "messaging.operation.name": "create",
        "messaging.operation.type": "create",
        "messaging.destination.name": "outbox",
        "messaging.message.id": str(ID),
        "outbox.event.type": "shop.ordered",
    }


def test_it_is_a_part_of_what_the_request_began() -> None:
    given = {"traceparent": REMOTE, "tracestate": "a=b"}
    with traced() as traces:
        carried, creating = spans_of(traces).create(given, [Event(), Event()])
        creating.end(is_durable=True)
        with traces.provider.get_tracer("app").start_as_current_span("use case") as current:
            _, within = spans_of(traces).create(given, [Event()])
            within.end(is_durable=True)
    several, single = traces.named("create outbox")
    assert (trace_of(several), parent_of(several)) == (REMOTE_TRACE, REMOTE_SPAN)
    assert carried["tracestate"] == "a=b"
    assert told(several)["messaging.batch.message_count"] == 2
    # A span of this process goes before what a header says.
    assert parent_of(single) == current.get_span_context().span_id


def test_what_is_rolled_back_is_told_to_be_so() -> None:
    with traced() as traces:
        spans_of(traces).create({}, [Event()])[1].end(is_durable=False)
    assert traces.one("create outbox").status.description == "rolled back"


def test_what_is_not_sampled_says_so_to_whoever_handles_it() -> None:
    with traced(sampler=ParentBased(ALWAYS_OFF)) as traces:
        carried, creating = spans_of(traces).create({}, [Event()])
        creating.end(is_durable=True)
    assert str(carried["traceparent"])[-2:] in ("00", "02")
    assert traces.spans == ()


# --- running ------------------------------------------------------------------------------------------


def run(
    traces: Traces,
    over: Over,
    verdict: Ended | None = None,
    *,
    labels: dict[str, str] = LABELS,
    at: ServerClock | None = None,
) -> bool:
    """Run it, and say whether it was traced."""
    known = at or clock(server_seconds=0.0, at=0.0)
    working = spans_of(traces).of_runs(known, labels).begin(over)
    if working is None:
        return False
    assert trace.get_current_span().get_span_context().is_valid
    working.end(verdict)
    assert not trace.get_current_span().get_span_context().is_valid
    return True


def waited(seconds: float, **others: Any) -> Over:
    """A run that began now, over an event that was written before."""
    now = time.monotonic()
    return Over(row(created=now - seconds, headers=headers(**others)), now)


def test_a_run_is_a_trace_of_its_own_and_links_to_what_it_comes_from() -> None:
    """O4: by default."""
    with traced() as traces:
        assert run(traces, waited(2.0, correlation_id="r-1"), Ended())
    wait, process = traces.one("wait shop.Pack"), traces.one("process shop.Pack")
    assert (wait.kind, process.kind) == (SpanKind.INTERNAL, SpanKind.CONSUMER)
    assert (trace_of(wait), parent_of(wait)) == (REMOTE_TRACE, REMOTE_SPAN)
    assert process.parent is None
    assert trace_of(process) != REMOTE_TRACE
    assert linked_by(process) == [REMOTE_SPAN]
    assert linked_by(wait) == [id_of(process)]
    assert process.status.status_code is StatusCode.UNSET
    assert told(process) == {
        **LABELS,
        "messaging.operation.type": "process",
        "messaging.message.id": str(ID),
        "messaging.message.conversation_id": "r-1",
        "outbox.event.type": "shop.ordered",
        "outbox.aggregate.type": "shop.customer",
        "outbox.aggregate.id": str(ID),
        "outbox.attempt": 1,
    }


def test_the_wait_is_as_long_as_the_event_was_in_the_outbox() -> None:
    with traced() as traces:
        run(traces, waited(2.0), Ended())
    wait = traces.one("wait shop.Pack")
    assert wait.start_time is not None
    assert wait.end_time is not None
    assert abs(wait.end_time - wait.start_time - 2_000 * MILLISECOND_NS) < MILLISECOND_NS


def test_in_one_trace_the_run_is_a_part_of_the_wait() -> None:
    """O4: if asked for."""
    with traced("one") as traces:
        run(traces, waited(2.0), Ended())
    wait, process = traces.one("wait shop.Pack"), traces.one("process shop.Pack")
    assert trace_of(process) == trace_of(wait) == REMOTE_TRACE
    assert parent_of(process) == id_of(wait)
    assert linked_by(process) == linked_by(wait) == []


@pytest.mark.parametrize("mode", ["linked", "one"])
def test_a_later_run_has_not_waited_in_the_outbox(mode: str) -> None:
    with traced(mode) as traces:
        run(traces, Over(row(headers=headers()), attempts=2), Ended())
    assert traces.named("wait shop.Pack") == []
    process = traces.one("process shop.Pack")
    assert told(process)["outbox.attempt"] == 3
    assert parent_of(process) == (REMOTE_SPAN if mode == "one" else None)


@pytest.mark.parametrize("mode", ["linked", "one"])
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"user_id": "ada"}',
        headers(UNSAMPLED),
        # Whatever else ends so.
        '{"ticket": "A-01"}',
        headers(UNSAMPLED, ticket="A-01"),
    ],
)
def test_what_was_not_sampled_makes_no_spans(mode: str, text: str) -> None:
    with traced(mode) as traces:
        assert not run(traces, Over(row(headers=text)), Ended())
    assert traces.spans == ()


def test_a_run_that_fails_says_how() -> None:
    with traced() as traces:
        run(traces, waited(0), Ended("waiting", "ValueError: no tea\nand no milk"))
        run(traces, waited(0), Ended("dead", "no queue for it"))
        run(traces, waited(0), None)
    failed, dead, given_back = traces.named("process shop.Pack")
    assert failed.status.description == "ValueError: no tea"
    assert (told(failed)[names.OUTCOME], told(failed)[names.ERROR]) == ("failed", "ValueError")
    assert (told(dead)[names.OUTCOME], told(dead)[names.ERROR]) == ("dead", "_OTHER")
    assert (told(given_back)[names.OUTCOME], given_back.status.status_code) == (
        "given_back",
        StatusCode.UNSET,
    )


@pytest.mark.parametrize("mode", ["linked", "one"])
def test_a_batch_links_to_all_that_were_sampled(mode: str) -> None:
    with traced(mode) as traces:
        first, other = (traces.provider.get_tracer("app").start_span("request") for _ in range(2))
        texts = [
            headers(f"00-{each.get_span_context().trace_id:032x}-{each.get_span_context().span_id:016x}-01")
            for each in (first, other)
        ]
        rows = [row(headers="{}"), *(row(headers=text) for text in texts)]
        assert run(traces, Over(rows[-1], rows=rows), Ended())
        assert not run(traces, Over(rows[0], rows=rows[:1]), Ended())
    process = traces.one("process shop.Pack")
    assert told(process)["messaging.batch.message_count"] == 3
    spans = [each.get_span_context().span_id for each in (first, other)]
    assert linked_by(process) == (spans if mode == "linked" else spans[1:])
    assert len(traces.named("wait shop.Pack")) == 2


def test_what_is_sent_to_a_broker_says_to_which() -> None:
    sends = {**LABELS, names.SYSTEM: "rabbitmq", names.OPERATION: "send", names.SUBSCRIPTION: "messaging"}
    with traced() as traces:
        over = Over(row(headers=headers(), aggregate_id=None), time.monotonic())
        run(traces, over, Ended(), labels=sends)
    span = traces.one("send messaging")
    assert span.kind is SpanKind.CLIENT
    assert told(span)["messaging.rabbitmq.destination.routing_key"] == "shop.ordered"
    assert "outbox.aggregate.id" not in told(span)


def test_while_nobody_knows_the_servers_clock_nothing_has_waited() -> None:
    with traced() as traces:
        assert run(traces, waited(1.0), Ended(), at=ServerClock())
    assert [each.name for each in traces.spans] == ["process shop.Pack"]


# --- receiving ----------------------------------------------------------------------------------------


def test_messages_that_are_taken_together_are_one_span_with_a_link_to_each() -> None:
    with traced() as traces:
        given: list[dict[str, Any]] = [
            *({"traceparent": REMOTE}, {"traceparent": UNSAMPLED}, {"traceparent": b"bytes"}, {}),
        ]
        spans_of(traces).received("rabbitmq", "orders", given, 1)
        spans_of(traces).received("rabbitmq", "orders", given[1:], 1)
        spans_of(traces).received("rabbitmq", "orders", [{"traceparent": REMOTE}] * 200, 1)
    some, many = traces.named("receive orders")
    assert (some.kind, some.parent, linked_by(some)) == (SpanKind.CLIENT, None, [REMOTE_SPAN])
    assert told(some) == {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "orders",
        "messaging.batch.message_count": 4,
    }
    assert len(many.links) == LINKS_MAX


def test_in_one_trace_each_message_is_received_for_itself() -> None:
    with traced("one") as traces:
        given = [{"traceparent": REMOTE}, {"traceparent": UNSAMPLED}, {"traceparent": REMOTE}]
        spans_of(traces).received("rabbitmq", "orders", given, 1)
    assert [parent_of(each) for each in traces.named("receive orders")] == [REMOTE_SPAN] * 2


# --- the log ------------------------------------------------------------------------------------------


def test_a_line_of_the_log_names_the_span_that_it_is_written_in() -> None:
    with traced() as traces:
        assert tracing.ids() == {}
        with traces.provider.get_tracer("app").start_as_current_span("use case"):
            ids = tracing.ids()
    span = context_of(traces.one("use case"))
    assert ids == {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
