"""Each alert is fired by what it is for: real relays, a real Prometheus, one fault after the other (O4, O5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, closing
from socket import socket
from typing import Any

import pytest
from attrs import define
from lagom import Container

from outbox_kernel.infrastructure.addresses import listen, url_of
from outbox_kernel.infrastructure.brokers.memory import MemoryBroker
from outbox_kernel.infrastructure.brokers.port import Message
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.inbox.consumer import Consumer
from outbox_kernel.infrastructure.operations.gauges import Gauges
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.infrastructure.telemetry import Metrics, MetricsApp
from outbox_kernel.infrastructure.telemetry import metrics as metrics_module
from outbox_kernel.infrastructure.telemetry.alerts import alerts, as_yaml, rules
from outbox_kernel.infrastructure.telemetry.serving import MetricsServer
from outbox_kernel.kernel import Reject, Unavailable
from tests.posting import BANK, TOPOLOGY
from tests.prometheus import Prometheus
from tests.relaying import Recorder, Stage, handler
from tests.serving import serving
from tests.streams import of
from tests.waiting import until

pytestmark = pytest.mark.prometheus

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
# Who observes, the relay, a consumer, and one whose database is away.
JOBS = ("observer", "relay", "consumer", "blind")
LAG_SECONDS = 1.0


def at_once() -> str:
    """The rules as they ship, but for how long something must last."""
    found = rules(LAG_SECONDS)
    for each in found["groups"][0]["rules"]:
        each["for"] = "0s"
        if each["alert"] == "TheMetricsAreOld":
            each["expr"] = each["expr"].replace("> 60", "> 0.5")
    return as_yaml(found)


@pytest.fixture(scope="module")
def sockets() -> Iterator[dict[str, socket]]:
    with ExitStack() as ending:
        yield {job: ending.enter_context(closing(listen("127.0.0.1", 0))) for job in JOBS}


@pytest.fixture(scope="module")
def watching(prometheus: type[Prometheus], sockets: dict[str, socket]) -> Iterator[Prometheus]:
    targets = {job: url_of(each).removeprefix("http://") for job, each in sockets.items()}
    with prometheus(targets, at_once()) as running:
        yield running


@define(eq=False)
class Watched:
    """An outbox, a relay with a handler and a publisher, and who watches them."""

    stage: Stage
    prometheus: Prometheus
    sockets: dict[str, socket]
    ending: AsyncExitStack
    broker: MemoryBroker
    act: Recorder
    metrics: Metrics
    elsewhere: str
    """The URL of another database."""
    log: pytest.LogCaptureFixture
    serving: asyncio.Task[None] | None = None

    async def serve(self, job: str, metrics: Metrics) -> None:
        """Have a process's metrics scraped."""
        server = MetricsServer(MetricsApp(metrics).text)
        await server.start(self.sockets[job].dup())
        self.ending.push_async_callback(server.close)

    async def relay(self, living: AsyncExitStack | None = None, **options: Any) -> None:
        """Have a relay serve until the test ends, or as long as it is said to live."""
        relay = self.stage.relay(
            handler("h", self.act),
            **{
                "at": None,
                "publishers": {BANK: self.broker.outlet(BANK, TOPOLOGY)},
                "metrics": self.metrics,
                "lease_seconds": 60.0,
                **options,
            },
        )
        living = living or self.ending
        self.serving = await living.enter_async_context(serving(relay))

    def observes(self) -> bool:
        """Whether the observer is being scraped."""
        return self.prometheus.value('up{job="observer"}') == 1

    async def fires(self, name: str) -> bool:
        return name in await asyncio.to_thread(self.prometheus.firing)

    async def rests(self, name: str) -> bool:
        return not await self.fires(name)


