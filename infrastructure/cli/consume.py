"""`outbox consume`: take what arrives in queues and run the handlers that are for them, until told to stop (T3)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import attrs
import click

from outbox_kernel.infrastructure.application import Outbox
from outbox_kernel.infrastructure.brokers.discovery import discover_topology
from outbox_kernel.infrastructure.cancelling import CancelledByOthers
from outbox_kernel.infrastructure.cli.at_broker import QUEUE_NAME, broker_of
from outbox_kernel.infrastructure.cli.limits import PREFETCH_MAX
from outbox_kernel.infrastructure.cli.numbers import Whole
from outbox_kernel.infrastructure.cli.output import json_option
from outbox_kernel.infrastructure.cli.serving import freeze_what_stays, run_loop, stopped_by_signals
from outbox_kernel.infrastructure.cli.telling import metrics_option, telemetry_settings, told_of
from outbox_kernel.infrastructure.discovery import context_packages
from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.relay.subscription import check_names
from outbox_kernel.infrastructure.telemetry import set_up_logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outbox_kernel.infrastructure.brokers import Topology
    from outbox_kernel.infrastructure.brokers.port import Broker
    from outbox_kernel.infrastructure.inbox.consumer import Consumer
    from outbox_kernel.infrastructure.relay import OutboxRelay
    from outbox_kernel.kernel.handlers import HandlerRegistration

_log = logging.getLogger("outbox.start")


class QueueUnhandled(InfrastructureError):
    """What arrives in a queue would be taken from it, and nobody would handle it."""


@click.command("consume")
@click.argument("queues", nargs=-1, required=True, type=QUEUE_NAME, metavar="QUEUE...")
@click.option("--wait", is_flag=True, help="Wait for a database that does not answer or is not migrated yet.")
@click.option("--once", is_flag=True, help="End when the queues are empty and what was in them is handled.")
@click.option(
    "--prefetch",
    type=Whole(1, PREFETCH_MAX),
    default=250,
    show_default=True,
    help="How many messages of a queue may be here, in memory, and not yet stored.",
)
@click.option(
    "--store-unhandled",
    is_flag=True,
    help="Also take from queues that no handler is for: what arrives there is stored as delivered, and nothing more.",
)
@metrics_option
@json_option
def command(
    *,
    queues: tuple[str, ...],
    wait: bool,
    once: bool,
    prefetch: int,
    store_unhandled: bool,
    metrics: str | None,
    as_json: bool,
) -> None:
    """Store what arrives in these queues of RABBITMQ_URL in the outbox of DATABASE_URL, and run their handlers.

    Handlers with queue=QUEUE run here, and no others: `outbox relay` is for those. Start as many as you like; a
    queue's messages go to one of them, and the others stand by. Stopped and logged as `outbox relay` is.
    """
    outbox = Outbox(telemetry=telemetry_settings(metrics))
    task = Consuming(
        outbox,
        broker_of(outbox.settings),
        tuple(dict.fromkeys(queues)),
        wait,
        once,
        prefetch,
        store_unhandled,
    )
    set_up_logs(as_json=as_json or None)
    run_loop(task.run())


@attrs.frozen
class Consuming:
    """What one process consumes, and how."""

    outbox: Outbox
    broker: Broker
    queues: tuple[str, ...]
    wait: bool
    once: bool
    prefetch: int
    store_unhandled: bool = False

    async def run(self) -> None:
        """Consume until told to stop, or once."""
        task, stopping, serving = asyncio.current_task(), asyncio.Event(), False
        assert task is not None  # noqa: S101 - a coroutine that runs is a task's
        telling = AsyncExitStack()

        def stop() -> None:
            if serving:
                stopping.set()
            else:
                task.cancel()

        try:
            with stopped_by_signals(stop):
                await telling.enter_async_context(told_of(self.outbox, "outbox-consumer"))
                relay, consumer = await self._prepared()
                freeze_what_stays()
                _log.info("consumer starts", extra={"action": "consumer.started", **self._about()})
                serving = True
                await serve_until(relay, consumer, stopping, once=self.once)
                _log.info("consumer has stopped", extra={"action": "consumer.stopped"})
        except asyncio.CancelledError:
            if task.uncancel() > 0:
                raise
            if serving:
                raise CancelledByOthers("the consumer") from None
            _log.info("stopped before it had begun", extra={"action": "consumer.stopped_early"})
        finally:
            await telling.aclose()
            await self.outbox.close()

    async def _prepared(self) -> tuple[OutboxRelay, Consumer]:
        """Load the application, wait for the database; the broker may come later."""
        from outbox_kernel.infrastructure.inbox.consumer import Consumer

        settings, queues = self.outbox.settings, self.queues
        topology = discover_topology(settings)
        self._check_application(topology)
        relay = await self.outbox.ready_relay(queues=queues, wait=self.wait)
        consumer = Consumer(
            self.broker,
            topology,
            queues,
            relay.engine,
            schema=settings.outbox_schema,
            relay=relay,
            prefetch=self.prefetch,
            master_keys=settings.master_keys,
            metrics=self.outbox.counted,
        )
        return relay, consumer

    def _check_application(self, topology: Topology) -> None:
        """Find what is wrong with the application, which needs no database."""
        found = self.outbox.load()
        ours = [each for each in found if each.queue in self.queues]
        # Carried elsewhere, publishers may have their subscriptions in the same database.
        check_names(ours, topology.publishers)
        topology.reading(self.queues)  # which the dead letters' is not for
        self._check_handled(found)

    def _check_handled(self, found: Sequence[HandlerRegistration]) -> None:
        """Refuse a queue that no handler is for, unless that is meant: whatever arrives would count as delivered."""
        handled = sorted({each.queue for each in found if each.queue is not None})
        lacking = [each for each in self.queues if each not in handled]
        if self.store_unhandled:
            for queue in lacking:
                _log.warning(
                    "no handler is for queue %r: what arrives there is stored, and nothing more",
                    queue,
                    extra={"action": "consumer.queue.unhandled", "queue": queue},
                )
        elif lacking:
            packages = ", ".join(context_packages(self.outbox.settings)) or "none"
            raise QueueUnhandled(
                f"no handler is for queue {lacking[0]!r} (contexts: {packages}; queues with handlers: "
                f"{', '.join(handled) or 'none'}): correct the name, name the contexts that have one in "
                "OUTBOX_CONTEXTS, or say --store-unhandled to store what arrives, and nothing more"
            )

    def _about(self) -> dict[str, object]:
        return {"queues": ", ".join(self.queues), "broker": str(self.broker)}


async def serve_until(
    relay: OutboxRelay, consumer: Consumer, stopping: asyncio.Event, *, once: bool = False
) -> None:
    """Take and handle until told to stop, or until all is taken; then take no more before handling no more."""
    relaying = asyncio.create_task(relay.run(), name="outbox-relay")
    taking = asyncio.create_task(consumer.run(), name="outbox-consumer")
    ends = [relaying, taking, asyncio.create_task(_told(stopping), name="outbox-consume-stop")]
    if once:
        ends.append(asyncio.create_task(consumer.emptied(), name="outbox-consume-once"))
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        unasked = relaying.done() or taking.done()
        consumer.stop()
        await asyncio.wait([taking])
        relay.stop()
        await asyncio.wait([relaying])
    finally:
        for each in ends:
            each.cancel()
        await asyncio.wait(ends)
    for each in ends:
        if not each.cancelled():
            each.result()
    if unasked:
        raise CancelledByOthers("the consumer")
    if once and not stopping.is_set():
        await relay.run_until_idle()


async def _told(stopping: asyncio.Event) -> None:
    await stopping.wait()
