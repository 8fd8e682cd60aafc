"""Replay: what an operator's word writes; what relays make of it is in tests/integration/relay/test_replay.py (R17)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.operations import AggregateKey
from outbox_kernel.infrastructure.operations.replaying import Replayed, Rewound, replay, rewind
from outbox_kernel.infrastructure.operations.selection import Moment, NothingFound
from outbox_kernel.infrastructure.operations.subscriptions import SubscriptionRetired

HANDLER = "bank.Letters"
SHARDS = 32


async def first_since(outbox: Any, days: float) -> int:
    return await Moment(ago=timedelta(days=days)).position(outbox.desk)


async def rewinds(outbox: Any) -> list[tuple[str, int | None]]:
    """To where cursors are to go back."""
    rows = await outbox.rows("SELECT DISTINCT subscription, rewind_to FROM outbox_cursors ORDER BY 1, 2")
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("count", [1, 2, 7, 16])
async def test_a_moment_is_the_position_of_the_first_event_stored_since(outbox: Any, count: int) -> None:
    """However many there are, and with gaps between them."""
    assert await first_since(outbox, 1) == 1
    for days_old in range(count, 0, -1):
        await outbox.event(days_old=days_old)
        await outbox.execute("SELECT nextval(pg_get_serial_sequence('outbox_events', 'position'))")
    for day in range(1, count + 1):
        assert await first_since(outbox, day + 0.5) == 2 * (count - day) + 1
    assert await first_since(outbox, 0.5) == 2 * count


async def test_its_cursors_are_to_go_back_and_no_row_is_written(outbox: Any) -> None:
    """R17: nobody else's; what it has yet to do is told at once."""
    await outbox.subscription()
    await outbox.subscription("bank.Other")
    for days_old in (9, 3, 1):
        await outbox.event(days_old=days_old)
    for name in (HANDLER, "bank.Other"):
        await outbox.passed(name)
    found = await rewind(outbox.desk, HANDLER, await first_since(outbox, 7))
    assert found == Rewound(position=2, shards=SHARDS, events=2, is_at_least=False, effects=0)
    assert await rewinds(outbox) == [(HANDLER, 1), ("bank.Other", None)]
    assert await outbox.value("SELECT count(*) FROM outbox_deliveries") == 0
    statuses = await outbox.rows("SELECT status FROM outbox_status ORDER BY event_id")
    assert sorted(row[0] for row in statuses) == ["delivered", "pending", "pending"]


async def test_of_two_words_the_one_that_goes_further_back_holds(outbox: Any) -> None:
    await outbox.subscription()
    for _ in range(3):
        await outbox.event()
    await outbox.passed()
    for position in (3, 2, 3):
        await rewind(outbox.desk, HANDLER, position)
    assert await rewinds(outbox) == [(HANDLER, 1)]


async def test_what_it_has_yet_to_come_to_is_left_where_it_is(outbox: Any) -> None:
    await outbox.subscription()
    await outbox.event()
    assert (await rewind(outbox.desk, HANDLER, 1)).shards == 0
    assert await rewinds(outbox) == [(HANDLER, None)]


async def test_what_a_relay_may_have_handled_and_not_written_yet_is_gone_back_to(outbox: Any) -> None:
    """R17: as far as anybody can tell, it has yet to come there; nothing that it passes until it hears of it counts."""
    await outbox.subscription()
    for _ in range(3):
        await outbox.event()
    await outbox.execute(
        "UPDATE outbox_cursors SET lease_relay = $1, lease_epoch = $2 WHERE shard < 16", *await outbox.relay()
    )
    found = await rewind(outbox.desk, HANDLER, 2)
    assert found == Rewound(position=2, shards=0, events=3, is_at_least=False, effects=0)
    assert await rewinds(outbox) == [(HANDLER, 1), (HANDLER, None)]


