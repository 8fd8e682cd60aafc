"""A message whose channel, connection or caller goes while it is on its way (T1, T4, R7, R11, R12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import attrs
import pytest
from aiormq.exceptions import ChannelAccessRefused

from outbox_kernel.infrastructure.brokers import PUBLISHED, Message, Outage, Queue, Refused
from outbox_kernel.infrastructure.brokers.rabbitmq import Address
from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
from outbox_kernel.infrastructure.brokers.rabbitmq.outlet import AmqpMessage, RabbitOutlet
from tests.brokers import MESSAGE_BYTES_MAX
from tests.post import Post, topology
from tests.rights import somebody
from tests.waiting import until

SOON_SECONDS = 0.3
LONG_SECONDS = 30.0


@asynccontextmanager
async def outlet_of(
    post: Post, url: str | None = None, *, answer_seconds_max: float = LONG_SECONDS
) -> AsyncIterator[RabbitOutlet]:
    address = post.address if url is None else Address.parse(url)
    link = Link(address, "tests", answer_seconds_max=answer_seconds_max)
    outlet = RabbitOutlet(link, post.topology.publishers[0], post.topology)
    try:
        yield outlet
    finally:
        await outlet.close()


def message(body: bytes = b"{}", routing_key: str = "bank.noted") -> Message:
    return Message(str(uuid4()), routing_key, body, {"event_type": routing_key})


async def test_who_is_told_to_stop_while_it_waits_for_a_confirm_stops(post: Post) -> None:
    """R11: what others have on their way over the same channel is confirmed all the same."""
    async with outlet_of(post) as outlet:
        assert await outlet.prove() is None
        post.proxy.answers.clear()
        one, other = (asyncio.create_task(outlet.publish(message())) for _ in range(2))
        await post.proxy.held.wait()
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        post.proxy.answers.set()
        assert await other == PUBLISHED
    assert await post.waiting() == 2


async def test_a_cut_between_publish_and_confirm_sends_it_again(post: Post) -> None:
    """T1, T4: the broker has it by then, so it comes twice rather than not at all."""
    async with outlet_of(post) as outlet:
        assert await outlet.prove() is None
        post.proxy.answers.clear()
        sent = message()
        sending = asyncio.create_task(outlet.publish(sent))
        await post.proxy.held.wait()
        post.proxy.cut()
        post.proxy.answers.set()
        assert await sending == PUBLISHED
    assert {each.message_id for each in await post.take()} == {sent.message_id}


async def test_who_waits_for_a_former_connection_in_vain_leaves_the_next_one_alone(post: Post) -> None:
    """T4, R12: of many that were sent into nothing each has its own deadline, and all but the first come late."""
    async with outlet_of(post) as outlet:
        assert await outlet.prove() is None
        post.proxy.answers.clear()
        outlet.confirm_seconds_max = SOON_SECONDS
        first = asyncio.create_task(outlet.publish(message()))
        await post.proxy.held.wait()
        outlet.confirm_seconds_max = 4 * SOON_SECONDS
        late = asyncio.create_task(outlet.publish(message()))
        assert isinstance(await first, Outage)
        # For the next connection alone.
        post.proxy.answers = asyncio.Event()
        post.proxy.answers.set()
        outlet.confirm_seconds_max = LONG_SECONDS
        assert await outlet.prove() is None
        connections = post.proxy.accepted
        assert isinstance(await late, Outage)
        assert await outlet.publish(message()) == PUBLISHED
        assert post.proxy.accepted == connections


async def test_a_connection_that_stands_and_answers_no_more_is_replaced(own_post: Post) -> None:
    """T4, R12: here the broker has closed the channel, and the next one is never opened."""
    async with outlet_of(own_post, answer_seconds_max=SOON_SECONDS) as outlet:
        assert isinstance(await outlet.publish(message(b"x" * (MESSAGE_BYTES_MAX + 1))), Refused)
        before = own_post.proxy.accepted
        own_post.proxy.answers.clear()
        sending = asyncio.create_task(outlet.publish(message()))
        await until(lambda: has_accepted(own_post, before + 1))
        own_post.proxy.answers.set()
        assert await sending == PUBLISHED


async def has_accepted(post: Post, count: int) -> bool:
    return post.proxy.accepted >= count


async def test_a_missing_exchange_is_an_outage_until_it_is_made_again(post: Post) -> None:
    """T2, R7: nobody's message is to blame, and to look for the broker makes it."""
    async with outlet_of(post) as outlet:
        assert await outlet.publish(message()) == PUBLISHED
        async with post.witness.channel() as channel:
            await channel.exchange_delete(post.topology.exchanges[0])
        outage = await outlet.publish(message())
        assert isinstance(outage, Outage)
        assert f"no exchange '{post.topology.exchanges[0]}'" in outage.reason
        assert await outlet.prove() is None
        assert await outlet.publish(message()) == PUBLISHED


