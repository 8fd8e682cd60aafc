"""Dead letters are looked at where they are, and go back as the messages that they were (T3, O1)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from aio_pika import DeliveryMode, Message
from aio_pika.abc import AbstractIncomingMessage
from pamqp import encode

from outbox_kernel.infrastructure.brokers import Queue
from outbox_kernel.infrastructure.brokers.operated import Choice, Letter
from outbox_kernel.infrastructure.brokers.port import (
    MOMENT_HEADER,
    QUEUE_HEADER,
    REASON_HEADER,
    BrokerRefusal,
    BrokerUnreachable,
)
from outbox_kernel.infrastructure.brokers.rabbitmq import Address
from outbox_kernel.infrastructure.brokers.rabbitmq.dead_letters import (
    LookRefused,
    NoDeadLetters,
    ReplayRefused,
    listed,
    replayed,
)
from tests import stranger
from tests.integration.relay.rabbitmq.test_consumer import consuming, delivered, lies, noting
from tests.integration.relay.rabbitmq.test_consumer_losses import is_held_up, nothing_can_be_stored
from tests.post import Post, topology
from tests.relaying import Recorder, Stage
from tests.waiting import until

pytestmark = pytest.mark.brokers

EVERY = Choice()
OURS = {REASON_HEADER: "its body is no JSON", MOMENT_HEADER: "2026-01-02T03:04:05+00:00"}


async def bury(
    post: Post, *ids: str, queue: str | None = None, body: bytes = b"\x00\xff", **more: Any
) -> None:
    """Put dead letters where the consumer puts them."""
    for each in ids:
        headers = {**OURS, QUEUE_HEADER: queue or post.queue, "event_type": "bank.noted", **more}
        await post.send(body, headers, message_id=each, queue=post.dead)


async def look(post: Post, choice: Choice = EVERY, most: int = 100) -> list[Letter]:
    return (await listed(post.address, post.dead, most=most, choice=choice))[0]


async def replay(
    post: Post,
    *,
    choice: Choice = EVERY,
    to: str | None = None,
    begin: Callable[[int], Callable[[int], None]] = lambda _: lambda _: None,
) -> int:
    declared = {each.name for each in post.topology.queues}
    return await replayed(post.address, post.dead, choice=choice, to=to, declared=declared, begin=begin)


async def ids_in(post: Post, queue: str) -> list[str | None]:
    return [each.message_id for each in await post.take(queue)]


async def refuse_from_queue(post: Post) -> None:
    """Let the broker take a message for dead, as when somebody else's consumer rejects it."""
    async with post.witness.channel() as channel:
        message = await (await channel.get_queue(post.queue)).get()
        await message.reject(requeue=False)
    await until(lambda: lies(post, post.dead, 1))


# --- looking -------------------------------------------------------------------------------------------


async def test_a_letter_is_shown_with_where_it_came_from_why_and_since_when(post: Post) -> None:
    await post.declare()
    await bury(post, "m-1")
    assert await look(post) == [
        Letter("m-1", "bank.noted", post.queue, OURS[REASON_HEADER], OURS[MOMENT_HEADER], 2)
    ]


async def test_looking_leaves_them_where_they_are_in_their_order(post: Post) -> None:
    await post.declare()
    await bury(post, "m-1", "m-2", "m-3")
    for _ in range(2):
        assert [each.id for each in await look(post)] == ["m-1", "m-2", "m-3"]


async def test_what_the_broker_took_for_dead_tells_so(post: Post) -> None:
    await post.declare()
    before = datetime.now(UTC).replace(microsecond=0)
    await post.send(b"x", {}, message_id="m-1")
    await refuse_from_queue(post)
    [letter] = await look(post)
    assert (letter.event_type, letter.queue, letter.reason) == (
        post.queue,
        post.queue,
        "the broker: rejected",
    )
    assert letter.since is not None
    assert datetime.fromisoformat(letter.since) >= before


@pytest.mark.parametrize(
    "headers", [{}, {"x-death": "nonsense"}, {"x-death": []}, {"x-death": ["nonsense"]}, {"x-death": [{}]}]
)
async def test_of_what_says_nothing_nothing_is_said(post: Post, headers: dict[str, Any]) -> None:
    await post.declare()
    await post.send(b"", headers, message_id="m-1", queue=post.dead)
    assert await look(post) == [Letter("m-1", post.dead, None, None, None, 0)]


