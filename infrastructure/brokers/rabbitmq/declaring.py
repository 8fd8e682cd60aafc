"""Topology on RabbitMQ: made where it is missing, looked at, and a conflict told in one sentence (T2)."""

from __future__ import annotations

import logging
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

import attrs
from aio_pika import ExchangeType
from aio_pika.exceptions import ChannelClosed, ChannelNotFoundEntity
from aiormq.exceptions import ChannelAccessRefused

from outbox_kernel.infrastructure.brokers.operated import Finding
from outbox_kernel.infrastructure.brokers.port import BrokerForbids, BrokerRefusal, TopologyConflict
from outbox_kernel.infrastructure.brokers.rabbitmq.limits import DECLARE_SECONDS_MAX
from outbox_kernel.infrastructure.brokers.rabbitmq.trouble import explained, told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from aio_pika.abc import AbstractChannel

    from outbox_kernel.infrastructure.brokers.operated import State
    from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
    from outbox_kernel.infrastructure.brokers.topology import Topology

_log = logging.getLogger("outbox.broker")

_VALUE = re.compile(r"the value '(.*)' of type")
_CONFLICT = re.compile(
    r"inequivalent arg '(.+?)' for (exchange|queue) '(.+?)' in .*?: received (.+?) but current is (.+)"
)
# Other types count each look at a letter as a delivery, and throw it away after some.
CLASSIC = {"x-queue-type": "classic"}


@attrs.frozen
class Thing:
    """An exchange, or a queue with what binds it."""

    kind: Literal["exchange", "queue"]
    name: str
    arguments: dict[str, Any] = attrs.Factory(dict)
    exchange: str = ""
    bindings: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Name it."""
        return f"{self.kind} {self.name!r}"


def things(topology: Topology) -> Iterator[Thing]:
    """Name all that a topology is made of, in the order in which it can be made."""
    dead, letters = topology.dead_letter_exchange, topology.dead_letter_queue
    yield Thing("exchange", dead)
    yield Thing("queue", letters, CLASSIC, dead, ("#",))
    for name in topology.exchanges:
        yield Thing("exchange", name)
    for queue in topology.queues:
        if not queue.optional:
            arguments = {"x-dead-letter-exchange": dead, "x-single-active-consumer": True, **queue.arguments}
            yield Thing("queue", queue.name, arguments, str(queue.exchange), queue.bindings)


async def declare(link: Link, topology: Topology, *, needed: str | None = None) -> None:
    """Make what is missing, or raise why it cannot be; where one exchange is needed, the log tells of the rest.

    What is not bound is told there in any case: it keeps nobody from what does arrive.
    """
    others: list[Finding] = []
    for found in await survey(link, topology, apply=True):
        if not found.is_wrong:
            continue
        if found.kind == "binding" or (
            needed is not None and (found.kind, found.name) != ("exchange", needed)
        ):
            others.append(found)
        else:
            raise (TopologyConflict if found.state == "conflict" else BrokerForbids)(found.detail)
    _tell(link, others)


def _tell(link: Link, troubles: list[Finding]) -> None:
    """Log what was not so the last time: a link is made again and again, and nothing has changed."""
    for each in troubles:
        if each.detail not in link.told:
            _log.log(
                logging.ERROR if each.state == "conflict" else logging.WARNING,
                "%s",
                each.detail,
                extra={"action": "broker.topology.wrong", "connection": link.name},
            )
    link.told = frozenset(each.detail for each in troubles)


async def survey(link: Link, topology: Topology, *, apply: bool) -> list[Finding]:
    """Look at everything, and with `apply` make what is missing. Bindings cannot be seen by AMQP, only made again."""
    found: list[Finding] = []
    exchanges: set[str] = set()
    for thing in things(topology):
        finding = await _find(link, thing, apply=apply)
        found.append(finding)
        if finding.stands and thing.kind == "exchange":
            exchanges.add(thing.name)
        elif finding.stands and thing.exchange in exchanges:
            found.append(await _binding(link, thing, finding, apply=apply))
    return found


async def counts_looks(link: Link, queue: str) -> bool:
    """Tell whether a queue is known to be of a type that counts what is only looked at as delivered."""
    found = await _find(link, Thing("queue", queue, CLASSIC), apply=False)
    return found.state == "conflict" and "x-queue-type" in found.detail


async def number_in(link: Link, queue: str) -> int | None:
    """Count the messages that are ready in a queue; None if it is not there, or is somebody's own."""
    try:
        async with _channel(link) as channel:
            found = await channel.declare_queue(queue, passive=True, timeout=DECLARE_SECONDS_MAX)
    except BrokerRefusal as refusal:
        if isinstance(refusal.__cause__, ChannelClosed):
            return None
        raise
    return found.declaration_result.message_count or 0


async def _find(link: Link, thing: Thing, *, apply: bool) -> Finding:
    state: State = "missing"
    try:
        if await _exists(link, thing):
            state = "present"
        if apply or state == "present":
            # Declaring what is there as it is changes nothing, and tells whether it is as we want it.
            await _make(link, thing)
    except BrokerRefusal as refusal:
        return _refused(thing, link.address.user, state, refusal)
    return Finding(thing.kind, thing.name, "made" if apply and state == "missing" else state)


