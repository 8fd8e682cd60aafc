"""What stands in RabbitMQ in another form, or may not be made there, is one sentence with a remedy (T2, R14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from aio_pika import ExchangeType, connect
from aio_pika import Message as AmqpMessage
from aio_pika.exceptions import PublishError

from outbox_kernel.infrastructure.brokers import PUBLISHED, Message, Outage, Queue
from outbox_kernel.infrastructure.brokers.operated import Finding
from outbox_kernel.infrastructure.brokers.port import BrokerForbids, BrokerRefusal, BrokerUnreachable
from outbox_kernel.infrastructure.brokers.rabbitmq import Address
from outbox_kernel.infrastructure.brokers.rabbitmq.declaring import _channel, declare, survey
from outbox_kernel.infrastructure.brokers.rabbitmq.limits import DECLARE_SECONDS_MAX
from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
from outbox_kernel.infrastructure.brokers.rabbitmq.outlet import RabbitOutlet
from outbox_kernel.infrastructure.brokers.rabbitmq.trouble import explained
from tests.post import Post, topology
from tests.rights import somebody

# The queue that is for notes may be read, no exchange and no other queue.
NO_EXCHANGE = r"\.notes$"


@asynccontextmanager
async def linked(address: Address) -> AsyncIterator[Link]:
    link = Link(address, "tests")
    try:
        yield link
    finally:
        await link.close()


async def found_at(post: Post, link: Link, *, apply: bool = False) -> dict[str, Finding]:
    return {each.name: each for each in await survey(link, post.topology, apply=apply)}


async def states_at(post: Post, link: Link, *, apply: bool = False) -> set[str]:
    return {each.state for each in (await found_at(post, link, apply=apply)).values()}


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
        assert await states_at(post, link) == {"missing"}
        assert await states_at(post, link, apply=True) == {"made", "bound"}
        assert await states_at(post, link, apply=True) == {"present", "bound"}
        assert await states_at(post, link) == {"present", "unseen"}


@asynccontextmanager
async def outlet_of(post: Post, address: Address) -> AsyncIterator[RabbitOutlet]:
    outlet = RabbitOutlet(Link(address, "tests"), post.topology.publishers[0], post.topology)
    try:
        yield outlet
    finally:
        await outlet.close()


def message() -> Message:
    return Message(str(uuid4()), "bank.noted", b"{}", {})


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What the log was told of the topology."""
    return [(each.levelname, each.getMessage()) for each in caplog.records if each.name == "outbox.broker"]