async def test_one_is_found_behind_more_than_are_shown(post: Post) -> None:
    """The limit is of what is shown: a letter that is asked for is found wherever it lies."""
    await post.declare()
    await bury(post, *(f"m-{number}" for number in range(9)))
    await bury(post, "m-9", queue="elsewhere")
    assert [each.id for each in await look(post, Choice(id="m-8"), most=1)] == ["m-8"]
    assert [each.id for each in await look(post, Choice(queue="elsewhere"), most=2)] == ["m-9"]
    found, left = await listed(post.address, post.dead, most=4, choice=EVERY)
    assert ([each.id for each in found], left) == (["m-0", "m-1", "m-2", "m-3"], 6)


async def test_a_queue_that_is_not_there_is_told_with_the_remedy(post: Post) -> None:
    with pytest.raises(
        NoDeadLetters, match=r"there is no queue '.*' at .*: `outbox topology --apply` makes it"
    ):
        await look(post)


async def test_a_broker_that_closes_the_channel_is_told_as_it_is(post: Post) -> None:
    """A queue that somebody has for himself is no missing one."""
    async with post.witness.channel() as channel:
        await channel.declare_queue(post.dead, exclusive=True)
        with pytest.raises(BrokerRefusal, match="RESOURCE_LOCKED"):
            await look(post)


@pytest.mark.parametrize("look_again", [look, lambda post: replay(post, choice=Choice("m-9"))])
async def test_a_queue_that_counts_looks_as_deliveries_is_not_looked_into(
    post: Post, look_again: Callable[[Post], Awaitable[object]]
) -> None:
    """T3: after some of them it would throw its letters away."""
    async with post.witness.channel() as channel:
        arguments: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": 1}
        await channel.declare_queue(post.dead, durable=True, arguments=arguments)
    await bury(post, "m-1", "m-2", queue=post.dead)
    for _ in range(3):
        with pytest.raises(LookRefused, match=f"queue '{post.dead}' is no classic one"):
            await look_again(post)
    assert await replay(post, to=post.dead) == 2
    assert await ids_in(post, post.dead) == ["m-1", "m-2"]


async def test_the_queue_of_the_dead_letters_is_a_classic_one_wherever_it_is_made(own_post: Post) -> None:
    """T2, T3: and one that was made without a word of it is that very one."""
    control = own_post.broker.control
    assert control is not None
    await asyncio.to_thread(control, "add_vhost", "other", "--default-queue-type", "quorum")
    await asyncio.to_thread(control, "set_permissions", "-p", "other", "guest", ".*", ".*", ".*")
    own_post.address = Address.parse(own_post.address.url.replace("/?", "/other?"))
    await own_post.declare()
    listed = await asyncio.to_thread(control, "list_queues", "-p", "other", "name", "type")
    assert [each.split() for each in listed.splitlines() if own_post.dead in each] == [
        [own_post.dead, "classic"]
    ]


async def test_what_others_take_meanwhile_is_not_waited_for(post: Post) -> None:
    await post.declare()
    await bury(post, "m-1", "m-2", body=b"{}")
    taken: list[Any] = []

    def begin(total: int) -> Any:
        # Between the count and the first look.
        taken.extend(stranger.read(post.broker.url, post.dead))
        return [total].remove

    assert await replay(post, begin=begin) == 0
    assert len(taken) == 2


# --- sending back --------------------------------------------------------------------------------------


async def test_a_letter_goes_back_to_its_queue_as_the_message_that_it_was(post: Post) -> None:
    """All of it: body, properties, headers; and nothing of its death, which would be told of the next one."""
    await post.declare()
    sent = Message(
        b"\x00\xff binary",
        headers={"event_type": "bank.noted", "user_id": "ada", "x-own": "kept"},
        content_type="application/octet-stream",
        content_encoding="gzip",
        delivery_mode=DeliveryMode.NOT_PERSISTENT,
        priority=3,
        correlation_id="c-1",
        reply_to="answers",
        message_id="m-1",
        timestamp=datetime(2026, 1, 2, tzinfo=UTC),
        type="note",
        app_id="a stranger",
    )
    async with post.witness.channel() as channel:
        await channel.default_exchange.publish(sent, post.queue)
    await refuse_from_queue(post)
    assert await replay(post) == 1
    [found] = await post.take()
    assert told(found) == told(sent)
    assert found.delivery_mode == DeliveryMode.PERSISTENT
    assert await post.is_empty(post.dead)


def told(message: Message | AbstractIncomingMessage) -> dict[str, Any]:
    names = (
        "body",
        "content_type",
        "content_encoding",
        "priority",
        "correlation_id",
        "reply_to",
        "message_id",
    )
    return {
        **{name: getattr(message, name) for name in (*names, "type", "app_id", "headers")},
        "timestamp": message.info()["timestamp"],
    }


