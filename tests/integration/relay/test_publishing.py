"""Publishers are due like handlers, an outage is nobody's failure, and a refusal is the event's (R2, R4, R7, T4)."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.brokers import Message, Outage, Outcome
from outbox_kernel.infrastructure.brokers.memory import MemoryBroker, MemoryOutlet
from outbox_kernel.infrastructure.errors import NamesCollide
from outbox_kernel.infrastructure.relay.outages import Pause
from tests.posting import BANK, TOPOLOGY, has_been_given, relay, slow_outlet, told, written
from tests.relaying import Recorder, Stage, handler
from tests.serving import all_delivered, has_seen, serving
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


async def test_a_publisher_gets_what_commits_from_its_first_start_on(stage: Stage) -> None:
    """R2."""
    broker = MemoryBroker()
    await stage.drain(handler("other", Recorder()))
    await stage.put("before", of=uuid4())
    found = stage.relay(publishers={BANK: broker.outlet(BANK, TOPOLOGY)}, from_beginning=False)
    await found.run_until_idle()
    await stage.put("after", of=uuid4())
    await found.run_until_idle()
    assert told(broker) == ["after"]


async def test_a_relay_without_the_publisher_leaves_it_to_one_that_has_it(stage: Stage) -> None:
    """R2: its cursor stands where it is, at no cost to anybody."""
    broker, own = MemoryBroker(), Recorder()
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    await stage.put("a")
    await stage.drain(handler("own", own))
    assert (await stage.deliveries(), await stage.events()) == ({}, {"a": "pending"})
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert (own.seen, told(broker)) == (["a"], ["a"])
    assert await stage.events() == {"a": "delivered"}


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
    own = handler(name, Recorder(), renamed_from=former)
    with pytest.raises(NamesCollide, match=f"^{sentence}"):
        await relay(stage, MemoryBroker().outlet(BANK, TOPOLOGY), own).run_until_idle()
    assert await stage.witness.fetchval("SELECT count(*) FROM outbox_subscriptions") == 0


async def test_what_was_taken_over_again_and_again_is_published_with_the_rest(stage: Stage) -> None:
    """R7b: no code runs that could kill the process, so it is no suspect, and gets no row."""
    broker = MemoryBroker()
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    await stage.put("a", "b", of=uuid4())
    await stage.witness.execute("UPDATE outbox_cursors SET takeovers = 4")
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert (told(broker), await stage.deliveries()) == (["a", "b"], {})
    assert set((await stage.events()).values()) == {"delivered"}


# --- outages ----------------------------------------------------------------------------------------


async def test_an_outage_charges_nobody_writes_nothing_and_holds_up_no_handler(stage: Stage) -> None:
    """R7, T4: the publisher stands still at its cursor."""
    broker, own, wallet = MemoryBroker(down="it is down"), Recorder(), uuid4()
    await stage.put("a", "b", of=wallet)
    first = relay(stage, broker.outlet(BANK, TOPOLOGY), handler("own", own))
    await first.run_until_idle()
    assert (own.seen, told(broker)) == (["a", "b"], [])
    assert first.paused == {"bank": "it is down"}
    assert await stage.deliveries() == {}
    assert await place_of(stage, "bank") == 0
    broker.down = None
    await stage.put("c", of=wallet)
    await relay(stage, broker.outlet(BANK, TOPOLOGY), handler("own", own)).run_until_idle()
    assert (own.seen, told(broker)) == (["a", "b", "c"], ["a", "b", "c"])
    assert set((await stage.events()).values()) == {"delivered"}


async def place_of(stage: Stage, name: str) -> int:
    """The position up to which a subscription has passed."""
    found: int = await stage.witness.fetchval(
        "SELECT min((SELECT position FROM outbox_progress AS newest WHERE newest.reader = outbox_cursors.reader "
        "ORDER BY number DESC LIMIT 1)) FROM outbox_cursors WHERE subscription = $1",
        name,
    )
    return found


class Breaking(MemoryOutlet):
    """Takes some, and then nobody knows; what comes to it later is taken, once it is let."""

    left: int
    is_away: bool

    async def publish(self, message: Message) -> Outcome:
        self.left -= 1
        if self.left == -1:
            self.broker.take(self.publisher, message)
            self.is_away = True
        if self.is_away:
            return Outage("the connection broke before the confirm")
        return await super().publish(message)

    async def prove(self) -> Outage | None:
        return Outage("it is away") if self.is_away else await super().prove()


def breaking_outlet(broker: MemoryBroker, *, after: int) -> Breaking:
    broker.declare(TOPOLOGY)
    outlet = Breaking(broker, BANK, TOPOLOGY)
    outlet.left, outlet.is_away = after, False
    return outlet


async def test_an_outage_in_the_middle_keeps_the_order_and_repeats_what_nobody_knows_of(
    stage: Stage,
) -> None:
    """R4, R7: and of what was confirmed before nothing."""
    broker = MemoryBroker()
    outlet = breaking_outlet(broker, after=2)
    await stage.put("a", "b", "c", "d", of=uuid4())
    async with serving(relay(stage, outlet, at=None)):
        await until(lambda: pauses(stage, "the connection broke before the confirm"))
        assert await stage.deliveries() == {}
        outlet.is_away = False
        await until(all_delivered(stage, 4))
    assert told(broker) == ["a", "b", "c", "c", "d"]
    assert await stage.deliveries() == {}


async def test_while_the_broker_is_away_nothing_is_written_for_it(stage: Stage) -> None:
    """R7: neither rows nor places, whatever is committed meanwhile; a handler's place moves on."""
    broker, own = MemoryBroker(), Recorder()
    outlet = breaking_outlet(broker, after=1)
    await stage.put("a", "b", of=uuid4())
    async with serving(relay(stage, outlet, handler("own", own), at=None, poll_interval_seconds=0.05)):
        await until(lambda: pauses(stage, "the connection broke before the confirm"))
        stood = await place_of(stage, "bank")
        for number in range(5):
            await stage.put(f"later {number}")
            await until(lambda: has_passed(stage, "own"))
        assert (await place_of(stage, "bank"), await stage.deliveries()) == (stood, {})
        assert len(own.seen) == 7
        outlet.is_away = False
        await until(all_delivered(stage, 7))
    assert sorted(told(broker)) == ["a", "b", "b", *(f"later {number}" for number in range(5))]