async def test_again_forgets_the_effects_that_it_had_since(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6, R17: window by window, in one transaction; not what was skipped, and nobody else's."""
    monkeypatch.setattr("outbox_kernel.infrastructure.operations.replaying.WINDOW_EVENTS", 2)
    await outbox.subscription()
    events = [await outbox.event(uuid4()) for _ in range(5)]
    noted = await outbox.event(event_type="bank.noted")
    await outbox.passed()
    for event in (*events, noted):
        await outbox.receipt(event, "skipped" if event == events[3] else "done")
    await outbox.receipt(events[4], handler="bank.Other")
    steps: list[int] = []

    def begin(total: int) -> Any:
        assert total == 5
        return steps.append

    found = await rewind(outbox.desk, HANDLER, 2, again=True, begin=begin)
    assert (found.events, found.effects) == (4, 3)
    assert steps == [2, 2, 1]
    assert await outbox.receipts() == [
        (events[0], "done"),
        (events[3], "skipped"),
        (noted, "done"),
        (events[4], "done"),
    ]


async def test_an_aggregates_events_that_it_never_had_get_deliveries(outbox: Any) -> None:
    """R5, R17: asked for by an operator."""
    wallet = uuid4()
    first, second = await outbox.event(wallet), await outbox.event(wallet)
    await outbox.event(wallet, event_type="bank.noted")
    await outbox.event()
    await outbox.subscription()
    await outbox.event(wallet)
    key = AggregateKey(wallet, "bank.wallet")
    assert await replay(outbox.desk, HANDLER, aggregate=key) == Replayed(matching=3, due=2, ahead=1)
    assert await outbox.status(first) == await outbox.status(second) == "open waiting"
    keys = await outbox.rows("SELECT DISTINCT order_key FROM outbox_deliveries")
    assert [row[0] for row in keys] == [f"bank.wallet:{wallet}"]


async def test_for_a_handler_without_order_each_event_is_on_its_own(outbox: Any) -> None:
    event = await outbox.event(uuid4())
    await outbox.subscription(ordered=False)
    await replay(outbox.desk, HANDLER, event_id=event)
    assert await outbox.value("SELECT order_key FROM outbox_deliveries") == str(event)


async def test_what_it_has_handled_or_been_spared_stays_so(outbox: Any) -> None:
    wallet = uuid4()
    for status in ("done", "skipped", "dead", "waiting", "leased"):
        await outbox.delivery(await outbox.event(wallet), status)
    await outbox.receipt(await outbox.event(wallet))
    await outbox.subscription()
    assert await replay(outbox.desk, HANDLER, aggregate=AggregateKey(wallet)) == Replayed(6, 0, 0)


async def test_of_single_events_again_runs_what_it_has_done_and_forgets_the_receipt(outbox: Any) -> None:
    wallet = uuid4()
    quick, slow, passed = [await outbox.event(wallet) for _ in range(3)]
    await outbox.receipt(quick)
    await outbox.receipt(slow)
    await outbox.delivery(slow, "done")
    await outbox.delivery(passed, "skipped")
    await outbox.receipt(passed, "skipped")
    await outbox.subscription()
    assert (await replay(outbox.desk, HANDLER, aggregate=AggregateKey(wallet), again=True)).due == 2
    assert await outbox.status(quick) == await outbox.status(slow) == "open waiting"
    assert await outbox.value("SELECT max(attempts) FROM outbox_deliveries WHERE status = 'waiting'") == 0
    assert await outbox.status(passed) == "delivered skipped"
    assert await outbox.receipts() == [(passed, "skipped")]


async def test_what_it_is_not_due_for_is_a_sentence(outbox: Any) -> None:
    await outbox.subscription()
    event = await outbox.event(event_type="bank.noted")
    with pytest.raises(
        NothingFound, match=r"'bank\.Letters' is not due for event .*: `outbox show .*` says who"
    ):
        await replay(outbox.desk, HANDLER, event_id=event)
    with pytest.raises(NothingFound, match=f"there is no event {(absent := uuid4())}: `outbox events` lists"):
        await replay(outbox.desk, HANDLER, event_id=absent)
    with pytest.raises(NothingFound, match="is not due for an event of aggregate order:42: "):
        await replay(outbox.desk, HANDLER, aggregate=AggregateKey.parse("order:42"))


async def test_who_never_subscribed_or_is_retired_is_a_sentence(outbox: Any) -> None:
    with pytest.raises(NothingFound, match="there is none until a relay has started once"):
        await rewind(outbox.desk, HANDLER, 1)
    await outbox.subscription("bank.Another")
    with pytest.raises(NothingFound, match=r"there are bank\.Another"):
        await rewind(outbox.desk, HANDLER, 1)
    await outbox.subscription()
    await outbox.execute("UPDATE outbox_subscriptions SET retired_at = now()")
    for again in (rewind(outbox.desk, HANDLER, 1), replay(outbox.desk, HANDLER, event_id=uuid4())):
        with pytest.raises(SubscriptionRetired, match="start a relay that carries it"):
            await again