async def test_letters_go_back_behind_what_is_in_their_queue_in_the_order_of_their_deaths(post: Post) -> None:
    """T3: the order of an aggregate does not hold for what comes back, unless what is later was held."""
    await post.declare()
    await bury(post, "m-1", "m-2")
    await post.note("later", ids=["m-3"])
    await replay(post)
    await post.note("held", ids=["m-4"])
    assert await ids_in(post, post.queue) == ["m-3", "m-1", "m-2", "m-4"]


async def test_a_letter_goes_back_to_its_queue_alone(post: Post) -> None:
    """T3: whoever else it was for has had it."""
    other = f"{post.queue}.copies"
    post.topology = topology(Queue(post.queue, ("bank.*",)), Queue(other, ("shop.*",)))
    await post.declare()
    await bury(post, "m-1", CC=[other])
    assert await ids_in(post, other) == ["m-1"]
    assert await replay(post) == 1
    assert (await ids_in(post, post.queue), await ids_in(post, other)) == (["m-1"], [])


async def test_a_second_death_tells_of_itself(post: Post) -> None:
    await post.declare()
    await bury(post, "m-1", queue="the first", reason="rejected")
    await replay(post, to=post.queue)
    await refuse_from_queue(post)
    [letter] = await look(post)
    assert (letter.queue, letter.reason) == (post.queue, "the broker: rejected")


@pytest.mark.parametrize(
    ("choice", "back"),
    [
        (Choice(id="m-2"), ["m-2"]),
        (Choice(queue="elsewhere"), ["m-3"]),
        (Choice(id="m-1", queue="elsewhere"), []),
        (EVERY, ["m-1", "m-2", "m-3"]),
    ],
)
async def test_those_go_back_that_are_meant_and_the_others_stay(
    post: Post, choice: Choice, back: list[str]
) -> None:
    await post.declare()
    await bury(post, "m-1", "m-2")
    await bury(post, "m-3", queue="elsewhere")
    assert await replay(post, choice=choice, to=post.queue) == len(back)
    assert await ids_in(post, post.queue) == back
    assert await ids_in(post, post.dead) == [each for each in ("m-1", "m-2", "m-3") if each not in back]


async def test_what_goes_back_into_the_dead_letters_themselves_ends(post: Post) -> None:
    await post.declare()
    await bury(post, "m-1", "m-2")
    assert await replay(post, to=post.dead) == 2
    assert await ids_in(post, post.dead) == ["m-1", "m-2"]


async def test_a_letter_whose_queue_is_gone_stays_and_holds_up_no_other(post: Post) -> None:
    await post.declare()
    await bury(post, "m-1")
    # Declared, and made by nobody: it is optional.
    await bury(post, "m-2", queue=post.topology.queues[1].name)
    await bury(post, "m-3")
    with pytest.raises(ReplayRefused) as refused:
        await replay(post)
    assert str(refused.value).startswith("2 sent back, 1 left where they are: queue ")
    assert "does not take message m-2 back" in str(refused.value)
    assert "name another with --to" in str(refused.value)
    assert await ids_in(post, post.queue) == ["m-1", "m-3"]
    assert await ids_in(post, post.dead) == ["m-2"]


async def test_a_letter_that_says_not_where_it_came_from_asks_for_a_queue(post: Post) -> None:
    await post.declare()
    await asyncio.to_thread(stranger.write, post.broker.url, post.dead, b"")
    with pytest.raises(ReplayRefused, match=r"a message that has no id does not say which queue.*--to"):
        await replay(post)
    assert await replay(post, to=post.queue) == 1


async def test_a_full_queue_keeps_the_letter_among_the_dead(post: Post) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    post.topology = topology(Queue("full-of-" + post.topology.queues[0].name, ("bank.*",), arguments=full))
    await post.declare()
    await bury(post, "m-1", "m-2")
    with pytest.raises(ReplayRefused, match=r"1 sent back, 1 left where they are: .* it is full"):
        await replay(post)
    assert await ids_in(post, post.dead) == ["m-2"]


async def test_a_broker_that_is_lost_in_the_middle_loses_no_letter(post: Post) -> None:
    """T4: what was not confirmed and acknowledged is still there, or is there twice; never not at all."""
    await post.declare()
    await bury(post, *(f"m-{number}" for number in range(5)))

    def begin(_: int) -> Any:
        seen: list[int] = []

        def advance(step: int) -> None:
            seen.append(step)
            if len(seen) == 3:
                post.proxy.cut()

        return advance

    with pytest.raises(BrokerUnreachable):
        await replay(post, begin=begin)
    await until(lambda: at_least(post, 5))
    found = {*await ids_in(post, post.queue), *await ids_in(post, post.dead)}
    assert found == {f"m-{number}" for number in range(5)}


