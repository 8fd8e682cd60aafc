"""Topology on RabbitMQ: made where it is missing, looked at, and a conflict told in one sentence (T2)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import attrs
from aio_pika import ExchangeType
from aio_pika.exceptions import ChannelClosed, ChannelNotFoundEntity
from aiormq.exceptions import ChannelAccessRefused

from infrastructure.brokers.rabbitmq.trouble import BrokerForbids, BrokerRefusal, explained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aio_pika.abc import AbstractChannel

    from infrastructure.brokers.rabbitmq.link import Link
    from infrastructure.brokers.topology import Topology

_VALUE = re.compile(r"the value '(.*)' of type")
State = Literal["present", "missing", "made", "conflict", "forbidden"]
_CONFLICT = re.compile(
    r"inequivalent arg '(.+?)' for (exchange|queue) '(.+?)' in .*?: received (.+?) but current is (.+)"
)
DECLARE_SECONDS_MAX = 10.0
# Other types count each look at a letter as a delivery, and throw it away after some.
CLASSIC = {"x-queue-type": "classic"}


class TopologyConflict(BrokerRefusal):
    """An exchange or a queue of this name exists, and is another one."""


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


@attrs.frozen
class Finding:
    """How a thing stands."""

    kind: str
    name: str
    state: State
    detail: str = ""


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


async def declare(link: Link, topology: Topology, *, needed: str | None = None) -> list[str]:
    """Make what is missing, or raise why it cannot be; where one thing is needed, return what else we may not make."""
    lacking: list[str] = []
    for thing in things(topology):
        found = await _find(link, thing, apply=True)
        if found.state == "conflict":
            raise TopologyConflict(found.detail)
        if found.state == "forbidden":
            if needed in (None, thing.name):
                raise BrokerForbids(found.detail)
            lacking.append(found.detail)
    return lacking


async def survey(link: Link, topology: Topology, *, apply: bool) -> list[Finding]:
    """Look at everything, and with `apply` make what is missing. Bindings cannot be seen by AMQP, only made again."""
    return [await _find(link, thing, apply=apply) for thing in things(topology)]


async def counts_looks(link: Link, queue: str) -> bool:
    """Tell whether a queue is known to be of a type that counts what is only looked at as delivered."""
    found = await _find(link, Thing("queue", queue, CLASSIC), apply=False)
    return found.state == "conflict" and "x-queue-type" in found.detail


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
    # Each on a channel of its own, since a refusal closes it.
    channel = await link.channel(confirms=False)
    try:
        with explained(link.address, DECLARE_SECONDS_MAX):
            await _declare(channel, thing, passive=passive)
    finally:
        await channel.close()


async def _declare(channel: AbstractChannel, thing: Thing, *, passive: bool = False) -> None:
    seconds = DECLARE_SECONDS_MAX
    if thing.kind == "exchange":
        await channel.declare_exchange(
            thing.name, ExchangeType.TOPIC, durable=True, passive=passive, timeout=seconds
        )
        return
    queue = await channel.declare_queue(
        thing.name,
        durable=True,
        passive=passive,
        arguments=None if passive else thing.arguments,
        timeout=seconds,
    )
    if not passive:
        for binding in thing.bindings:
            await queue.bind(thing.exchange, binding, timeout=seconds)


def _refused(thing: Thing, user: str, state: State, refusal: BrokerRefusal) -> Finding:
    """Tell what a refusal says of a thing; raise what is about the connection."""
    error = refusal.__cause__
    if isinstance(error, ChannelAccessRefused):
        return _forbidden(thing, user, state)
    if isinstance(error, ChannelClosed):
        return Finding(thing.kind, thing.name, "conflict", _conflict(thing, error, refusal))
    raise refusal


def _conflict(thing: Thing, error: ChannelClosed, refusal: BrokerRefusal) -> str:
    found = _CONFLICT.search(str(error))
    if found is None:
        return f"{thing} cannot be declared: {refusal}"
    argument, kind, name, wanted, current = found.groups()
    return (
        f"{kind} {name!r} exists with another {argument} (there {_plain(current)}, wanted {_plain(wanted)}): "
        "delete it when nothing needs it as it is, or declare it here as it is there, then `outbox topology --apply`"
    )


def _plain(words: str) -> str:
    found = _VALUE.match(words)
    return found[1] if found else words.strip(" '")


def _forbidden(thing: Thing, user: str, state: State) -> Finding:
    """Tell of what we may not declare; where it is there all the same, somebody else has declared it."""
    if state == "present":
        return Finding(
            thing.kind, thing.name, "present", f"user {user!r} may not declare it, so its form is unknown"
        )
    return Finding(
        thing.kind,
        thing.name,
        "forbidden",
        f"{thing} is missing and user {user!r} may not declare it: let an administrator run `outbox topology --apply`, "
        "or grant the right to configure it",
    )