@pytest.fixture
async def watched(
    stage: Stage,
    watching: Prometheus,
    sockets: dict[str, socket],
    other_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> AsyncIterator[Watched]:
    monkeypatch.setattr(metrics_module, "FRESH_SECONDS", 0.1)
    broker = MemoryBroker()
    broker.declare(TOPOLOGY)
    async with AsyncExitStack() as ending:
        given = stage, watching, sockets, ending, broker
        found = Watched(*given, Recorder(), Metrics(), other_url, caplog)
        observer, gauges = Metrics(), Gauges(stage.engine)
        observer.asks(gauges)
        ending.push_async_callback(gauges.close)
        await found.serve("observer", observer)
        await found.serve("relay", found.metrics)
        yield found


# --- what may go wrong --------------------------------------------------------------------------------


async def no_relay_lives(watched: Watched) -> None:
    async with AsyncExitStack() as living:
        await watched.relay(living)
        await until(lambda: watched.rests("NoRelayLives"))


async def nobody_reads(watched: Watched) -> None:
    await watched.stage.drain(handler("gone", Recorder()))
    await watched.relay()
    await watched.stage.put("a")


async def the_oldest_is_old(watched: Watched) -> None:
    await broker_away(watched)


async def a_delivery_is_dead(watched: Watched) -> None:
    watched.act.fail("a", Reject("never"))
    await watched.relay()
    await watched.stage.put("a")


async def nobody_can_run_it(watched: Watched) -> None:
    await watched.relay()
    await watched.stage.put("a", version=99)


async def a_pattern_is_carried_no_more(watched: Watched) -> None:
    await watched.relay()
    await watched.stage.witness.execute(
        "UPDATE outbox_subscriptions SET patterns = patterns || 'bank.paid'::text WHERE name = 'h'"
    )


async def leases_of_nobody(watched: Watched) -> None:
    await watched.stage.drain(handler("gone", Recorder()))
    await watched.stage.owner_that_vanishes("gone", at=-3600)
    await watched.relay()

    async def has_looked() -> bool:
        return bool(await watched.stage.witness.fetchval("SELECT count(*) FROM outbox_relays") == 1)

    await until(has_looked)
    # Until it looks again, which it does every third of its lease.
    await watched.stage.owner_that_vanishes("gone", at=-3600)


async def a_lease_is_lost(watched: Watched) -> None:
    await watched.relay()

    async def is_scraped() -> bool:
        found = await asyncio.to_thread(watched.prometheus.value, "outbox_lease_losses_total")
        return found == 0

    await until(is_scraped)
    await watched.stage.witness.execute("DELETE FROM outbox_relays")
    await watched.stage.put("a")


async def deaf(watched: Watched) -> None:
    await watched.relay(listen_url=watched.elsewhere)

    async def is_known() -> bool:
        return "does not hear of commits" in watched.log.text  # and not only that it is yet to find out

    await until(is_known)


async def what_it_needs_is_away(watched: Watched) -> None:
    watched.act.fail("a", *[Unavailable("payments")] * 100)
    await watched.relay()
    await watched.stage.put("a")


async def broker_away(watched: Watched) -> None:
    watched.broker.down = "it is away"
    await watched.relay()
    await watched.stage.put("a")


async def a_queue_gives_nothing(watched: Watched) -> None:
    watched.broker.down = "it is away"
    await consume(watched)


async def what_cannot_be_stored(watched: Watched) -> None:
    await consume(watched)

    async def is_scraped() -> bool:
        found = await asyncio.to_thread(watched.prometheus.value, "outbox_messages_buried_total")
        return found == 0

    await until(is_scraped)
    watched.broker.put("notes", Message("m-1", "bank.noted", b"no JSON", {}))


async def consume(watched: Watched) -> None:
    metrics = Metrics()
    await watched.serve("consumer", metrics)
    engine = watched.stage.engine
    relay = OutboxRelay(
        engine, Container(), handlers=[of("notes", Recorder())], queues=["notes"], metrics=metrics
    )
    consumer = Consumer(watched.broker, TOPOLOGY, ["notes"], engine, relay=relay, metrics=metrics)
    watched.serving = await watched.ending.enter_async_context(serving(relay))
    taking = asyncio.create_task(consumer.run())

    async def end() -> None:
        consumer.stop()
        await taking

    watched.ending.push_async_callback(end)


async def the_database_is_away(watched: Watched) -> None:
    engine = create_engine(NOWHERE)
    watched.ending.push_async_callback(engine.dispose)
    metrics, gauges = Metrics(), Gauges(engine)
    metrics.asks(gauges)
    await watched.serve("blind", metrics)


FAULTS: dict[str, Callable[[Watched], Awaitable[None]]] = {
    "NoRelayLives": no_relay_lives,
    "NobodyReadsForASubscription": nobody_reads,
    "TheOldestEventIsOld": the_oldest_is_old,
    "DeliveriesAreDead": a_delivery_is_dead,
    "DeliveriesNobodyCanRun": nobody_can_run_it,
    "APatternThatNoLiveRelayCarries": a_pattern_is_carried_no_more,
    "LeasesAreHeldByNobody": leases_of_nobody,
    "ARelayHasLostItsLease": a_lease_is_lost,
    "TheRelayDoesNotHear": deaf,
    "AHandlerStandsStill": what_it_needs_is_away,
    "APublisherStandsStill": broker_away,
    "AQueueIsStuck": a_queue_gives_nothing,
    "MessagesAmongTheBrokersDeadLetters": what_cannot_be_stored,
    "TheMetricsAreOld": the_database_is_away,
}


def test_there_is_a_fault_for_each_alert() -> None:
    assert [*FAULTS] == [each.name for each in alerts()]


@pytest.mark.parametrize("name", FAULTS)
async def test_its_fault_fires_it(watched: Watched, name: str) -> None:
    """O4: and it does not fire before."""
    await until(lambda: asyncio.to_thread(watched.observes))
    if name != "NoRelayLives":
        await until(lambda: watched.rests(name))
    await FAULTS[name](watched)
    await until(lambda: watched.fires(name))
