"""The numbers of a process: what is counted, what the database is asked for, and what is made of both (O4)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread

import pytest

from outbox_kernel.infrastructure.telemetry import Metrics, MetricsApp
from outbox_kernel.infrastructure.telemetry import instruments as numbers
from outbox_kernel.infrastructure.telemetry.instruments import ALL
from outbox_kernel.infrastructure.telemetry.limits import FRESH_SECONDS, STALE_SECONDS
from outbox_kernel.infrastructure.telemetry.metrics import Sample, Written
from outbox_kernel.infrastructure.telemetry.prometheus import CONTENT_TYPE, rendered
from tests.unit.telemetry.runs import LABELS, Ended, Over

SENDS = {
    **LABELS,
    numbers.SYSTEM: "rabbitmq",
    numbers.OPERATION: "send",
    numbers.DESTINATION: "messaging",
    numbers.SUBSCRIPTION: "messaging",
}


class Time:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


class Database:
    """What is asked, and how often."""

    def __init__(self) -> None:
        self.asked = 0
        self.trouble: Exception | None = None

    async def __call__(self) -> list[Sample]:
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        return [Sample(numbers.OLDEST, {}, self.asked)]


def busy(now: Callable[[], float]) -> Metrics:
    """A process in which all that can be counted has been."""
    metrics = Metrics(now=now)
    relay = metrics.of_relay()
    relay.renewals, relay.losses, relay.hears, relay.holds_until = 3, 1, True, now() + 12.5
    handler, publisher = metrics.of_subscription(LABELS), metrics.of_subscription(SENDS)
    for subscription in (handler, publisher):
        subscription.count(Over(), Ended())
        subscription.count(Over(), Ended("dead", "Reject: no"))
        subscription.note_passed(2, 1)
    queue = metrics.of_queue("orders", system="rabbitmq")
    queue.stored, queue.buried = 5, 1
    metrics.requests.note("GET", "/a", 200, "http", 0.2)
    return metrics


def told(samples: list[Sample], name: str) -> dict[tuple[str, ...], object]:
    return {tuple(each.labels.values()): each.value for each in samples if each.instrument.name == name}


async def test_all_that_is_counted_is_told() -> None:
    samples = await busy(Time()).samples()
    assert told(samples, "outbox.lease.remaining") == {(): 12.5}
    assert told(samples, "outbox.relay.hearing") == {(): True}
    assert told(samples, "outbox.events.passed")["messaging", "messaging"] == 2
    assert told(samples, "outbox.messages.buried") == {("rabbitmq", "orders"): 1}
    assert told(samples, "messaging.client.consumed.messages") == {
        ("outbox", "process", "outbox", "shop.Pack"): 2,
        ("rabbitmq", "orders", "receive"): 5,
    }
    assert [*told(samples, "messaging.client.sent.messages").values()] == [1, 1]
    assert len(told(samples, "messaging.process.duration")) == 2
    assert {each.instrument for each in samples} == {*numbers.COUNTED}


async def test_a_process_without_a_relay_tells_of_none() -> None:
    names = {each.instrument.name for each in await Metrics().samples()}
    assert names == {"outbox.events.written"}


async def test_a_relay_that_does_not_serve_tells_neither_lease_nor_ear() -> None:
    metrics = Metrics()
    metrics.of_relay()
    samples = await metrics.samples()
    assert told(samples, "outbox.lease.remaining") == {(): 0.0}
    assert told(samples, "outbox.relay.hearing") == {}


def test_who_counts_again_goes_on_where_it_was() -> None:
    """As the next shift of a relay does."""
    metrics = Metrics()
    assert metrics.of_subscription(LABELS) is metrics.of_subscription(LABELS)
    assert metrics.of_relay() is metrics.of_relay()
    assert metrics.of_queue("q", system="rabbitmq") is metrics.of_queue("q", system="rabbitmq")


def test_sessions_of_many_threads_count_together() -> None:
    found = Written()

    def add() -> None:
        for _ in range(10_000):
            found.add(1)

    threads = [Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.events == 40_000


# --- what the database is asked for -------------------------------------------------------------------


async def test_the_database_is_asked_every_few_seconds_whoever_asks() -> None:
    now, database = Time(), Database()
    metrics = Metrics(now=now)
    metrics.asks(database)
    for _ in range(5):
        assert told(await metrics.samples(), "outbox.oldest.age") == {(): 1}
    now.seconds += FRESH_SECONDS
    assert told(await metrics.samples(), "outbox.oldest.age") == {(): 2}
    assert database.asked == 2


async def test_a_database_that_does_not_answer_leaves_what_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, database = Time(), Database()
    metrics = Metrics(now=now)
    metrics.asks(database)
    await metrics.samples()
    database.trouble = TimeoutError()
    now.seconds += FRESH_SECONDS
    with caplog.at_level(logging.WARNING):
        samples = await metrics.samples()
    assert told(samples, "outbox.oldest.age") == {(): 1}
    assert told(samples, "outbox.looks.failed") == {(): 1}
    assert told(samples, "outbox.look.age") == {(): FRESH_SECONDS}
    assert caplog.messages == ["the database cannot be asked for metrics: TimeoutError"]
    now.seconds += STALE_SECONDS
    samples = await metrics.samples()
    assert told(samples, "outbox.oldest.age") == {}
    assert told(samples, "outbox.events.written") != {}
    database.trouble = None
    now.seconds += FRESH_SECONDS
    assert told(await metrics.samples(), "outbox.look.age") == {(): 0.0}


# --- as Prometheus reads it ---------------------------------------------------------------------------


async def everything() -> str:
    metrics = busy(Time())
    metrics.asks(Database())
    asked = [
        Sample(each, dict.fromkeys(each.labels, 'a "quoted"\n\\ name'), 1.5)
        for each in numbers.ASKED
        if each not in (numbers.OLDEST, numbers.LOOKS_FAILED, numbers.LOOK_AGE)
    ]
    return rendered([*await metrics.samples(), *asked])


@pytest.mark.prometheus
async def test_promtool_has_nothing_to_say_against_any_number(promtool: Callable[..., str]) -> None:
    text = await everything()
    assert {f"# TYPE {each.prometheus} {each.kind}" for each in ALL} <= {*text.splitlines()}
    assert promtool("check", "metrics", given=text) == ""


async def test_histograms_add_up_as_prometheus_has_them() -> None:
    metrics = Metrics()
    for seconds in (0.2, 0.3, 7.0, 1e6):
        metrics.requests.note("GET", "/a", 200, "http", seconds)
    lines = rendered(await metrics.samples()).splitlines()
    buckets = [line for line in lines if "_bucket{" in line]
    assert [line.rpartition(" ")[2] for line in buckets][-1] == "4"
    assert 'le="0.25"} 1' in " ".join(buckets)
    assert 'le="10"} 3' in " ".join(buckets)
    assert any(
        line.endswith("_count" + buckets[0][buckets[0].index("{") : -2].split(",le=")[0] + "} 4")
        for line in lines
    )
    assert any(line.startswith("http_server_request_duration_seconds_sum{") for line in lines)


def test_what_a_name_holds_stays_within_its_quotes() -> None:
    sample = Sample(numbers.STUCK, {numbers.DESTINATION: 'a "b"\nc\\'}, 1)
    line = rendered([sample]).splitlines()[-1]
    assert line == r'outbox_queue_stuck{messaging_destination_name="a \"b\"\nc\\"} 1'


async def test_an_application_answers_with_them_by_itself() -> None:
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    app = MetricsApp(Metrics())
    await app({"type": "http"}, None, send)  # type: ignore[arg-type]  # it asks for no body
    assert sent[0]["status"] == 200
    assert (b"content-type", CONTENT_TYPE.encode()) in sent[0]["headers"]  # type: ignore[operator]
    assert sent[1]["body"] == (await app.text()).encode()
    with pytest.raises(NotImplementedError, match="not by websocket"):
        await app({"type": "websocket"}, None, send)  # type: ignore[arg-type]
