"""What a subscription is for: events written here, or those that one queue brings, and never both (R2, T3)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.brokers.memory import MemoryBroker
from outbox_kernel.infrastructure.errors import SourceChanged
from outbox_kernel.infrastructure.relay.retention import Retention
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.posting import BANK, TOPOLOGY, relay, told
from tests.relaying import FromBeginning, Recorder, Stage, handler
from tests.streams import handle

DAY = 86_400.0


async def consume(stage: Stage, *handlers: HandlerRegistration) -> None:
    """Let the relay beside a consumer of these handlers' queues do what there is to do."""
    queues = [str(each.queue) for each in handlers]
    found = FromBeginning(stage.engine, stage.container, handlers=handlers, queues=queues, now=stage.at(0))
    stage.relays.append(found)
    await found.run_until_idle()


async def subscriptions(stage: Stage) -> dict[str, Any]:
    rows = await stage.witness.fetch("SELECT name, source, patterns FROM outbox_subscriptions")
    return {row["name"]: (row["source"], row["patterns"]) for row in rows}


async def test_each_gets_what_its_source_brings_and_nothing_else(stage: Stage) -> None:
    """R2, T3: one process for two queues, and a relay for what is written here."""
    own, few, many, wallet = Recorder(), Recorder(), Recorder(), uuid4()
    await stage.put("a", "b", of=wallet)
    await stage.put("c", "d", of=wallet, source="few")
    await stage.put("e", of=wallet, source="many")
    await stage.put("f", source="a queue of nobody")
    await stage.drain(handler("own", own))
    await consume(stage, handler("few's", few, queue="few"), handler("many's", many, queue="many"))
    assert (own.seen, few.seen, many.seen) == (["a", "b"], ["c", "d"], ["e"])
    assert set((await stage.events()).values()) == {"delivered"}
    assert await stage.deliveries() == {}


async def test_what_a_queue_brought_is_not_published_again(stage: Stage) -> None:
    """T3."""
    broker = MemoryBroker()
    await stage.put("a")
    await stage.put("b", source="q")
    await relay(stage, broker.outlet(BANK, TOPOLOGY)).run_until_idle()
    assert told(broker) == ["a"]


@pytest.mark.parametrize("patterns", [(), ("*",)])
async def test_what_others_bring_is_passed_without_being_read_again(
    stage: Stage, patterns: tuple[str, ...]
) -> None:
    """R2, R13: however much of it there is, also by one that is for any type of its queue."""
    seen = Recorder()
    await consume(stage, handler("notes", seen, queue="q", patterns=patterns))
    await stage.put("a", source="q")
    await stage.put(*(f"n{number}" for number in range(2_000)))
    await consume(stage, handler("notes", seen, queue="q", patterns=patterns))
    assert seen.seen == ["a"]
    place = "SELECT min(position) FROM outbox_cursor_places WHERE subscription = 'notes'"
    assert await stage.witness.fetchval(place) == len(await stage.events())


async def test_a_subscription_says_its_queue_beside_its_plain_patterns(stage: Stage) -> None:
    """R2, O5."""
    await consume(stage, handler("notes", Recorder(), queue="q"))
    await stage.drain(handler("own", Recorder()))
    assert await subscriptions(stage) == {"notes": ("q", ["bank.noted"]), "own": (None, ["bank.noted"])}


@pytest.mark.parametrize("renamed_from", [None, "former"])
async def test_one_that_is_for_another_queue_now_is_refused_while_it_is_due_for_the_former(
    stage: Stage, renamed_from: str | None
) -> None:
    """R2, R14: or what the former queue has brought would be lost to it, without a word."""
    former = handler(renamed_from or "notes", Recorder(), queue="q")
    await consume(stage, former)
    await stage.put("a", source="q")
    moved = handler("notes", Recorder(), queue="other", renamed_from=renamed_from)
    with pytest.raises(SourceChanged, match=r"is for queue 'other', and its subscription .* for queue 'q'"):
        await consume(stage, moved)
    assert await stage.events() == {"a": "pending"}
    assert await subscriptions(stage) == {former.name: ("q", ["bank.noted"])}


async def test_a_retired_name_comes_back_with_the_queue_it_comes_with(stage: Stage) -> None:
    """R2."""
    seen = Recorder()
    await consume(stage, handler("notes", Recorder(), queue="q"))
    await stage.witness.execute("UPDATE outbox_subscriptions SET retired_at = now(), revision = revision + 1")
    await consume(stage, handler("notes", seen, queue="other"))
    await stage.put("a", source="other")
    await consume(stage, handler("notes", seen, queue="other"))
    assert seen.seen == ["a"]
    assert await subscriptions(stage) == {"notes": ("other", ["bank.noted"])}


async def test_what_is_written_here_waits_for_its_first_relay_though_a_queue_has_handlers(
    stage: Stage,
) -> None:
    """D2, R2: who consumes is nobody who was there for it."""
    own, notes = Recorder(), Recorder()
    await stage.put("a")
    await handle(stage, handler("notes", notes, queue="q"))
    assert await stage.events() == {"a": "pending"}
    await stage.drain(handler("own", own), from_beginning=False)
    assert (own.seen, notes.seen) == (["a"], [])
    assert await stage.events() == {"a": "delivered"}


async def test_what_a_queue_brought_while_nobody_was_for_it_is_for_nobody(stage: Stage) -> None:
    """T3: as `outbox consume --store-unhandled` says; a handler that is to have it begins at the beginning."""
    late, first = Recorder(), Recorder()
    await stage.put("a", source="q")
    assert await stage.events() == {"a": "delivered"}
    await handle(stage, handler("late", late, queue="q"))
    await handle(stage, handler("first", first, queue="q", start="beginning"))
    assert (late.seen, first.seen) == ([], ["a"])


async def test_what_is_written_here_stays_until_somebody_has_subscribed_to_it(stage: Stage) -> None:
    """R13, D2: a consumer purges, and its handlers are not due for it."""
    await stage.put("a")
    await handle(stage, handler("notes", Recorder(), queue="q"))
    keeper = Retention(await stage.log(at=8 * DAY), 7.0)
    while await keeper.step():
        pass
    assert await stage.events() == {"a": "pending"}


async def test_what_stands_twice_in_the_log_of_a_queue_stops_nobody(stage: Stage) -> None:
    """R5: as a row that somebody has written by hand says; one delivery is left of both."""
    failing, good = Recorder().fail("a", times=2), Recorder()
    await stage.put("a", "b", source="q")
    await stage.witness.execute(
        "INSERT INTO outbox_arrivals (position, event_id, aggregate_id, event_type, source) "
        "SELECT position + 1000, event_id, aggregate_id, event_type, 'q' FROM outbox_events "
        "WHERE payload->>'what' = 'a'"
    )
    await consume(stage, handler("failing", failing, queue="q"), handler("good", good, queue="q"))
    assert set(good.seen) == {"a", "b"}
    assert await stage.deliveries() == {("a", "failing"): "waiting"}
    left = await stage.witness.fetchrow("SELECT position, attempts FROM outbox_deliveries")
    assert tuple(left) == ((await stage.event("a"))["position"], 1)
