"""What stands in RabbitMQ in another form, or may not be made there, is one sentence with a remedy (T2, R14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aio_pika import ExchangeType, connect

from infrastructure.brokers import PUBLISHED, Message, Outage, Queue
from infrastructure.brokers.rabbitmq import Address
from infrastructure.brokers.rabbitmq.declaring import DECLARE_SECONDS_MAX, Finding, declare, survey
from infrastructure.brokers.rabbitmq.link import Link
from infrastructure.brokers.rabbitmq.outlet import RabbitOutlet
from infrastructure.brokers.rabbitmq.trouble import (
    BrokerForbids,
    BrokerRefusal,
    BrokerUnreachable,
    explained,
)
from tests.post import Post, topology
from tests.rights import somebody


@asynccontextmanager
async def linked(address: Address) -> AsyncIterator[Link]:
    link = Link(address, "tests")
    try:
        yield link
    finally:
        await link.close()


async def found_at(post: Post, link: Link, *, apply: bool = False) -> dict[str, Finding]:
    return {each.name: each for each in await survey(link, post.topology, apply=apply)}


async def stands_otherwise(
    post: Post, *, queue: dict[str, Any] | None = None, exchange: bool = False
) -> None:
    """Let there be a queue or an exchange of our name that is not ours."""
    async with post.witness.channel() as channel:
        if queue is not None:
            await channel.declare_queue(post.queue, durable=True, arguments=queue)
        if exchange:
            await channel.declare_exchange(post.topology.exchanges[0], ExchangeType.DIRECT, durable=True)


async def test_to_look_makes_nothing_and_to_apply_makes_what_is_missing(post: Post) -> None:
    """T2: and what is there stays as it is."""
    async with linked(post.address) as link:
        looked = await found_at(post, link)
        assert {each.state for each in looked.values()} == {"missing"}
        made = await found_at(post, link, apply=True)
        assert {each.state for each in made.values()} == {"made"}
        assert {each.state for each in (await found_at(post, link, apply=True)).values()} == {"present"}
        assert {each.state for each in (await found_at(post, link)).values()} == {"present"}


async def test_a_queue_of_another_form_names_what_differs_here_and_there(post: Post) -> None:
    """T2: the publisher pauses, with that sentence."""
    await stands_otherwise(
        post, queue={"x-single-active-consumer": True, "x-dead-letter-exchange": "elsewhere"}
    )
    outlet = RabbitOutlet(Link(post.address, "tests"), post.topology.publishers[0], post.topology)
    try:
        outage = await outlet.prove()
    finally:
        await outlet.close()
    assert isinstance(outage, Outage)
    assert outage.reason.startswith(
        f"queue {post.queue!r} exists with another x-dead-letter-exchange "
        f"(there elsewhere, wanted {post.topology.dead_letter_exchange}): delete it when nothing needs it as it is"
    )


async def test_an_exchange_of_another_type_is_a_conflict(post: Post) -> None:
    """T2: to look finds it, and changes nothing."""
    await stands_otherwise(post, exchange=True)
    name = post.topology.exchanges[0]
    async with linked(post.address) as link:
        finding = (await found_at(post, link))[name]
    assert finding.state == "conflict"
    assert f"exchange {name!r} exists with another type (there direct, wanted topic)" in finding.detail


async def test_a_queue_whose_arguments_the_broker_does_not_know_is_not_said_to_exist(post: Post) -> None:
    """T2."""
    post.topology = topology(Queue("tests.odd", ("bank.*",), arguments={"x-max-length": -5}))
    async with linked(post.address) as link:
        finding = (await found_at(post, link, apply=True))["tests.odd"]
        with pytest.raises(BrokerRefusal) as refusal:
            await declare(link, post.topology)
    assert finding.state == "conflict"
    assert finding.detail.startswith("queue 'tests.odd' cannot be declared")
    assert "x-max-length" in finding.detail
    assert str(refusal.value) == finding.detail


async def test_a_queue_that_somebody_keeps_for_himself_is_a_conflict_and_the_rest_is_looked_at(
    post: Post,
) -> None:
    """T2."""
    async with await connect(post.broker.url) as other, other.channel() as channel:
        await channel.declare_queue(post.queue, exclusive=True)
        async with linked(post.address) as link:
            for apply in (True, False):
                found = await found_at(post, link, apply=apply)
                assert found[post.queue].state == "conflict"
                assert found[post.queue].detail.startswith(f"queue {post.queue!r} cannot be declared")
                assert found[post.topology.exchanges[0]].state in ("made", "present")


async def test_what_is_missing_and_may_not_be_made_says_what_to_grant(own_post: Post) -> None:
    """T2, R14."""
    async with somebody(own_post.broker, configure="") as url, linked(Address.parse(url)) as link:
        found = await found_at(own_post, link, apply=True)
        with pytest.raises(BrokerForbids, match=r"is missing and user '.*' may not declare it"):
            await declare(link, own_post.topology)
    assert {each.state for each in found.values()} == {"forbidden"}
    assert "let an administrator run `outbox topology --apply`" in found[own_post.queue].detail


async def test_who_may_not_declare_publishes_where_somebody_else_has_declared(own_post: Post) -> None:
    """T2: least privilege is enough to write."""
    await own_post.declare()
    async with somebody(own_post.broker, configure="") as url, linked(Address.parse(url)) as link:
        found = await found_at(own_post, link)
        assert {each.state for each in found.values()} == {"present"}
        assert "may not declare it, so its form is unknown" in found[own_post.queue].detail
        outlet = RabbitOutlet(link, own_post.topology.publishers[0], own_post.topology)
        assert await outlet.publish(Message("1", "bank.noted", b"{}", {})) == PUBLISHED
    assert await own_post.waiting() == 1


@asynccontextmanager
async def in_the_middle(post: Post) -> AsyncIterator[tuple[Link, asyncio.Task[list[Finding]]]]:
    """Somebody looks, and the broker's answer is held back."""
    async with linked(post.address) as link:
        assert not (await link.channel()).is_closed
        post.proxy.answers.clear()
        looking = asyncio.create_task(survey(link, post.topology, apply=True))
        await post.proxy.held.wait()
        yield link, looking


