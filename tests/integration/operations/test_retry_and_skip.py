"""Retry and skip: what an operator decides, and what that makes of the event (R6, R7, O1)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from outbox_kernel.infrastructure.operations import AggregateKey, Selection
from outbox_kernel.infrastructure.operations.mending import (
    BeingHandled,
    Change,
    HalfDone,
    choose_for_retry,
    choose_for_skip,
    retry,
    skip,
)
from outbox_kernel.infrastructure.operations.selection import NothingFound

ALL = Selection()
HANDLER = "bank.Letters"


@pytest.fixture(autouse=True)
async def is_read(outbox: Any) -> None:
    await outbox.is_read()


async def retried(outbox: Any, selection: Selection = ALL, **options: bool) -> Change:
    return await retry(outbox.desk, await choose_for_retry(outbox.desk, selection, **options))


async def skipped(outbox: Any, selection: Selection = ALL, **options: bool) -> Change:
    return await skip(outbox.desk, await choose_for_skip(outbox.desk, selection, **options))


async def test_a_dead_delivery_runs_again_from_its_first_attempt(outbox: Any) -> None:
    event = await outbox.event()
    await outbox.delivery(event, attempts=10)
    assert await retried(outbox, Selection(event)) == Change(1, 1)
    assert await outbox.status(event) == "open waiting"
    (row,) = await outbox.rows(
        "SELECT attempts, delivery.error_message, available_at <= clock_timestamp() AS due, became.retry_count, "
        "became.error_message AS told, became.processed_at "
        "FROM outbox_deliveries AS delivery JOIN outbox_status AS became USING (event_id)"
    )
    assert tuple(row) == (0, None, True, 0, None, None)


async def test_what_waits_after_a_failure_is_due_at_once(outbox: Any) -> None:
    event = await outbox.event()
    await outbox.delivery(event, "waiting", attempts=6)
    await outbox.execute("UPDATE outbox_deliveries SET available_at = clock_timestamp() + interval '1 hour'")
    assert (await retried(outbox)).changed == 1
    assert await outbox.value("SELECT available_at <= clock_timestamp() FROM outbox_deliveries")


async def test_of_one_event_a_skip_is_undone_with_its_receipt(outbox: Any) -> None:
    event = await outbox.event()
    await outbox.delivery(event)
    await skipped(outbox, Selection(event))
    assert await outbox.status(event) == "delivered skipped"
    assert await outbox.receipts() == [(event, "skipped")]
    await retried(outbox, Selection(event))
    assert await outbox.status(event) == "open waiting"
    assert await outbox.receipts() == []


async def test_in_bulk_a_skip_is_undone_only_when_asked_for(outbox: Any) -> None:
    event = await outbox.event()
    await outbox.delivery(event, "skipped")
    await outbox.receipt(event, "skipped")
    assert await retried(outbox) == Change(0, 0)
    assert await retried(outbox, skipped=True) == Change(1, 1)


async def test_the_receipt_of_an_effect_outlives_a_retry(outbox: Any) -> None:
    event = await outbox.event()
    await outbox.delivery(event)
    await outbox.receipt(event, "done")
    await retried(outbox)
    assert await outbox.receipts() == [(event, "done")]


async def test_what_a_second_commit_left_half_done_is_retried_only_when_asked_for(outbox: Any) -> None:
    """R6: it would meet the receipt of its first effect, and count as done; or have that effect twice."""
    half, whole = await outbox.event(), await outbox.event()
    await outbox.delivery(half, error="SecondCommit: handler commits a second time")
    await outbox.delivery(whole)
    await outbox.receipt(half, "done")
    with pytest.raises(HalfDone, match=r"outbox retry --again.* first effect a second time.*outbox skip"):
        await retried(outbox, Selection(half))
    assert await retried(outbox) == Change(2, 1, half_done=1)
    assert await outbox.status(half) == "dead dead"
    assert await outbox.receipts() == [(half, "done")]
    chosen = await choose_for_retry(outbox.desk, Selection(half))
    assert await retry(outbox.desk, chosen, again=True) == Change(1, 1)
    assert await outbox.status(half) == "open waiting"
    assert await outbox.receipts() == []


async def test_a_skip_of_what_is_half_done_is_no_way_around(outbox: Any) -> None:
    """R6."""
    event = await outbox.event()
    await outbox.delivery(event, error="SecondCommit: handler commits a second time")
    await outbox.receipt(event, "done")
    await skipped(outbox, Selection(event))
    assert await outbox.receipts() == [(event, "done")]
    with pytest.raises(HalfDone):
        await retried(outbox, Selection(event))


async def test_a_retry_again_lets_no_other_effect_happen_twice(outbox: Any) -> None:
    """R6: the answer to its commit was lost, so the next run meets its receipt, and is done."""
    event = await outbox.event()
    await outbox.delivery(event, "waiting", attempts=1)
    await outbox.receipt(event, "done")
    await retry(outbox.desk, await choose_for_retry(outbox.desk, ALL), again=True)
    assert await outbox.receipts() == [(event, "done")]


async def test_a_suspect_stays_one_when_it_is_retried(outbox: Any) -> None:
    event = await outbox.event()
    await outbox.delivery(event)
    await outbox.execute("UPDATE outbox_deliveries SET takeovers = 5")
    await retried(outbox)
    assert await outbox.value("SELECT takeovers FROM outbox_deliveries") == 2


async def test_a_skipped_event_is_delivered_when_nothing_else_is_unsettled(outbox: Any) -> None:
    event = await outbox.event()
    await outbox.delivery(event, "dead", handler="bank.A")
    await outbox.delivery(event, "waiting", handler="bank.B")
    assert (await skipped(outbox, Selection(event, "bank.A"))).changed == 1
    assert await outbox.status(event) == "open skipped waiting"
    assert (await skipped(outbox, Selection(event, "bank.B"))).changed == 1
    assert await outbox.status(event) == "delivered skipped skipped"
    assert await outbox.value("SELECT processed_at IS NOT NULL FROM outbox_status")


async def test_in_bulk_what_merely_waits_is_skipped_only_when_asked_for(outbox: Any) -> None:
    wallet = uuid4()
    dead, behind = await outbox.event(wallet), await outbox.event(wallet)
    await outbox.delivery(dead)
    await outbox.delivery(behind, "waiting", attempts=0, error=None)
    assert (await skipped(outbox)).changed == 1
    assert await outbox.status(behind) == "open waiting"
    assert (await skipped(outbox, all_waiting=True)).changed == 1
    assert await outbox.status(behind) == "delivered skipped"


async def test_what_a_relay_had_that_is_no_more_is_skipped(outbox: Any) -> None:
    event = await outbox.event()
    await outbox.delivery(event, "leased", lease=await outbox.relay(live=False))
    assert (await skipped(outbox, Selection(event))).changed == 1
    assert await outbox.status(event) == "delivered skipped"


async def test_what_a_handler_has_yet_to_come_to_is_skipped_at_its_turn(outbox: Any) -> None:
    """R4, R6: its delivery keeps the turn, and the receipt says what becomes of it; `retry` undoes that."""
    await outbox.subscription()
    wallet = uuid4()
    event = await outbox.event(wallet)
    assert await skipped(outbox, Selection(event, HANDLER)) == Change(1, 1)
    assert await outbox.status(event) == "pending waiting"
    assert await outbox.receipts() == [(event, "skipped")]
    key = await outbox.value("SELECT order_key FROM outbox_deliveries")
    assert key == f"bank.wallet:{wallet}"
    assert await retried(outbox, Selection(event)) == Change(1, 1)
    assert await outbox.receipts() == []


async def test_an_event_that_nobody_has_come_to_is_skipped_for_a_handler_that_is_named_and_due(
    outbox: Any,
) -> None:
    await outbox.subscription()
    await outbox.subscription("bank.Notes", ("bank.noted",))
    event = await outbox.event()
    with pytest.raises(NothingFound, match="has failed, it is pending: `outbox skip"):
        await skipped(outbox, Selection(event))
    with pytest.raises(NothingFound, match=r"no delivery .* to 'bank\.Notes' is on record"):
        await skipped(outbox, Selection(event, "bank.Notes"))
    await outbox.passed()
    with pytest.raises(NothingFound, match=r"the event is delivered, `outbox show"):
        await skipped(outbox, Selection(event, HANDLER))


async def test_a_leased_delivery_is_not_skipped_but_said_to_be_at_work(outbox: Any) -> None:
    event = await outbox.event()
    await outbox.delivery(event, "leased", lease=await outbox.relay())
    with pytest.raises(BeingHandled, match=r"is handling event .* right now"):
        await skipped(outbox, Selection(event))
    assert await outbox.status(event) == "open leased"


async def test_what_goes_on_between_choosing_and_skipping_is_left(outbox: Any) -> None:
    event = await outbox.event()
    await outbox.delivery(event, "waiting")
    chosen = await choose_for_skip(outbox.desk, ALL)
    relay, epoch = await outbox.relay()
    await outbox.execute(
        "UPDATE outbox_deliveries SET status = 'leased', lease_relay = $1, lease_epoch = $2", relay, epoch
    )
    change = await skip(outbox.desk, chosen)
    assert (change.changed, change.left) == (0, 1)
    assert await outbox.receipts() == []


async def test_selections_name_handler_aggregate_and_type(outbox: Any) -> None:
    await outbox.subscription("bank.Absent")
    wallet = uuid4()
    mine = await outbox.event(wallet)
    other = await outbox.event(uuid4(), event_type="bank.noted")
    for event in (mine, other):
        await outbox.delivery(event)
    for selection, expected in (
        (Selection(aggregate=AggregateKey(wallet)), [mine]),
        (Selection(aggregate=AggregateKey(wallet, "bank.wallet")), [mine]),
        (Selection(aggregate=AggregateKey(wallet, "bank.other")), []),
        (Selection(event_type="bank.noted"), [other]),
        (Selection(event_type="bank.*"), [mine, other]),
        (Selection(event_type="bank"), []),
        (Selection(handler="bank.Letters"), [mine, other]),
        (Selection(handler="bank.Absent"), []),
    ):
        assert [each.event_id for each in await choose_for_retry(outbox.desk, selection)] == expected


async def test_an_event_that_is_not_there_or_did_not_fail_is_a_sentence(outbox: Any) -> None:
    with pytest.raises(NothingFound, match="there is no event"):
        await retried(outbox, Selection(uuid4()))
    event = await outbox.event()
    with pytest.raises(
        NothingFound, match=r"nothing of event .* has failed, it is delivered: `outbox replay`"
    ):
        await retried(outbox, Selection(event))
    await outbox.delivery(event, "done")
    with pytest.raises(NothingFound, match=r"no delivery .* to 'bank\.Absent' .*those of bank\.Letters are"):
        await retried(outbox, Selection(event, "bank.Absent"))


async def test_an_aggregate_is_retried_in_order_and_skipped_from_its_end(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Batches of one: what a relay may see between two.
    monkeypatch.setattr("outbox_kernel.infrastructure.operations.mending.BATCH_MAX", 1)
    wallet, seen = uuid4(), []
    for _ in range(3):
        await outbox.delivery(await outbox.event(wallet))
    query = "SELECT string_agg(status, ' ' ORDER BY position) FROM outbox_deliveries"
    connection = await asyncpg.connect(outbox.url)
    original = outbox.desk.in_turn

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return getattr(outbox.desk, name)

        async def in_turn(self, work: Any) -> Any:
            result = await original(work)
            seen.append(await connection.fetchval(query))
            return result

    watching: Any = Watching()
    await retry(watching, await choose_for_retry(outbox.desk, ALL))
    assert seen == ["waiting dead dead", "waiting waiting dead", "waiting waiting waiting"]
    seen.clear()
    await skip(watching, await choose_for_skip(outbox.desk, ALL, all_waiting=True))
    assert seen == ["waiting waiting skipped", "waiting skipped skipped", "skipped skipped skipped"]
    await connection.close()


async def test_relays_hear_of_it(outbox: Any) -> None:
    heard: list[str] = []
    connection = await asyncpg.connect(outbox.url)
    await connection.add_listener("outbox_channel", lambda *words: heard.append(words[2]))
    await outbox.delivery(await outbox.event())
    await retried(outbox)
    await connection.execute("SELECT")  # what was said before is read with the answer
    assert heard == ["outbox_channel"]
    await connection.close()