async def _exists(link: Link, thing: Thing) -> bool:
    try:
        await _make(link, thing, passive=True)
    except BrokerRefusal as refusal:
        if isinstance(refusal.__cause__, ChannelNotFoundEntity):
            return False
        raise
    return True


async def _make(link: Link, thing: Thing, *, passive: bool = False) -> None:
    how: dict[str, Any] = {"durable": True, "passive": passive, "timeout": DECLARE_SECONDS_MAX}
    async with _channel(link) as channel:
        if thing.kind == "exchange":
            await channel.declare_exchange(thing.name, ExchangeType.TOPIC, **how)
        else:
            await channel.declare_queue(thing.name, arguments=None if passive else thing.arguments, **how)


@asynccontextmanager
async def _channel(link: Link) -> AsyncIterator[AbstractChannel]:
    """Open a channel for one step, since a refusal closes it."""
    channel = await link.channel(confirms=False)
    # To close it, too: the client cancels whoever waits for that while the connection ends.
    with explained(link.address, DECLARE_SECONDS_MAX):
        try:
            yield channel
        finally:
            await channel.close()


def _refused(thing: Thing, user: str, state: State, refusal: BrokerRefusal) -> Finding:
    """Tell what a refusal says of a thing; raise what is about the connection."""
    error = refusal.__cause__
    if isinstance(error, ChannelAccessRefused):
        return _forbidden(thing, user, state, error)
    if isinstance(error, ChannelClosed):
        return Finding(thing.kind, thing.name, "conflict", _conflict(thing, error))
    raise refusal


def _conflict(thing: Thing, error: ChannelClosed) -> str:
    found = _CONFLICT.search(str(error))
    if found is None:
        return (
            f"{thing} cannot be declared ({told(error)}): declare it here in a form that the broker takes, or take "
            "away what stands there under its name"
        )
    argument, kind, name, wanted, current = found.groups()
    return (
        f"{kind} {name!r} exists with another {argument} (there {_plain(current)}, wanted {_plain(wanted)}): "
        "delete it when nothing needs it as it is, or declare it here as it is there, then `outbox topology --apply`"
    )


def _plain(words: str) -> str:
    found = _VALUE.match(words)
    return found[1] if found else words.strip(" '")


def _forbidden(thing: Thing, user: str, state: State, error: ChannelAccessRefused) -> Finding:
    """Tell of what we may not declare; where it is there all the same, somebody else has declared it."""
    if state == "present":
        return Finding(
            thing.kind, thing.name, "present", f"user {user!r} may not declare it, so its form is unknown"
        )
    rights = "to configure it"
    if dead := thing.arguments.get("x-dead-letter-exchange"):
        rights += f" and to read it, and to write to exchange {dead!r}"
    return Finding(
        thing.kind,
        thing.name,
        "forbidden",
        f"{thing} is missing and user {user!r} may not declare it ({told(error)}): let an administrator run "
        f"`outbox topology --apply`, or grant the right {rights}",
    )


# --- bindings ---------------------------------------------------------------------------------------------


async def _binding(link: Link, thing: Thing, queue: Finding, *, apply: bool) -> Finding:
    name = f"{thing.exchange} -> {thing.name}"
    if not apply:
        return Finding(
            "binding", name, "unseen", "AMQP cannot show it: `outbox topology --apply` makes it again"
        )
    try:
        await _bind(link, thing)
    except BrokerRefusal as refusal:
        return _unbound(name, thing, queue, link.address.user, refusal)
    return Finding("binding", name, "bound")


async def _bind(link: Link, thing: Thing) -> None:
    async with _channel(link) as channel:
        queue = await channel.get_queue(thing.name, ensure=False)
        for binding in thing.bindings:
            await queue.bind(thing.exchange, binding, timeout=DECLARE_SECONDS_MAX)


def _unbound(name: str, thing: Thing, queue: Finding, user: str, refusal: BrokerRefusal) -> Finding:
    """Tell why a queue is not bound; raise what is about the connection."""
    error = refusal.__cause__
    if not isinstance(error, ChannelClosed):
        raise refusal
    if not isinstance(error, ChannelAccessRefused):
        detail = f"{thing} cannot be bound to exchange {thing.exchange!r} ({told(error)}): see that both stay there"
        return Finding("binding", name, "conflict", detail)
    if queue.detail:
        # Somebody else has declared it, and that is who binds it, too.
        return Finding(
            "binding", name, "unseen", f"user {user!r} may not make it, so it is its owner's affair"
        )
    return Finding(
        "binding",
        name,
        "forbidden",
        f"{thing} is there, and user {user!r} may not bind it to exchange {thing.exchange!r} ({told(error)}), so that "
        "nothing need arrive in it: let an administrator run `outbox topology --apply`, or grant the right to write to "
        "the queue and to read the exchange",
    )
