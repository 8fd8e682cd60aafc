"""Events for people to look at: found by what is known of them, their secrets masked (K11, O1)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.operations import AggregateKey, stories
from outbox_kernel.infrastructure.operations.selection import Moment, NothingFound
from outbox_kernel.kernel import DomainEvent, event, sensitive
from outbox_kernel.kernel.catalogue import isolated_definitions
from outbox_kernel.kernel.identity import uuid_of

HANDLER = "bank.Letters"


async def test_events_are_listed_newest_first_by_what_is_asked(outbox: Any) -> None:
    wallet = uuid4()
    old = await outbox.event(days_old=9, event_type="bank.noted")
    waiting = await outbox.failed_event(status="waiting", days_old=8)
    mine = await outbox.event(wallet)
    dead = await outbox.failed_event()
    await outbox.subscription("bank.Other", ("bank.other",))
    pending = await outbox.event(event_type="bank.other")

    async def found(**options: Any) -> list[Any]:
        return [each.event_id for each in await stories.events(outbox.desk, **options)]

    assert await found() == [pending, dead, mine, waiting, old]
    assert await found(limit=1) == [pending]
    assert await found(event_type="bank.n*") == [old]
    assert await found(status="dead") == [dead]
    assert await found(status="open") == [waiting]
    assert await found(status="pending") == [pending]
    assert await found(status="delivered", limit=1) == [mine]
    assert await found(since=Moment(ago=timedelta(days=1))) == [pending, dead, mine]
    assert await found(aggregate=AggregateKey(wallet)) == [mine]
    assert await found(aggregate=AggregateKey(wallet, "bank.wallet")) == [mine]
    assert await found(aggregate=AggregateKey(uuid4())) == []


async def test_what_a_queue_has_brought_again_is_pending_for_that_queues_handlers(outbox: Any) -> None:
    """T3: however far below it was written."""
    event = await outbox.event()
    await outbox.subscription()
    await outbox.subscription("bank.Queued", ("bank.*",), source="notes")
    await outbox.execute(
        "INSERT INTO outbox_arrivals (position, event_id, aggregate_id, event_type, source) "
        "SELECT nextval('outbox_events_position_seq'), event_id, aggregate_id, event_type, 'notes' FROM outbox_events"
    )
    assert [each.event_id for each in await stories.events(outbox.desk, status="pending")] == [event]
    story = await stories.show(outbox.desk, event)
    assert [(each.name, each.state) for each in story.subscriptions] == [
        ("bank.Letters", "began later"),
        ("bank.Queued", "pending"),
    ]


async def test_an_aggregate_is_found_and_shown_by_its_key_as_written(outbox: Any) -> None:
    """C10: of the history, the list and the story."""
    order = await outbox.event(uuid_of(42))
    await outbox.execute("UPDATE outbox_events SET aggregate_key = '42'")
    await outbox.event()
    key = AggregateKey.parse("bank.wallet:42")
    assert [each.event_id for each in await stories.history(outbox.desk, key)] == [order]
    (row,) = await stories.events(outbox.desk, aggregate=AggregateKey.parse("42"))
    assert (row.event_id, row.aggregate_key) == (order, "42")
    assert (await stories.show(outbox.desk, order)).aggregate_key == "42"


async def test_what_is_declared_sensitive_is_masked(outbox: Any) -> None:
    with isolated_definitions():

        @event("bank.masked")
        class Masked(DomainEvent):
            what: str
            secret: str = sensitive()

        payload = {"event_id": "x", "what": "plain", "secret": "hush", "from_an_older_version": "hush"}
        event_id = await outbox.event(event_type="bank.masked", payload=payload)
        story = await stories.show(outbox.desk, event_id)
    assert "plain" in str(story.payload)
    assert "hush" not in str(story)
    assert story.class_known


async def test_of_an_event_that_is_not_known_here_every_field_is_masked(outbox: Any) -> None:
    event_id = await outbox.event(event_type="bank.elsewhere", payload={"event_id": "x", "what": "hush"})
    story = await stories.show(outbox.desk, event_id)
    assert story.payload == {"event_id": "x", "what": "***"}
    assert not story.class_known


async def test_each_who_is_due_tells_how_far_it_is_and_what_it_waits_for(outbox: Any) -> None:
    """R2, O1: whoever is not due for it is not named."""
    before = await outbox.event()
    assert (await stories.show(outbox.desk, before)).waits_for == "the first relay"
    await outbox.subscription()
    assert (await stories.show(outbox.desk, before)).waits_for is None
    await outbox.subscription("bank.Notes", ("bank.noted",))
    event = await outbox.event()

    async def told(event_id: Any = event) -> tuple[str, Any, str | None]:
        (each,) = (await stories.show(outbox.desk, event_id)).subscriptions
        return each.state, each.passed_at, each.waits_for

    assert await told(before) == ("began later", None, None)
    assert await told() == ("pending", None, "a relay: none lives")
    await outbox.relay()
    assert await told() == ("pending", None, "a relay: no live relay carries it")
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    assert await told() == ("pending", None, "the next read")
    await outbox.pauses({HANDLER: {"reason": "payments are away", "since": "2026-01-02T03:04:05+00:00"}})
    assert await told() == ("pending", None, "what it is delivered to: payments are away")
    await outbox.execute("UPDATE outbox_subscriptions SET paused_at = now()")
    assert await told() == ("pending", None, "an operator: its handler is paused, `outbox resume`")
    await outbox.passed()
    passed_at = await outbox.value("SELECT max(recorded_at) FROM outbox_progress")
    assert await told() == ("passed", passed_at, None)
    await outbox.delivery(event)
    assert await told() == ("dead", passed_at, "an operator: `outbox retry` or `outbox skip`")
    assert (await stories.show(outbox.desk, event)).processed_at is not None


async def test_a_delivery_tells_what_it_waits_for(outbox: Any) -> None:
    await outbox.subscription()
    wallet = uuid4()
    first, second = await outbox.event(wallet), await outbox.event(wallet)
    await outbox.delivery(first)
    await outbox.delivery(second, "waiting")

    async def wait(event_id: Any) -> Any:
        (delivery,) = (await stories.show(outbox.desk, event_id)).deliveries
        return delivery.waits_for

    assert await wait(first) == "an operator: `outbox retry` or `outbox skip`"
    assert await wait(second) == f"its turn: event {first} is dead for this handler"
    await outbox.execute("UPDATE outbox_deliveries SET status = 'done' WHERE position = 1")
    assert await wait(first) is None
    assert await wait(second) == "a relay: no live relay carries it"
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    assert await wait(second) == "the next claim"
    await outbox.execute("UPDATE outbox_deliveries SET available_at = clock_timestamp() + interval '1 hour'")
    assert (await wait(second)).startswith("its next attempt, ")
    await outbox.execute("UPDATE outbox_subscriptions SET paused_at = now()")
    assert await wait(second) == "an operator: its handler is paused, `outbox resume`"


async def test_when_it_died_is_when_what_is_dead_now_did(outbox: Any) -> None:
    """Whatever other handlers came to since then."""
    event = await outbox.event()
    await outbox.subscription()
    await outbox.delivery(event)
    died_at = await outbox.value(
        "UPDATE outbox_deliveries SET updated_at = now() - interval '15 minutes' RETURNING updated_at"
    )
    await outbox.delivery(event, "done", handler="bank.Books")
    await outbox.passed()
    assert (await stories.show(outbox.desk, event)).died_at == died_at
    await outbox.delivery(event, "waiting", handler="bank.Other")
    told = await stories.show(outbox.desk, event)
    assert (told.status, told.died_at) == ("open", died_at)
    await outbox.execute("UPDATE outbox_deliveries SET status = 'done'")
    assert (await stories.show(outbox.desk, event)).died_at is None


async def test_who_holds_it_is_told_by_host_and_process(outbox: Any) -> None:
    event = await outbox.event()
    await outbox.delivery(event, "leased", lease=await outbox.relay())
    (delivery,) = (await stories.show(outbox.desk, event)).deliveries
    assert delivery.held_by == "host-1, process 7"
    await outbox.execute("UPDATE outbox_relays SET expires_at = clock_timestamp()")
    (delivery,) = (await stories.show(outbox.desk, event)).deliveries
    assert delivery.held_by == "host-1, process 7, whose lease has run out"
    await outbox.execute("DELETE FROM outbox_relays")
    (delivery,) = (await stories.show(outbox.desk, event)).deliveries
    assert delivery.held_by == "a relay that is gone: a live one takes it over"


async def test_receipts_are_part_of_the_story(outbox: Any) -> None:
    event = await outbox.event()
    await outbox.receipt(event)
    (receipt,) = (await stories.show(outbox.desk, event)).receipts
    assert (receipt.handler, receipt.outcome) == (HANDLER, "done")


async def test_a_history_is_in_the_order_of_the_log(outbox: Any) -> None:
    """O1: what an aggregate records and what is emitted about it, as they came."""
    wallet = uuid4()
    await outbox.event(uuid4())
    events = [await outbox.event(wallet) for _ in range(3)]
    await outbox.execute("UPDATE outbox_events SET aggregate_version = NULL WHERE event_id = $1", events[1])
    await outbox.delivery(events[1], "done")
    rows = await stories.history(outbox.desk, AggregateKey(wallet))
    assert [each.event_id for each in rows] == events
    assert [len(each.deliveries) for each in rows] == [0, 1, 0]


async def test_what_is_not_there_is_a_sentence(outbox: Any) -> None:
    with pytest.raises(NothingFound, match="there is no event"):
        await stories.show(outbox.desk, uuid4())
    with pytest.raises(NothingFound, match="has no event of aggregate"):
        await stories.history(outbox.desk, AggregateKey(uuid4()))


async def test_failed_lists_dead_and_retrying_with_how_many_wait_behind(outbox: Any) -> None:
    wallet = uuid4()
    dead = await outbox.event(wallet)
    await outbox.delivery(dead)
    for _ in range(2):
        await outbox.delivery(await outbox.event(wallet), "waiting", attempts=0, error=None)
    retrying = await outbox.event()
    await outbox.delivery(retrying, "waiting", attempts=2)
    await outbox.delivery(await outbox.event(), "done")
    found = await stories.failed(outbox.desk, 10)
    assert [(each.event_id, each.status, each.attempts, each.behind) for each in found.failed] == [
        (dead, "dead", 3, 2),
        (retrying, "retrying", 2, 0),
    ]
    assert ([each.next_at is None for each in found.failed], found.total) == ([True, False], 2)
    found = await stories.failed(outbox.desk, 1)
    assert (len(found.failed), found.total) == (1, 2)