async def has_passed(stage: Stage, name: str) -> bool:
    newest = await stage.witness.fetchval("SELECT max(position) FROM outbox_events")
    return bool(await place_of(stage, name) == newest)


async def test_an_outage_while_many_are_on_their_way_repeats_none_that_was_confirmed(stage: Stage) -> None:
    """R7, T4: across aggregates many are on their way at once."""
    broker = MemoryBroker()
    outlet = breaking_outlet(broker, after=10)
    for number in range(30):
        await stage.put(str(number), of=uuid4())
    async with serving(relay(stage, outlet, at=None)):
        await until(lambda: pauses(stage, "the connection broke before the confirm"))
        outlet.is_away = False
        await until(all_delivered(stage, 30))
    assert len(told(broker)) == 31
    assert set(told(broker)) == {str(number) for number in range(30)}


async def test_a_publisher_that_stands_still_is_given_to_another_relay(stage: Stage) -> None:
    """R1, R7: that has come since; both go on when the broker is back, and the order holds."""
    broker, wallets = MemoryBroker(), [uuid4() for _ in range(8)]
    outlet = breaking_outlet(broker, after=0)
    for number, wallet in enumerate(wallets):
        await stage.put(f"{number} a", f"{number} b", of=wallet)
    away = MemoryBroker(down="it is away there, too")
    async with serving(relay(stage, outlet, at=None, lease_seconds=3.0)):
        await until(lambda: pauses(stage, "the connection broke before the confirm"))
        async with serving(relay(stage, away.outlet(BANK, TOPOLOGY), at=None, lease_seconds=3.0)):
            await until(lambda: owners(stage, 2))
            assert await stage.deliveries() == {}
            outlet.is_away, away.down = False, None
            await until(all_delivered(stage, 16))
    for number in range(8):
        seen = [each for each in told(broker) + told(away) if each.startswith(f"{number} ")]
        assert list(dict.fromkeys(seen)) == [f"{number} a", f"{number} b"]


async def owners(stage: Stage, count: int) -> bool:
    found = await stage.witness.fetchval(
        "SELECT count(DISTINCT lease_relay) FROM outbox_cursors WHERE lease_relay IS NOT NULL"
    )
    return bool(found == count)


async def test_a_paused_publisher_says_so_and_goes_on_by_itself(stage: Stage) -> None:
    """R7: within seconds of the broker's return."""
    broker = MemoryBroker(down="it is down for a while")
    await stage.put("a")
    async with serving(relay(stage, broker.outlet(BANK, TOPOLOGY), at=None)):
        await until(lambda: pauses(stage, "it is down for a while"))
        broker.down = None
        await until(all_delivered(stage, 1))
        await until(lambda: pauses(stage, None))
    assert told(broker) == ["a"]


async def pauses(stage: Stage, reason: str | None, name: str = "bank") -> bool:
    found = await stage.witness.fetchval(
        "SELECT pauses->$1->>'reason' FROM outbox_relays ORDER BY started_at LIMIT 1", name
    )
    return bool(found == reason)


async def test_what_others_in_the_process_wait_for_is_told_too(stage: Stage) -> None:
    """O1: as a consumer does whose queue gives nothing; also if it was said before the relay began."""
    broker = MemoryBroker()
    found = relay(stage, broker.outlet(BANK, TOPOLOGY), at=None)
    found.note_pause("queue notes", Pause("it is gone", stage.start))
    async with serving(found):
        await until(lambda: pauses(stage, "it is gone", "queue notes"))
        found.note_pause("queue notes", None)
        await until(lambda: pauses(stage, None, "queue notes"))


# --- refusals ---------------------------------------------------------------------------------------