async def test_events_that_no_queue_is_for_are_refused_each(post: Post) -> None:
    """R7: and what is missing is not made anew for each of them."""
    async with outlet_of(post) as outlet:
        for _ in range(2):
            outcome = await outlet.publish(message(routing_key="shop.opened"))
            assert isinstance(outcome, Refused)
            assert outcome.reason.endswith("has no queue for 'shop.opened'")
        assert await outlet.publish(message()) == PUBLISHED


async def test_who_may_write_to_its_exchange_alone_needs_no_more(own_post: Post) -> None:
    """R7: to look whether messages are taken asks the default exchange, and a no is an answer."""
    await own_post.declare()
    exchange = own_post.topology.exchanges[0].replace(".", r"\.")
    async with (
        somebody(own_post.broker, configure="", write=exchange, read="") as url,
        outlet_of(own_post, url) as outlet,
    ):
        assert await outlet.prove() is None
        assert await outlet.publish(message()) == PUBLISHED


async def test_what_cannot_be_made_again_is_told_and_stops_no_other(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    """R7, T2: somebody has made a queue of its name in another form."""
    post.topology = topology(Queue(f"{post.queue}.n", ("bank.*",)), Queue(f"{post.queue}.s", ("shop.*",)))
    async with outlet_of(post) as outlet:
        assert await outlet.publish(message()) == PUBLISHED
        async with post.witness.channel() as channel:
            await channel.queue_delete(post.queue)
            await channel.declare_queue(post.queue, durable=True)
        assert isinstance(await outlet.publish(message()), Refused)
        assert f"queue '{post.queue}' exists with another" in caplog.text
        assert await outlet.publish(message(routing_key="shop.opened")) == PUBLISHED


async def test_where_queues_are_made_by_others_a_missing_one_is_the_affair_of_its_events(
    own_post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    """R7, T2: what we may not make is told, and everything else goes on."""
    own_post.topology = topology(Queue("the-notes", ("bank.*",)), Queue("the-shops", ("shop.*",)))
    await own_post.declare()
    async with (
        somebody(own_post.broker, configure="") as url,
        outlet_of(own_post, url) as outlet,
    ):
        assert await outlet.publish(message()) == PUBLISHED
        async with own_post.witness.channel() as channel:
            await channel.queue_delete(own_post.queue)
        assert isinstance(await outlet.publish(message()), Refused)
        assert "queue 'the-notes' is missing and user" in caplog.text
        await outlet.close()
        assert await outlet.prove() is None
        assert isinstance(await outlet.publish(message()), Refused)
        assert await outlet.publish(message(routing_key="shop.opened")) == PUBLISHED
        async with own_post.witness.channel() as channel:
            await channel.exchange_delete(own_post.topology.exchanges[0])
        await outlet.close()
        outage = await outlet.prove()
        assert isinstance(outage, Outage)
        assert "exchange" in outage.reason
        assert "is missing and user" in outage.reason


async def test_while_an_alarm_lasts_nobody_waits_for_a_confirm(own_post: Post) -> None:
    """T4, R7: once it is known, each message is told so at once; the connection is kept."""
    control = own_post.broker.control
    assert control is not None
    async with outlet_of(own_post, answer_seconds_max=SOON_SECONDS) as outlet:
        assert await outlet.publish(message()) == PUBLISHED
        connections = own_post.proxy.accepted
        await asyncio.to_thread(control, "set_vm_memory_high_watermark", "0.0000001")
        try:
            outlet.confirm_seconds_max = SOON_SECONDS
            while await outlet.prove() is None:
                await outlet.publish(message())
            outlet.confirm_seconds_max = LONG_SECONDS
            async with asyncio.timeout(LONG_SECONDS / 2):
                outage = await outlet.publish(message())
            assert isinstance(outage, Outage)
            assert "by an alarm of its memory or its disk" in outage.reason
        finally:
            await asyncio.to_thread(control, "set_vm_memory_high_watermark", "0.4")
        await until(lambda: is_proved(outlet))
        assert await outlet.publish(message()) == PUBLISHED
        assert own_post.proxy.accepted == connections


async def is_proved(outlet: RabbitOutlet) -> bool:
    return await outlet.prove() is None


async def test_what_the_broker_ends_the_channel_over_is_refused_and_takes_no_other_along(post: Post) -> None:
    """R7, T4: all that is in flight on a channel ends with it, and one of them is to blame."""
    others = [message() for _ in range(30)]
    guilty = attrs.evolve(message(), headers={"CC": "no list"})
    async with outlet_of(post) as outlet:
        sent = [*others[:15], guilty, *others[15:]]
        outcomes = await asyncio.gather(*(outlet.publish(each) for each in sent))
        refused = outcomes.pop(15)
        assert isinstance(refused, Refused)
        assert "unacceptable_type_in_header" in refused.reason
        assert set(outcomes) == {PUBLISHED}
    assert {each.message_id for each in await post.take()} == {each.message_id for each in others}


async def test_headers_that_are_too_large_are_refused_and_take_no_other_along(post: Post) -> None:
    """R7, T4: over these the broker ends the whole connection."""
    others = [message() for _ in range(10)]
    guilty = attrs.evolve(message(), headers={f"k{number:05}": "" for number in range(12_000)})
    async with outlet_of(post) as outlet:
        outcomes = await asyncio.gather(*(outlet.publish(each) for each in [*others, guilty]))
    refused = outcomes.pop()
    assert isinstance(refused, Refused)
    assert "its headers have 144,0" in refused.reason
    assert set(outcomes) == {PUBLISHED}
    assert {each.message_id for each in await post.take()} == {each.message_id for each in others}


async def test_a_type_that_the_user_may_not_publish_is_that_events_affair(own_post: Post) -> None:
    """R7: the broker can forbid routing keys one by one."""
    control, exchange = own_post.broker.control, own_post.topology.exchanges[0]
    assert control is not None
    async with somebody(own_post.broker) as url, outlet_of(own_post, url) as outlet:
        user = Address.parse(url).user
        await asyncio.to_thread(
            control, "set_topic_permissions", "-p", "/", user, exchange, r"^bank\.noted$", ".*"
        )
        outcomes = await asyncio.gather(
            *(outlet.publish(message(routing_key=key)) for key in ("bank.noted", "bank.secret", "bank.noted"))
        )
        refused = outcomes.pop(1)
        assert isinstance(refused, Refused)
        assert "access to topic 'bank.secret'" in refused.reason
        assert set(outcomes) == {PUBLISHED}
        await own_post.take()
        # By now it is known, and ends nothing that others are on.
        keys = ("bank.noted", "bank.secret", "bank.noted")
        again = await asyncio.gather(*(outlet.publish(message(routing_key=key)) for key in keys))
        assert isinstance(again[1], Refused)
        assert await own_post.waiting() == 2
        await asyncio.to_thread(control, "clear_topic_permissions", "-p", "/", user)
        for _ in range(2):
            assert await outlet.publish(message(routing_key="bank.secret")) == PUBLISHED


ODD = "bank.odd"


async def knows_to_be_odd(outlet: RabbitOutlet) -> None:
    """Let the outlet know a routing key that a channel was ended over."""
    odd = attrs.evolve(message(routing_key=ODD), headers={"CC": "no list"})
    assert isinstance(await outlet.publish(odd), Refused)
    assert await outlet.prove() is None


async def test_one_that_is_tried_alone_in_vain_leaves_the_others_on_their_way(post: Post) -> None:
    """T1, T4: it has a connection of its own, and the deadline of that one ends no other."""
    async with outlet_of(post) as outlet:
        await knows_to_be_odd(outlet)
        connections = post.proxy.accepted
        post.proxy.answers.clear()
        other = asyncio.create_task(outlet.publish(message()))
        await post.proxy.held.wait()
        outlet.confirm_seconds_max = SOON_SECONDS
        outage = await outlet.publish(message(routing_key=ODD))
        assert isinstance(outage, Outage)
        assert "did not answer within 0.3 s" in outage.reason
        outlet.confirm_seconds_max = LONG_SECONDS
        post.proxy.answers.set()
        assert await other == PUBLISHED
        assert await outlet.publish(message()) == PUBLISHED
        # The one that it was tried on.
        assert post.proxy.accepted == connections + 1
        assert await outlet.publish(message(routing_key=ODD)) == PUBLISHED


async def test_where_one_cannot_be_tried_alone_the_others_stay_on_their_way(post: Post) -> None:
    """T1, T4: for its connection the broker may have no room left."""
    async with outlet_of(post) as outlet:
        await knows_to_be_odd(outlet)
        connections = post.proxy.accepted
        outlet._suspects_link.address = Address.parse("amqp://127.0.0.1:1")  # noqa: SLF001 - for this one alone
        post.proxy.answers.clear()
        other = asyncio.create_task(outlet.publish(message()))
        await post.proxy.held.wait()
        outage = await outlet.publish(message(routing_key=ODD))
        assert isinstance(outage, Outage)
        assert "cannot be reached (Connection refused)" in outage.reason
        post.proxy.answers.set()
        assert await other == PUBLISHED
        assert await outlet.publish(message()) == PUBLISHED
        assert post.proxy.accepted == connections


async def test_a_connection_that_is_lost_while_one_is_tried_alone_leaves_the_others_on_their_way(
    post: Post,
) -> None:
    """T1, T4, R7: the broker ends a connection over headers that are too large, and says who it was."""
    async with outlet_of(post) as outlet:
        await knows_to_be_odd(outlet)
        connections = post.proxy.accepted
        headers = {f"k{number:05}": "" for number in range(12_000)}
        refused = await outlet.publish(attrs.evolve(message(routing_key=ODD), headers=headers))
        assert isinstance(refused, Refused)
        assert "its headers have 144,0" in refused.reason
        assert await outlet.publish(message()) == PUBLISHED
        # The one that it was tried on.
        assert post.proxy.accepted == connections + 1


async def test_who_is_cancelled_while_it_declares_leaves_the_rest_to_the_next(post: Post) -> None:
    """T2, R11: that one opens a channel on a connection of its own, and begins anew."""
    async with outlet_of(post) as outlet:
        proving = asyncio.create_task(outlet.prove())
        while not outlet.link.is_open:  # noqa: ASYNC110 - a turn of the loop away, and declaring takes many
            await asyncio.sleep(0)
        post.proxy.answers.clear()
        await post.proxy.held.wait()
        proving.cancel()
        post.proxy.answers.set()
        with pytest.raises(asyncio.CancelledError):
            await proving
        assert await outlet.publish(message()) == PUBLISHED


async def test_rights_that_go_while_one_is_looked_for_are_an_outage(own_post: Post) -> None:
    """R7: a message that is tried alone is not to blame for what forbids them all."""
    await own_post.declare()
    exchange = own_post.topology.exchanges[0]
    async with (
        somebody(own_post.broker, configure="", write="^$", read="") as url,
        outlet_of(own_post, url) as outlet,
    ):
        with pytest.raises(ChannelAccessRefused, match=f"access to exchange '{exchange}'"):
            await outlet._publish_alone(AmqpMessage.of(message()))  # noqa: SLF001 - rights go in between
