"""Publishers are due like handlers, an outage is nobody's failure, and a refusal is the event's (R2, R4, R7, T4)."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.brokers import Message, Outage, Outcome
from outbox_kernel.infrastructure.brokers.memory import MemoryBroker, MemoryOutlet
from outbox_kernel.infrastructure.errors import NamesCollide
from outbox_kernel.infrastructure.operations.desk import Desk
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.operations.purging import purge
from outbox_kernel.infrastructure.operations.subscriptions import retire
from tests.posting import BANK, TOPOLOGY, relay, slow_outlet, told
from tests.relaying import Recorder, Stage, handler
from tests.serving import serving
from tests.waiting import until


async def test_what_a_publisher_selects_is_published_and_delivered(stage: Stage) -> None:
    """R2, T1: in the order of its aggregate, with no delivery row as long as all goes well."""
    broker, wallet = MemoryBroker(), uuid4()
    await stage.put("a", "b", "c", of=wallet)
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert told(broker) == ["a", "b", "c"]
    assert set((await stage.events()).values()) == {"delivered"}
    assert await stage.deliveries() == {}


async def test_what_no_publisher_selects_is_not_published(stage: Stage) -> None:
    """T1."""
    broker = MemoryBroker()
    await stage.put("a", event_type="shop.opened")
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert (told(broker), told(broker, "other")) == ([], [])
    assert await stage.events() == {"a": "delivered"}


async def test_a_type_that_nobody_here_knows_is_published_as_it_is_stored(stage: Stage) -> None:
    """R9: publishers need no class, and any version will do."""
    broker = MemoryBroker()
    await stage.put("a", event_type="bank.of_tomorrow", version=9)
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    [message] = broker.queues["notes"]
    assert (message.routing_key, message.headers["event_version"]) == ("bank.of_tomorrow", 9)


async def test_a_relay_without_the_publisher_leaves_it_to_one_that_has_it(stage: Stage) -> None:
    """R2."""
    broker, own = MemoryBroker(), Recorder()
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    await stage.put("a")
    await stage.drain(handler("own", own))
    assert await stage.deliveries() == {("a", "bank"): "waiting"}
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert (own.seen, told(broker)) == (["a"], ["a"])
    assert await stage.events() == {"a": "delivered"}


async def test_what_is_due_for_a_publisher_that_nobody_carries_any_more_stays_until_it_is_retired(
    stage: Stage,
) -> None:
    """R2: as after RABBITMQ_URL was taken away; whoever asks hears its name."""
    broker, own, desk = MemoryBroker(), handler("own", Recorder()), Desk(stage.witness)
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    await stage.put("a")
    await stage.drain(own)
    assert await stage.events() == {"a": "open"}
    await purge(desk, older_than_days=0)
    [stranded] = (await overview(desk)).stranded
    assert (stranded.handler, stranded.deliveries) == ("bank", 1)
    assert (await retire(desk, "bank")).skipped == 1
    await stage.put("b")
    await stage.drain(own)
    assert await stage.events() == {"a": "delivered", "b": "delivered"}


@pytest.mark.parametrize(
    ("name", "former", "sentence"),
    [
        ("bank", None, "handler 'bank' and publisher 'bank' both claim the name 'bank', by which"),
        ("own", "bank", "handler 'own' and publisher 'bank' both claim the name 'bank', by which"),
    ],
)
async def test_a_handler_and_a_publisher_of_one_name_are_refused(
    stage: Stage, name: str, former: str | None, sentence: str
) -> None:
    """R2, R14: they would share a subscription, and one of them never run."""
    await stage.put("a")
    own = handler(name, Recorder(), renamed_from=former)
    with pytest.raises(NamesCollide, match=f"^{sentence}"):
        await relay(stage, MemoryBroker().outlet(BANK, TOPOLOGY), own).run_until_idle()
    assert await stage.events() == {"a": "pending"}


async def test_what_was_taken_over_again_and_again_is_published_with_the_rest(stage: Stage) -> None:
    """R7b: no code runs that could kill the process, so it is no suspect, and never waits to be alone."""
    alone: list[bool] = []

    class Watching(MemoryOutlet):
        async def publish(self, message: Message) -> Outcome:
            alone.append(await stage.witness.fetchval("SELECT bool_or(alone) FROM outbox_deliveries"))
            return await super().publish(message)

    broker = MemoryBroker(down="it is down")
    await stage.put("a", "b", of=uuid4())
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    await stage.witness.execute("UPDATE outbox_deliveries SET takeovers = 4")
    broker.down = None
    await relay(stage, Watching(broker, BANK, TOPOLOGY)).run_until_idle()
    assert (told(broker), alone) == (["a", "b"], [False, False])
    assert set((await stage.events()).values()) == {"delivered"}


async def test_an_outage_charges_nobody_and_holds_up_no_handler(stage: Stage) -> None:
    """R7, T4: what comes meanwhile waits, untried."""
    broker, own, wallet = MemoryBroker(down="it is down"), Recorder(), uuid4()
    await stage.put("a", "b", of=wallet)
    await relay(stage, broker.outlet(BANK, TOPOLOGY), handler("own", own)).run_until_idle()
    assert (own.seen, told(broker)) == (["a", "b"], [])
    assert await stage.events() == {"a": "open", "b": "open"}
    for what in ("a", "b"):
        row = await stage.delivery(what, "bank")
        assert (row["status"], row["attempts"], row["takeovers"]) == ("waiting", 0, 0)
    broker.down = None
    await relay(stage, broker.outlet(BANK, TOPOLOGY), handler("own", own)).run_until_idle()
    assert (own.seen, told(broker)) == (["a", "b"], ["a", "b"])
    assert await stage.events() == {"a": "delivered", "b": "delivered"}


async def test_what_is_new_stays_behind_what_waited_out_an_outage(stage: Stage) -> None:
    """R4."""
    broker, wallet = MemoryBroker(down="it is down"), uuid4()
    await stage.put("a", of=wallet)
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    await stage.put("b", "c", of=wallet)
    broker.down = None
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert told(broker) == ["a", "b", "c"]


async def test_a_refusal_is_charged_and_tried_again_on_the_schedule(stage: Stage) -> None:
    """R7: the next event of its aggregate waits for it, others do not."""
    broker, wallet = MemoryBroker(), uuid4()
    broker.full.add("notes")
    await stage.put("a", "b", of=wallet)
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    row = await stage.delivery("a", "bank")
    assert (row["status"], row["attempts"]) == ("waiting", 1)
    assert (await stage.delivery("b", "bank"))["attempts"] == 0
    assert "takes no more" in (await stage.event("a"))["error_message"]
    broker.full.clear()
    await stage.put("other")
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert told(broker) == ["other"]
    await relay(stage, broker.outlet(BANK, TOPOLOGY), at=2).run_until_idle()
    assert told(broker) == ["other", "a", "b"]


async def test_what_is_refused_for_the_last_time_is_dead_and_holds_its_aggregate(stage: Stage) -> None:
    """R7."""
    broker, wallet = MemoryBroker(), uuid4()
    broker.full.add("notes")
    await stage.put("a", "b", of=wallet)
    for step in range(2):
        await relay(stage, broker.outlet(BANK, TOPOLOGY), at=10 * step, retries_max=2).run_until_idle()
    assert await stage.deliveries() == {("a", "bank"): "dead", ("b", "bank"): "waiting"}
    broker.full.clear()
    await relay(stage, broker.outlet(BANK, TOPOLOGY), at=30).run_until_idle()
    assert told(broker) == []


async def test_forever_means_that_no_refusal_is_the_last(stage: Stage) -> None:
    """R7: OUTBOX_PUBLISH_RETRIES=forever."""
    broker = MemoryBroker()
    broker.full.add("notes")
    await stage.put("a")
    for step in range(3):
        await relay(
            stage, broker.outlet(BANK, TOPOLOGY), at=1_000 * step, retries_max=1, publish_for_ever=True
        ).run_until_idle()
    row = await stage.delivery("a", "bank")
    assert (row["status"], row["attempts"]) == ("waiting", 3)


async def test_handlers_do_not_wait_for_a_broker_that_takes_its_time(stage: Stage) -> None:
    """T4: neither for the same event nor for the next one."""
    broker, own, wallet = MemoryBroker(), Recorder(), uuid4()
    outlet = slow_outlet(broker)
    await stage.put("a", "b", "c", of=wallet)
    async with serving(relay(stage, outlet, handler("own", own), at=None)):
        await until(lambda: so(own.seen == ["a", "b", "c"]))
        assert told(broker) == []
        outlet.go.set()
        await until(lambda: all_delivered(stage))
    assert told(broker) == ["a", "b", "c"]


async def so(answer: bool) -> bool:
    return answer


async def all_delivered(stage: Stage) -> bool:
    return set((await stage.events()).values()) == {"delivered"}


async def test_what_a_broker_is_slow_with_leaves_the_first_pass(stage: Stage) -> None:
    """T4: as a slow handler's run does; what is behind it waits its turn."""
    broker, wallet = MemoryBroker(), uuid4()
    outlet = slow_outlet(broker)
    await stage.put("a", "b", of=wallet)
    async with serving(relay(stage, outlet, at=None)):
        await until(lambda: is_open(stage, {("a", "bank"): "leased", ("b", "bank"): "waiting"}))
        outlet.go.set()
        await until(lambda: all_delivered(stage))
    assert told(broker) == ["a", "b"]


