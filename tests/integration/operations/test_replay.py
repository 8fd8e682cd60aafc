"""Replay: a handler gets the past, in order, all at once (R4, O1)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.operations.replaying import Replayed, replay
from outbox_kernel.infrastructure.operations.selection import Moment, NothingFound
from outbox_kernel.infrastructure.operations.subscriptions import SubscriptionRetired

HANDLER = "bank.Letters"


async def replayed(outbox: Any, days: float = 7, **options: Any) -> Replayed:
    since = await Moment(ago=timedelta(days=days)).resolved(outbox.desk)
    return await replay(outbox.desk, HANDLER, since, **options)


async def test_a_new_handler_gets_the_past_it_is_for_and_nothing_else(outbox: Any) -> None:
    await outbox.subscription()
    wallet = uuid4()
    old = await outbox.event(wallet, days_old=8)
    first, second = await outbox.event(wallet), await outbox.event(wallet, "dead")
    other = await outbox.event(event_type="bank.noted")
    assert await replayed(outbox) == Replayed(matching=2, due=2, in_flight=0)
    assert await outbox.status(first) == "open waiting"
    assert await outbox.status(second) == "open waiting"
    assert await outbox.status(old) == await outbox.status(other) == "delivered"
    keys = await outbox.rows("SELECT DISTINCT order_key FROM outbox_deliveries")
    assert [row[0] for row in keys] == [f"bank.wallet:{wallet}"]


async def test_for_a_handler_without_order_each_event_is_on_its_own(outbox: Any) -> None:
    await outbox.subscription(ordered=False)
    event = await outbox.event(uuid4())
    await replayed(outbox)
    assert await outbox.value("SELECT order_key FROM outbox_deliveries") == str(event)


async def test_what_it_has_handled_or_been_spared_stays_so(outbox: Any) -> None:
    await outbox.subscription()
    for status in ("done", "skipped", "dead", "waiting", "leased"):
        event = await outbox.event(status="open")
        await outbox.delivery(event, status)
    with_receipt = await outbox.event()
    await outbox.receipt(with_receipt)
    assert (await replayed(outbox)).due == 0


async def test_again_runs_what_it_has_done_and_forgets_the_receipt(outbox: Any) -> None:
    await outbox.subscription()
    quick, slow, passed = [await outbox.event() for _ in range(3)]
    await outbox.receipt(quick)
    await outbox.receipt(slow)
    await outbox.delivery(slow, "done")
    await outbox.delivery(passed, "skipped")
    await outbox.receipt(passed, "skipped")
    assert (await replayed(outbox, again=True)).due == 2
    assert await outbox.status(quick) == await outbox.status(slow) == "open waiting"
    assert await outbox.value("SELECT max(attempts) FROM outbox_deliveries WHERE status = 'waiting'") == 0
    assert await outbox.status(passed) == "delivered skipped"
    assert await outbox.receipts() == [(passed, "skipped")]


async def test_what_relays_are_at_is_left_to_them(outbox: Any) -> None:
    await outbox.subscription()
    pending, leased = await outbox.event(status="pending"), await outbox.event(status="leased")
    assert await replayed(outbox) == Replayed(matching=2, due=0, in_flight=2)
    assert await outbox.status(pending) == "pending"
    assert await outbox.status(leased) == "leased"


async def test_an_open_event_waits_for_one_more(outbox: Any) -> None:
    await outbox.subscription()
    event = await outbox.event(status="open")
    await outbox.delivery(event, "waiting", handler="bank.Another")
    assert (await replayed(outbox)).due == 1
    assert await outbox.status(event) == "open waiting waiting"


async def test_many_windows_are_one_transaction(outbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox_kernel.infrastructure.operations.replaying.WINDOW_EVENTS", 2)
    await outbox.subscription()
    for _ in range(5):
        await outbox.event()
    steps: list[int] = []

    def begin(total: int) -> Any:
        assert total == 5
        return steps.append

    assert (await replayed(outbox, begin=begin)).due == 5
    assert steps == [2, 2, 1]
    assert await outbox.value("SELECT count(DISTINCT xmin::text) FROM outbox_deliveries") == 1


async def test_who_never_subscribed_or_is_retired_is_a_sentence(outbox: Any) -> None:
    with pytest.raises(NothingFound, match="there is none until a relay has started once"):
        await replayed(outbox)
    await outbox.subscription("bank.Another")
    with pytest.raises(NothingFound, match=r"there are bank\.Another"):
        await replayed(outbox)
    await outbox.subscription()
    await outbox.execute("UPDATE outbox_subscriptions SET retired_at = now()")
    with pytest.raises(SubscriptionRetired, match="start a relay that carries it"):
        await replayed(outbox)