async def at_least(post: Post, number: int) -> bool:
    return await post.waiting() + await post.waiting(post.dead) >= number


# --- where strangers would have it go ------------------------------------------------------------------


@pytest.mark.parametrize("queue", ["elsewhere", "g" * 300, "", "amq.rabbitmq.reply-to"])
async def test_a_queue_that_nobody_declares_gets_no_letter_unless_it_is_named(post: Post, queue: str) -> None:
    """T3: who may write to a queue names another in the headers, such as one of another application."""
    await post.declare()
    async with post.witness.channel() as channel:
        await channel.declare_queue("elsewhere", auto_delete=True)
        await bury(post, "m-1")
        await post.send(b"", {QUEUE_HEADER: queue}, message_id="m-2", queue=post.dead)
        await bury(post, "m-3")
        with pytest.raises(ReplayRefused) as refused:
            await replay(post)
        assert str(refused.value).startswith("2 sent back, 1 left where they are: message m-2 says that it ")
        assert "which no context declares: name it with --to if it is right" in str(refused.value)
        assert len(str(refused.value)) < 500
        assert await ids_in(post, "elsewhere") == []
        assert await ids_in(post, post.queue) == ["m-1", "m-3"]
        assert await replay(post, to="elsewhere") == 1
        assert await ids_in(post, "elsewhere") == ["m-2"]
        await channel.queue_delete("elsewhere")


FORGED_DEATHS: list[dict[str, Any]] = [
    {QUEUE_HEADER: "{victim}", REASON_HEADER: "well", MOMENT_HEADER: "2020-01-01T00:00:00+00:00"},
    {"x-death": [{"queue": "{victim}", "reason": "rejected", "count": 1}], "x-first-death-queue": "{victim}"},
    {"x-death": [{"queue": "{own}", "reason": "rejected"}, {"queue": "{victim}", "reason": "rejected"}]},
    {"x-death": "{victim}", "x-last-death-queue": "{victim}", "x-first-death-queue": "{victim}"},
    {"x-death": [], QUEUE_HEADER: "{victim}"},
]


def forged(headers: Any, post: Post) -> Any:
    """Put the names of this test's queues into headers that tell of a death that never was."""
    if isinstance(headers, dict):
        return {key: forged(value, post) for key, value in headers.items()}
    if isinstance(headers, list):
        return [forged(each, post) for each in headers]
    names = {"own": post.queue, "victim": post.topology.queues[1].name}
    return headers.format(**names) if isinstance(headers, str) else headers


@pytest.mark.parametrize("told_of", FORGED_DEATHS)
async def test_what_the_broker_took_for_dead_goes_back_to_where_the_broker_had_it(
    post: Post, told_of: dict[str, Any]
) -> None:
    """T3: the headers that came with it name another queue of this application."""
    await post.declare_with_audit()
    await post.send(b"x", forged(told_of, post), message_id="m-1")
    await refuse_from_queue(post)
    [letter] = await look(post)
    assert (letter.queue, letter.reason) == (post.queue, "the broker: rejected")
    assert await replay(post) == 1
    assert await ids_in(post, post.queue) == ["m-1"]
    assert await ids_in(post, post.topology.queues[1].name) == []


@pytest.mark.parametrize("told_of", FORGED_DEATHS)
async def test_what_the_consumer_buried_goes_back_to_where_the_consumer_had_it(
    post: Post, stage: Stage, told_of: dict[str, Any]
) -> None:
    """T3: the broker has written no death on it, whatever came with it."""
    await post.declare_with_audit()
    await post.send(b"no json", forged(told_of, post), message_id="m-1")
    async with consuming(post, stage):
        await until(lambda: lies(post, post.dead, 1))
    [letter] = await look(post)
    assert letter.queue == post.queue
    assert "its body is no JSON" in str(letter.reason)
    assert await replay(post) == 1
    assert await ids_in(post, post.queue) == ["m-1"]


# --- what strangers write ------------------------------------------------------------------------------