async def test_a_queue_of_another_form_is_an_error_in_the_log_and_publishing_goes_on(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    """T2, T4: what is sent needs the exchange alone, today as after the broker's next restart; it is told once."""
    await post.declare()
    async with outlet_of(post, post.address) as outlet:
        assert await outlet.publish(message()) == PUBLISHED
        async with post.witness.channel() as channel:
            await channel.queue_delete(post.queue)
        form = {"x-single-active-consumer": True, "x-dead-letter-exchange": "elsewhere"}
        await stands_otherwise(post, queue=form)
        async with post.witness.channel() as channel:
            queue = await channel.get_queue(post.queue, ensure=False)
            await queue.bind(post.topology.exchanges[0], "#")
        for _ in range(3):
            await outlet.close()
            assert await outlet.prove() is None
            assert await outlet.publish(message()) == PUBLISHED
    [(level, sentence)] = told(caplog)
    assert level == "ERROR"
    assert sentence.startswith(
        f"queue {post.queue!r} exists with another x-dead-letter-exchange "
        f"(there elsewhere, wanted {post.topology.dead_letter_exchange}): delete it when nothing needs it as it is"
    )
    assert await post.waiting() == 3


async def test_who_publishes_to_an_exchange_of_another_type_is_paused_with_that_sentence(post: Post) -> None:
    """T2."""
    await stands_otherwise(post, exchange=True)
    async with outlet_of(post, post.address) as outlet:
        outage = await outlet.prove()
    assert isinstance(outage, Outage)
    assert outage.reason.startswith(f"exchange {post.topology.exchanges[0]!r} exists with another type")


# --- bindings ------------------------------------------------------------------------------------------


async def test_what_may_not_be_bound_names_the_rights_each_time_and_what_is_made_is_made(
    own_post: Post,
) -> None:
    """T2: the second look as the first, until somebody binds it."""
    names = own_post.topology
    binding = f"{names.dead_letter_exchange} -> {names.dead_letter_queue}"
    async with somebody(own_post.broker, read=NO_EXCHANGE) as url, linked(Address.parse(url)) as link:
        for state in ("made", "present"):
            found = await found_at(own_post, link, apply=True)
            assert (found[own_post.dead].state, found[own_post.dead].detail) == (state, "")
            assert found[binding].state == "forbidden"
            assert found[binding].is_wrong
            assert f"queue {own_post.dead!r} is there, and user" in found[binding].detail
            assert (
                f"bind it to exchange '{names.dead_letter_exchange}' (ACCESS_REFUSED - "
                in found[binding].detail
            )
            assert found[binding].detail.endswith("the right to write to the queue and to read the exchange")
    async with linked(own_post.address) as link:
        assert await states_at(own_post, link, apply=True) == {"present", "bound"}


async def test_who_publishes_and_may_not_bind_says_so_once_and_publishes(
    own_post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    """T2, R7: queues are others' affair, as those that may not be made; but not in silence."""
    exchange = own_post.topology.exchanges[0]
    async with (
        somebody(own_post.broker, read=NO_EXCHANGE) as url,
        outlet_of(own_post, Address.parse(url)) as outlet,
    ):
        assert await outlet.prove() is None
        async with own_post.witness.channel() as channel:
            queue = await channel.get_queue(own_post.queue, ensure=False)
            await queue.bind(exchange, "bank.*")
        await outlet.close()
        assert await outlet.publish(message()) == PUBLISHED
    assert [level for level, _ in told(caplog)] == ["WARNING", "WARNING"]
    for name, (_, sentence) in zip((own_post.dead, own_post.queue), told(caplog), strict=True):
        assert sentence.startswith(f"queue {name!r} is there, and user")


async def test_what_nobody_consumes_for_want_of_a_binding_is_told_by_its_consumer(
    own_post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    """T2: what does arrive is consumed."""
    topology = own_post.topology.reading([own_post.queue])
    async with somebody(own_post.broker, read=NO_EXCHANGE) as url, linked(Address.parse(url)) as link:
        for _ in range(2):
            await declare(link, topology)
    assert [level for level, _ in told(caplog)] == ["WARNING", "WARNING"]
    assert f"queue {own_post.queue!r} is there, and user" in caplog.text


async def test_trouble_that_comes_back_is_told_again(
    own_post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    """T2."""
    control = own_post.broker.control
    assert control is not None
    async with somebody(own_post.broker, read=NO_EXCHANGE) as url, linked(Address.parse(url)) as link:
        user = Address.parse(url).user
        for rights in (NO_EXCHANGE, ".*", NO_EXCHANGE):
            await asyncio.to_thread(control, "set_permissions", "-p", "/", user, ".*", ".*", rights)
            link.drop()
            await declare(link, own_post.topology)
    assert len(told(caplog)) == 4


async def test_to_look_binds_nothing(post: Post) -> None:
    """T2: not even what somebody has unbound."""
    await post.declare()
    async with post.witness.channel() as channel:
        queue = await channel.get_queue(post.queue, ensure=False)
        await queue.unbind(post.topology.exchanges[0], "bank.*")
    async with linked(post.address) as link:
        await survey(link, post.topology, apply=False)
        async with post.witness.channel(publisher_confirms=True, on_return_raises=True) as channel:
            exchange = await channel.get_exchange(post.topology.exchanges[0], ensure=False)
            with pytest.raises(PublishError):
                await exchange.publish(AmqpMessage(b""), "bank.noted", mandatory=True)
        await survey(link, post.topology, apply=True)
    async with outlet_of(post, post.address) as outlet:
        assert await outlet.publish(message()) == PUBLISHED


async def test_what_may_not_be_declared_is_bound_by_its_owner(
    own_post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    """T2: who may write to his exchange alone hears nothing of what others have made."""
    await own_post.declare()
    exchange = own_post.topology.exchanges[0].replace(".", r"\.")
    async with somebody(own_post.broker, configure="", write=exchange, read="") as url:
        async with linked(Address.parse(url)) as link:
            found = (await found_at(own_post, link, apply=True)).values()
        assert {each.state for each in found} == {"present", "unseen"}
        assert all("its owner's affair" in each.detail for each in found if each.kind == "binding")
        async with outlet_of(own_post, Address.parse(url)) as outlet:
            assert await outlet.publish(message()) == PUBLISHED
    assert told(caplog) == []


# --- what cannot be declared ---------------------------------------------------------------------------


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
    assert found[own_post.topology.exchanges[0]].detail.endswith("or grant the right to configure it")
    assert found[own_post.queue].detail.endswith(
        f"the right to configure it and to read it, and to write to exchange '{own_post.topology.dead_letter_exchange}'"
    )


async def test_who_may_not_declare_publishes_where_somebody_else_has_declared(own_post: Post) -> None:
    """T2: least privilege is enough to write."""
    await own_post.declare()
    async with somebody(own_post.broker, configure="") as url, linked(Address.parse(url)) as link:
        found = await found_at(own_post, link)
        assert {each.state for each in found.values()} == {"present", "unseen"}
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


async def test_to_hang_up_as_a_channel_is_closed_ends_with_a_sentence(post: Post) -> None:
    """R12: the client ends whoever waits for that as if he had been cancelled."""
    async with linked(post.address) as link:

        async def step() -> None:
            async with _channel(link):
                post.proxy.answers.clear()

        leaving = asyncio.create_task(step())
        await post.proxy.held.wait()
        link.drop()
        with pytest.raises(BrokerUnreachable, match=r"the connection to RabbitMQ at .* was lost"):
            await leaving
        post.proxy.answers.set()


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