async def is_open(stage: Stage, deliveries: dict[tuple[str, str], str]) -> bool:
    return await stage.deliveries() == deliveries


async def test_a_paused_publisher_says_so_and_goes_on_by_itself(stage: Stage) -> None:
    """R7: within seconds of the broker's return."""
    broker = MemoryBroker(down="it is down for a while")
    await stage.put("a")
    async with serving(relay(stage, broker.outlet(BANK, TOPOLOGY), at=None)):
        await until(lambda: pauses(stage, "it is down for a while"))
        broker.down = None
        await until(lambda: all_delivered(stage))
        await until(lambda: pauses(stage, None))
    assert told(broker) == ["a"]


async def pauses(stage: Stage, reason: str | None) -> bool:
    found = await stage.witness.fetchval("SELECT pauses->'bank'->>'reason' FROM outbox_relays")
    return bool(found == reason)


class Breaking(MemoryOutlet):
    """Takes some, and then nobody knows."""

    left: int

    async def publish(self, message: Message) -> Outcome:
        self.left -= 1
        if self.left == -1:
            self.broker.take(self.publisher, message)
            return Outage("the connection broke before the confirm")
        return await super().publish(message)


async def test_an_outage_in_the_middle_keeps_the_order(stage: Stage) -> None:
    """R4, R7: what was not confirmed is sent again, before what follows it."""
    broker, wallet = MemoryBroker(), uuid4()
    broker.declare(TOPOLOGY)
    outlet = Breaking(broker, BANK, TOPOLOGY)
    outlet.left = 2
    await stage.put("a", "b", "c", "d", of=wallet)
    async with serving(relay(stage, outlet, at=None)):
        await until(lambda: all_delivered(stage))
    assert told(broker) == ["a", "b", "c", "c", "d"]


async def test_told_to_stop_it_waits_for_what_is_on_its_way(stage: Stage) -> None:
    """R11."""
    broker, wallet = MemoryBroker(), uuid4()
    outlet = slow_outlet(broker)
    await stage.put("a", "b", of=wallet)
    found = relay(stage, outlet, at=None)
    task = asyncio.create_task(found.run())
    await until(lambda: so(bool(found._work and not found._work.presses.at_rest)))  # noqa: SLF001 - on its way
    found.stop()
    outlet.go.set()
    await task
    assert told(broker)[:1] == ["a"]
    await relay(stage, broker.outlet(BANK, TOPOLOGY), at=None).run_until_idle()
    assert told(broker) == ["a", "b"]


async def test_a_publisher_that_an_operator_holds_is_left_waiting(stage: Stage) -> None:
    """O1."""
    broker = MemoryBroker()
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    await stage.witness.execute(
        "UPDATE outbox_subscriptions SET paused_at = clock_timestamp(), revision = revision + 1"
    )
    await stage.put("a")
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert (told(broker), await stage.deliveries()) == ([], {("a", "bank"): "waiting"})