async def test_what_a_stranger_wrote_in_its_headers_reaches_the_dead_letters_and_comes_back(
    post: Post, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T3: a text that is no UTF-8 and a number of double width are read by the client, and not written by it."""
    await post.declare()
    odd = {"text": b"\xff\xfe", "wide": 1e300, "nested": {"list": [b"\xff"]}, "small": 0.5}
    with monkeypatch.context() as patched:
        patched.setattr(encode, "encode_table_value", _as_strangers_do)
        await post.send(b"no json", odd, message_id="m-1")
    async with consuming(post, stage):
        await until(lambda: lies(post, post.dead, 1))
    assert await replay(post) == 1
    [found] = await post.take()
    assert found.headers == {
        "text": bytearray(b"\xff\xfe"),
        "wide": "1e+300",
        "nested": {"list": [bytearray(b"\xff")]},
        "small": 0.5,
    }


_encode_table_value = encode.encode_table_value


def _as_strangers_do(value: Any) -> bytes:
    if isinstance(value, bytes):
        return b"S" + struct.pack(">I", len(value)) + value
    if isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    return _encode_table_value(value)


# In microseconds, and in an encoding of the last century.
UNREADABLE = [
    {"timestamp": 1_760_000_000_000_000},
    {"type": b"\xff\xfe"},
    {"message_id": b"\xff\xfe"},
    {"content_type": b"\xff" * 255},
    {"headers": {"when": b"nothing"}, "app_id": b"\xe9"},
    {"priority": 255},
]


@pytest.mark.parametrize("properties", UNREADABLE, ids="+".join)
async def test_what_the_client_cannot_read_blocks_neither_its_queue_nor_the_dead_letters(
    post: Post, stage: Stage, properties: dict[str, Any]
) -> None:
    """T3: what others put behind it is stored, and it goes back and forth like any letter."""
    await post.declare()
    await asyncio.to_thread(stranger.write, post.broker.url, post.queue, b"no json", **properties)
    await post.note("after")
    async with consuming(post, stage):
        await until(lambda: delivered(stage, "after"))
        await until(lambda: lies(post, post.dead, 1))
    [letter] = await look(post)
    assert letter.queue == post.queue
    assert await replay(post) == 1
    assert await post.waiting() == 1


async def test_a_letter_that_has_no_room_for_its_reason_goes_the_brokers_own_way(
    post: Post, stage: Stage
) -> None:
    """T3: all headers of a message must fit into one frame, and these fill it."""
    await post.declare()
    full = {"note": "x" * 130_950}
    async with consuming(post, stage):
        async with nothing_can_be_stored(stage):
            # So that what comes behind it is one batch.
            await post.note("first")
            await until(lambda: is_held_up(stage))
            await post.note("before")
            await post.send(b"no json", full, message_id="m-1")
            await post.note("after")
            await until(lambda: lies(post, post.queue, 0))
        await until(lambda: lies(post, post.dead, 1))
        await until(lambda: delivered(stage, "first", "before", "after"))
    assert await post.is_empty()
    [letter] = await look(post)
    assert (letter.id, letter.queue, letter.reason) == ("m-1", post.queue, "the broker: rejected")
    assert await replay(post) == 1
    [found] = await post.take()
    assert found.headers == full


async def test_half_of_an_aggregate_goes_to_the_dead_letters_and_holds_up_nothing(
    post: Post, stage: Stage
) -> None:
    """T3: a delivery cannot be put into the order of an aggregate that has no type."""
    await post.declare()
    half = {"event_type": "bank.noted", "aggregate_id": "01890000-0000-7000-8000-0000000000aa"}
    await post.send(
        b'{"event_id": "01890000-0000-7000-8000-000000000001", "occurred_at": "2026-01-02T03:04:05+00:00"}',
        half,
    )
    await post.note("after")
    async with consuming(post, stage, noting(post, Recorder())):
        await until(lambda: delivered(stage, "after"))
        await until(lambda: lies(post, post.dead, 1))
    assert "an aggregate_id without an aggregate_type" in str((await look(post))[0].reason)


async def test_dead_letters_that_go_nowhere_are_waited_for_and_not_lost(
    post: Post, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """T3, T4: somebody has deleted the queue of the dead letters."""
    await post.declare()
    async with consuming(post, stage) as consumer:
        await asyncio.wait_for(consumer.consuming.wait(), 20)
        async with post.witness.channel() as channel:
            await channel.queue_delete(post.dead)
        await post.send(b"no json", {}, message_id="m-1")
        await until(lambda: made_again(post))
        await until(lambda: lies(post, post.dead, 1))
    assert await ids_in(post, post.dead) == ["m-1"]
    assert f"exchange '{post.topology.dead_letter_exchange}' does not take a dead letter" in caplog.text


async def made_again(post: Post) -> bool:
    try:
        await post.waiting(post.dead)
    except Exception:  # noqa: BLE001 - whatever the client says of a queue that is not there
        return False
    return True
