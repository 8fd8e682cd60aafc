"""Relay, consumer and API as they are watched: their metrics in a real Prometheus, their traces at a collector (O4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import httpx
import pytest
from attrs import frozen

from outbox_kernel.infrastructure.addresses import listen
from outbox_kernel.infrastructure.telemetry.grafana import panels
from tests import servers
from tests.asking import KEY, bearer
from tests.brokers import Broker
from tests.collector import Collector, Seen, collecting
from tests.commands import failed_in_one_sentence, outbox
from tests.migrated import migrated_database
from tests.post import sweep_contexts
from tests.processes import Serving
from tests.prometheus import Prometheus

CONTEXTS = "contexts.messaging"
QUEUE = "group_message_processing"
SECONDS_MAX = 30.0
STEP_SECONDS = 0.05
REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
REMOTE_TRACE, REMOTE_SPAN = bytes.fromhex(REMOTE[3:35]), bytes.fromhex(REMOTE[36:52])


def until(holds: Callable[[], Any]) -> None:
    """Ask again and again: other processes tell nobody when they have come so far."""
    asyncio.run(_until(holds))


async def _until(holds: Callable[[], Any]) -> None:
    from tests import waiting

    async def asked() -> bool:
        return bool(await asyncio.to_thread(holds))

    await waiting.until(asked)


@pytest.fixture(scope="module")
def here(postgres_server: servers.Server) -> Iterator[str]:
    with migrated_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="module")
def there(postgres_server: servers.Server) -> Iterator[str]:
    with migrated_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="module", autouse=True)
def swept(rabbitmq_broker: Broker) -> Iterator[None]:
    yield
    asyncio.run(sweep_contexts(rabbitmq_broker.url))


@frozen
class Service:
    """API and relay here, a consumer there."""

    url: str
    metrics: dict[str, str]
    processes: dict[str, Serving]

    def draft(self, **headers: str) -> str:
        """Draft a message by the API; return its id."""
        body = {
            "channel_id": str(uuid4()),
            "contact_group_ids": [str(uuid4())],
            "total_recipients": 3,
            "body": "Hello",
        }
        answer = httpx.post(f"{self.url}/group-messages", json=body, headers={**bearer(), **headers})
        assert answer.status_code == 201, answer.text
        found: str = answer.json()["id"]
        return found


@contextmanager
def service(here: str, there: str, broker: Broker, **settings: str) -> Iterator[Service]:
    """All three as processes of their own, with their metrics at ports that are free."""
    common = {
        "OUTBOX_CONTEXTS": CONTEXTS,
        "OUTBOX_POLL_INTERVAL": "0.2",
        "RABBITMQ_URL": broker.url,
        "OUTBOX_API_TOKEN_KEY": KEY,
        "OUTBOX_METRICS": "0",
        **settings,
    }
    with (
        Serving("api", "--port", "0", DATABASE_URL=here, **common) as api,
        Serving("relay", DATABASE_URL=here, **common) as relay,
        Serving("consume", QUEUE, DATABASE_URL=there, **common) as consumer,
    ):
        processes = {"api": api, "relay": relay, "consumer": consumer}
        metrics = {name: each.wait_for("metrics are served")["url"] for name, each in processes.items()}
        url = api.wait_for("API starts")["url"]
        relay.wait_for("relay starts")
        consumer.wait_for("consuming")
        yield Service(url, metrics, processes)
        assert [each.stop() for each in processes.values()] == [0, 0, 0]


# --- metrics ------------------------------------------------------------------------------------------


@pytest.mark.prometheus
def test_a_prometheus_scrapes_all_three(
    here: str, there: str, rabbitmq_broker: Broker, prometheus: type[Prometheus], promtool: Callable[..., str]
) -> None:
    with service(here, there, rabbitmq_broker) as running:
        targets = {
            name: url.removeprefix("http://").removesuffix("/metrics")
            for name, url in running.metrics.items()
        }
        with prometheus(targets) as found:
            until(found.is_up)
            message_id = running.draft()
            running.processes["consumer"].wait_for("group message draft")
            handled = 'messaging_process_duration_seconds_count{job="consumer"}'
            until(lambda: found.value(handled) == 1)
            until(lambda: found.value('messaging_client_sent_messages_total{job="relay"}') == 1)
            # Each is scraped at a moment of its own.
            until(lambda: found.value('outbox_events_written_total{job="api"}') == 1)
            received = 'messaging_client_consumed_messages_total{messaging_operation_name="receive"}'
            until(lambda: found.value(received) == 1)
            requests = 'http_server_request_duration_seconds_count{http_route="/group-messages"}'
            until(lambda: found.query(requests))
            [(labels, count)] = found.query(requests)
            assert (labels["http_response_status_code"], labels["http_request_method"], count) == (
                "201",
                "POST",
                1,
            )
            [(_, waited)] = found.query("outbox_commit_to_handler_duration_seconds_sum{job='relay'}")
            assert 0 < waited < SECONDS_MAX
            until(lambda: found.value('max(outbox_relays{job="api",outbox_state="live"})') == 1)
            for panel in panels():
                for query, _ in panel.queries:
                    ask = query.replace("$outbox", ".*").replace("$__rate_interval", "1m")
                    until(partial(found.query, ask))
        for url in running.metrics.values():
            assert promtool("check", "metrics", given=httpx.get(url).text) == ""
        found_message = httpx.get(f"{running.url}/group-messages/{message_id}", headers=bearer())
        assert found_message.status_code == 200


@pytest.mark.parametrize("command", [("relay",), ("consume", QUEUE), ("api",)])
def test_an_address_that_cannot_be_had_is_one_sentence(
    here: str, rabbitmq_broker: Broker, command: tuple[str, ...]
) -> None:
    settings: dict[str, Any] = {
        "DATABASE_URL": here,
        "RABBITMQ_URL": rabbitmq_broker.url,
        "OUTBOX_API_TOKEN_KEY": KEY,
        "OUTBOX_API_PORT": "0",
        "OUTBOX_CONTEXTS": CONTEXTS,
    }
    with closing(listen("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = failed_in_one_sentence(outbox(*command, "--metrics", str(port), **settings))
    assert sentence == (
        f"port {port} of 127.0.0.1 is taken by another program: stop that, or choose another port with --metrics, or "
        "OUTBOX_METRICS"
    )
    refused = failed_in_one_sentence(outbox(*command, "--metrics", "nowhere", **settings))
    assert refused.startswith("--metrics is 'nowhere', which is no address")


# --- traces -------------------------------------------------------------------------------------------


@contextmanager
def traced_service(
    here: str, there: str, broker: Broker, **settings: str
) -> Iterator[tuple[Service, Collector]]:
    with ExitStack() as ending:
        collector = ending.enter_context(collecting())
        told = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "100",
        }
        yield ending.enter_context(service(here, there, broker, **told, **settings)), collector


REQUEST, CREATE = "outbox-api: POST /group-messages", "outbox-api: create outbox"
WAIT_HERE, SEND = "outbox-relay: wait messaging", "outbox-relay: send messaging"
RECEIVE = f"outbox-consumer: receive {QUEUE}"
WAIT_THERE, PROCESS = (f"outbox-consumer: {each} messaging.LogGroupMessage" for each in ("wait", "process"))
WAY = (REQUEST, CREATE, WAIT_HERE, SEND, RECEIVE, WAIT_THERE, PROCESS)


def the_way(running: Service, collector: Collector, **headers: str) -> dict[str, Seen]:
    """Send one request, and return the spans of all that comes of it."""
    before = {name: len(collector.named(name)) for name in WAY}
    running.draft(**headers)
    running.processes["consumer"].wait_for("group message draft")
    until(lambda: all(len(collector.named(name)) == before[name] + 1 for name in WAY))
    return {name: collector.named(name)[-1] for name in WAY}


def test_one_trace_leads_from_the_request_to_the_handler_on_the_other_machine(
    here: str, there: str, rabbitmq_broker: Broker
) -> None:
    """O4: through two outboxes and a broker, where one trace is asked for."""
    with traced_service(here, there, rabbitmq_broker, OUTBOX_TRACES="one") as (running, collector):
        found = the_way(running, collector, traceparent=REMOTE)
    assert {each.span.trace_id for each in found.values()} == {REMOTE_TRACE}
    parents = {name: each.span.parent_span_id for name, each in found.items()}
    ids = {name: each.span.span_id for name, each in found.items()}
    assert parents == {
        REQUEST: REMOTE_SPAN,
        # The framework has spans of its own in between.
        CREATE: parents[CREATE],
        WAIT_HERE: ids[CREATE],
        SEND: ids[WAIT_HERE],
        RECEIVE: ids[CREATE],
        WAIT_THERE: ids[CREATE],
        PROCESS: ids[WAIT_THERE],
    }
    assert ids[REQUEST] in ancestors(collector, found[CREATE])
    # However the clocks of the databases are set, nobody has waited for longer than this took.
    for name in (WAIT_HERE, WAIT_THERE):
        span = found[name].span
        assert 0 <= span.end_time_unix_nano - span.start_time_unix_nano < SECONDS_MAX * 1e9
        assert abs(span.end_time_unix_nano - time.time_ns()) < 10 * SECONDS_MAX * 1e9


def ancestors(collector: Collector, seen: Seen) -> list[bytes]:
    """The spans that it is a part of, the nearest first."""
    by_id = {each.span.span_id: each.span for each in collector.spans}
    found, parent = [], seen.span.parent_span_id
    while parent:
        found.append(parent)
        parent = by_id[parent].parent_span_id if parent in by_id else b""
    return found


def test_by_default_traces_are_linked(here: str, there: str, rabbitmq_broker: Broker) -> None:
    """O4: each part is a trace of its own, and none of an unsampled request is made."""
    with traced_service(here, there, rabbitmq_broker) as (running, collector):
        running.draft(traceparent=f"{REMOTE[:-2]}00")
        running.processes["consumer"].wait_for("group message draft")
        found = the_way(running, collector)
        assert len(collector.named(PROCESS)) == 1
        until(lambda: ("outbox-relay", "outbox.commit_to_handler.duration") in collector.metrics)
        _, line = (running.processes["api"].wait_for("request") for _ in range(2))
    traces = {name: each.span.trace_id for name, each in found.items()}
    assert traces[REQUEST] == traces[CREATE] == traces[WAIT_HERE] == traces[WAIT_THERE]
    assert len({traces[name] for name in (REQUEST, SEND, RECEIVE, PROCESS)}) == 4
    for name in (SEND, RECEIVE, PROCESS):
        span = found[name].span
        assert not span.parent_span_id
        assert [link.span_id for link in span.links] == [found[CREATE].span.span_id]
    histogram = collector.metrics["outbox-consumer", "messaging.process.duration"].histogram
    assert sum(point.count for point in histogram.data_points) == 2
    assert line["trace_id"] == traces[REQUEST].hex()


def test_a_collector_that_is_away_holds_up_neither_start_nor_end(here: str) -> None:
    settings = {
        "DATABASE_URL": here,
        "OUTBOX_CONTEXTS": "contexts.accounts",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "OTEL_METRIC_EXPORT_INTERVAL": "100",
    }
    with Serving("relay", **settings) as relay:
        relay.wait_for("collector is told")
        relay.wait_for("relay starts")
        relay.wait_for("did not take the metrics")
        began = time.monotonic()
        assert relay.stop() == 0
    assert time.monotonic() - began < SECONDS_MAX