async def test_a_refusal_is_charged_and_tried_again_on_the_schedule(stage: Stage) -> None:
    """R7: the next event of its aggregate waits for it, others do not."""
    broker, wallet = MemoryBroker(), uuid4()
    broker.full.add("notes")
    await stage.put("a", "b", of=wallet)
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    row = await stage.delivery("a", "bank")
    assert (row["status"], row["attempts"]) == ("waiting", 1)
    assert (await stage.delivery("b", "bank"))["attempts"] == 0
    assert "takes no more" in (await stage.status("a"))["error_message"]
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


async def test_a_refused_event_waits_out_an_outage_uncharged(stage: Stage) -> None:
    """R7: its delivery is taken by nobody as long as the broker is away."""
    broker, wallet = MemoryBroker(), uuid4()
    broker.full.add("notes")
    await stage.put("a", "b", of=wallet)
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    broker.down = "it is down"
    broker.full.clear()
    await relay(stage, broker.outlet(BANK, TOPOLOGY), at=2).run_until_idle()
    row = await stage.delivery("a", "bank")
    assert (row["status"], row["attempts"], row["takeovers"]) == ("waiting", 1, 0)
    broker.down = None
    await relay(stage, broker.outlet(BANK, TOPOLOGY), at=3).run_until_idle()
    assert told(broker) == ["a", "b"]


async def test_an_outage_over_a_delivery_charges_it_nothing_and_keeps_the_order(stage: Stage) -> None:
    """R4, R7: it is found out by sending it."""
    broker, wallet = MemoryBroker(), uuid4()
    broker.full.add("notes")
    await stage.put("a", "b", of=wallet)
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    broker.full.clear()
    outlet = breaking_outlet(broker, after=0)
    await relay(stage, outlet, at=2).run_until_idle()
    row = await stage.delivery("a", "bank")
    assert (row["status"], row["attempts"]) == ("waiting", 1)
    outlet.is_away = False
    await relay(stage, outlet, at=3).run_until_idle()
    assert told(broker) == ["a", "a", "b"]


# --- a slow broker ----------------------------------------------------------------------------------


async def test_handlers_do_not_wait_for_a_broker_that_takes_its_time(stage: Stage) -> None:
    """T4: neither for the same event nor for the next one."""
    broker, own = MemoryBroker(), Recorder()
    outlet = slow_outlet(broker)
    await stage.put("a", "b", "c", of=uuid4())
    async with serving(relay(stage, outlet, handler("own", own), at=None)):
        await until(lambda: has_seen(own, {"a", "b", "c"}))
        assert told(broker) == []
        outlet.go.set()
        await until(all_delivered(stage, 3))
    assert told(broker) == ["a", "b", "c"]


async def test_a_broker_that_is_slow_writes_no_rows(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """R7, T4: nothing is wrong with any event, and the place moves on when the confirms have come."""
    monkeypatch.setattr("outbox_kernel.infrastructure.relay.timeouts.SLOW_SECONDS", 0.0)
    broker, own = MemoryBroker(), Recorder()
    outlet = slow_outlet(broker)
    await stage.put("a", "b", of=uuid4())
    async with serving(relay(stage, outlet, handler("own", own), at=None, poll_interval_seconds=0.05)):
        await until(lambda: has_been_given(outlet, 1))
        for number in range(3):
            await stage.put(f"later {number}")
            await until(lambda: has_passed(stage, "own"))
        before = await place_of(stage, "bank")
        assert (before, await deliveries_of(stage, "bank")) == (0, [])
        outlet.go.set()
        await until(lambda: has_passed(stage, "bank"))
    assert await deliveries_of(stage, "bank") == []
    assert told(broker)[:1] == ["a"]


async def deliveries_of(stage: Stage, name: str) -> list[str]:
    return [what for what, owner in await stage.deliveries() if owner == name]


async def test_a_publisher_that_an_operator_holds_is_left_waiting(stage: Stage) -> None:
    """O1."""
    broker = MemoryBroker()
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    await stage.witness.execute(
        "UPDATE outbox_subscriptions SET paused_at = clock_timestamp(), revision = revision + 1"
    )
    await stage.put("a")
    stood = await written(stage)
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert (told(broker), await stage.deliveries()) == ([], {})
    assert {position for _, _, position in await written(stage)} == {position for _, _, position in stood}
    await stage.witness.execute("UPDATE outbox_subscriptions SET paused_at = NULL, revision = revision + 1")
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert told(broker) == ["a"]


# --- stopping ---------------------------------------------------------------------------------------


async def test_told_to_stop_it_waits_for_what_is_on_its_way(stage: Stage) -> None:
    """R11."""
    broker = MemoryBroker()
    outlet = slow_outlet(broker)
    await stage.put("a", "b", of=uuid4())
    found = relay(stage, outlet, at=None)
    task = asyncio.create_task(found.run())
    await until(lambda: has_been_given(outlet, 1))
    found.stop()
    outlet.go.set()
    await task
    assert told(broker)[:1] == ["a"]
    await relay(stage, broker.outlet(BANK, TOPOLOGY), at=None).run_until_idle()
    assert told(broker) == ["a", "b"]
