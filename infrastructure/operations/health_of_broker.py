"""Doctor's look at the broker: whether it answers, what stands there, and what it holds as dead (O1, T2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.brokers.carrying import broker_of
from outbox_kernel.infrastructure.brokers.discovery import discover_topology
from outbox_kernel.infrastructure.brokers.port import BrokerRefusal
from outbox_kernel.infrastructure.errors import MissingExtra
from outbox_kernel.infrastructure.operations.limits import BROKER_ANSWER_SECONDS_MAX
from outbox_kernel.infrastructure.operations.verdicts import Check, fail, halves, ok, warn
from outbox_kernel.infrastructure.plain_text import count
from outbox_kernel.kernel.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from outbox_kernel.infrastructure.brokers.operated import Finding, OperatedBroker
    from outbox_kernel.infrastructure.brokers.topology import Topology
    from outbox_kernel.infrastructure.settings import Settings


async def examine_broker(settings: Settings) -> list[Check]:
    """Check the broker of the settings; nothing where there is none, or nothing that needs it."""
    if settings.rabbitmq_url is None:
        return []
    try:
        broker, topology = broker_of(settings), discover_topology(settings)
    except MissingExtra:
        return []
    except KernelError as error:
        return [fail("broker", *halves(error))]
    return await _examine(broker, topology) if topology.publishers or topology.queues else []


async def _examine(broker: OperatedBroker, topology: Topology) -> list[Check]:
    try:
        found, dead = await broker.examine(topology, seconds_max=BROKER_ANSWER_SECONDS_MAX)
    except BrokerRefusal as refusal:
        # What is to be published waits, and goes out by itself when the broker is back.
        return [warn("broker", *halves(refusal))]
    checks = [ok("broker", f"{broker.name} at {broker} answers"), *_topology(found)]
    return checks if dead is None else [*checks, _dead(topology.dead_letter_queue, dead)]


def _topology(found: Sequence[Finding]) -> Iterator[Check]:
    refused = [each for each in found if each.state in ("conflict", "forbidden")]
    missing = [f"{each.kind} {each.name!r}" for each in found if each.state == "missing"]
    for each in refused:
        yield fail("topology", *halves(each.detail))
    if missing:
        remedy = "`outbox topology --apply` makes it, and so does a relay or a consumer when it connects"
        yield warn("topology", f"missing at the broker: {', '.join(missing)}", remedy)
    if not refused and not missing:
        yield ok("topology", "every exchange and queue of the contexts stands")


def _dead(queue: str, number: int) -> Check:
    if not number:
        return ok("broker's dead letters", "none")
    return warn(
        "broker's dead letters",
        f"queue {queue!r} holds {count(number, 'message')}",
        "`outbox dead-letters list` shows why: mend that, then `outbox dead-letters replay`",
    )
