"""A relay that publishes to a broker in memory, which comes and goes as the measurement says."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import asyncpg
from lagom import Container

from benchmarks.databases import dsn_of
from benchmarks.relay.relaying import metered, relayed
from outbox_kernel.infrastructure.brokers import Publisher, Topology
from outbox_kernel.infrastructure.brokers.memory import MemoryBroker, MemoryOutlet
from outbox_kernel.infrastructure.relay import OutboxRelay

if TYPE_CHECKING:
    import asyncio

    from benchmarks.relay.meter import Meter
    from outbox_kernel.infrastructure.brokers.port import Message, Outcome

CHANNEL = "bench_broker"
AWAY, BACK = "away", "back"


class MeteredOutlet(MemoryOutlet):
    """Tells when it begins to publish; nobody reads what it publishes."""

    meter: Meter

    async def publish(self, message: Message) -> Outcome:
        """Route it to nobody."""
        if self.broker.down is None:
            self.meter.begin()
        return await super().publish(message)


async def publish(meter: Meter, over: asyncio.Event, *, url: str) -> dict[str, Any]:
    """Relay to the publisher until told to stop."""
    # That the broker is away is meant.
    logging.getLogger("outbox.relay").setLevel(logging.ERROR)
    publisher = Publisher("bench", ("bench.*",), mandatory=False)
    broker, topology = MemoryBroker(), Topology.of([publisher], [], exchange="bench")
    outlet = MeteredOutlet(broker, topology.publishers[0], topology)
    outlet.meter = meter

    def hear(*said: Any) -> None:
        broker.down = "the measurement has taken it away" if said[-1] == AWAY else None
        meter.begin_anew()

    listening = await asyncpg.connect(dsn_of(url))
    await listening.add_listener(CHANNEL, hear)
    engine = metered(url, meter, on_read=lambda: None)
    outbox_relay = OutboxRelay(engine, Container(), handlers=[], publishers={topology.publishers[0]: outlet})
    await relayed(outbox_relay, over)
    await engine.dispose()
    await listening.close()
    return {}