async def test_a_connection_that_ends_in_the_middle_is_told_as_such(post: Post) -> None:
    """R12, R14: and not as a conflict, nor as one who speaks no AMQP."""
    async with in_the_middle(post) as (_, looking):
        post.proxy.cut()
        with pytest.raises(BrokerUnreachable, match=r"the connection to RabbitMQ at .* was lost"):
            await looking


async def test_a_broker_that_hangs_up_is_quoted(post: Post) -> None:
    """R14."""
    async with linked(post.address) as link:
        channel = await link.channel()
        with (
            pytest.raises(BrokerUnreachable, match=r"has closed the connection \(COMMAND_INVALID - unknown"),
            explained(link.address, DECLARE_SECONDS_MAX),
        ):
            await channel.declare_exchange("tests.odd", "x-nonsense")


async def test_to_hang_up_ends_whoever_waits_with_a_sentence(post: Post) -> None:
    """R12."""
    async with in_the_middle(post) as (link, looking):
        closing = asyncio.create_task(link.close())
        with pytest.raises(BrokerUnreachable, match=r"the connection to RabbitMQ at .* was lost"):
            await looking
        post.proxy.answers.set()
        await closing


async def test_who_is_cancelled_in_the_middle_is_cancelled(post: Post) -> None:
    """R11: it is no trouble of the broker's."""
    async with in_the_middle(post) as (_, looking):
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking


async def test_a_broker_that_does_not_answer_in_time_is_told_so(post: Post) -> None:
    """R12: every call has a deadline."""
    link = Link(post.address, "tests", answer_seconds_max=0.1)
    post.proxy.answers.clear()
    with pytest.raises(BrokerUnreachable, match=r"did not answer within 0.1 s: look at its load"):
        _ = await link.channel()
    await link.close()
