"""Events reach their handlers, in order, each handler for itself (R2, R4, R5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.errors import NothingToDeliverTo
from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.relay import deliveries, log
from outbox_kernel.infrastructure.relay.relay import OutboxRelay
from outbox_kernel.kernel import DomainEvent, current_delivery, event, serialize_event
from outbox_kernel.kernel.context import Delivery
from tests.domain import Announced, Noted, Paid
from tests.relaying import Recorder, Stage, connected, handler
from tests.serving import at_the_gate

FORBIDDEN = """
CREATE FUNCTION forbidden() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'append-only'; END $$;
CREATE TRIGGER forbidden BEFORE UPDATE OR DELETE ON outbox_events EXECUTE FUNCTION forbidden();
"""


async def test_an_event_that_all_have_handled_at_once_writes_no_row(stage: Stage) -> None:
    """R2, R5."""
    await stage.put("a", "b")
    await stage.drain(handler("h", Recorder()), handler("i", Recorder()))
    assert await stage.deliveries() == {}
    assert await stage.receipts() == []


async def test_a_relay_may_not_write_to_events_at_all(stage: Stage) -> None:
    """R1: no right to it is needed, not even where deliveries are taken and settled."""
    seen = Recorder().fail("a", times=2)
    await stage.put("a", "b", of=uuid4())
    await stage.witness.execute(FORBIDDEN)
    try:
        for at in (0, 10, 20):
            await stage.drain(handler("h", seen), at=at)
    finally:
        await stage.witness.execute("DROP FUNCTION forbidden CASCADE")
    assert seen.seen == ["a", "a", "a", "b"]


async def test_an_event_for_which_nothing_is_due_is_delivered(stage: Stage) -> None:
    """R2."""
    await stage.put("a", event_type="nobody.cares")
    await stage.drain(handler("h", Recorder()))
    assert await stage.events() == {"a": "delivered"}


@pytest.mark.parametrize("start", ["run", "run_once", "run_until_idle"])
async def test_a_relay_that_carries_nobody_refuses_to_start(stage: Stage, start: str) -> None:
    """D2, R14: events would count as delivered, because something was not imported."""
    relay = OutboxRelay(stage.engine, stage.container, handlers=())
    with pytest.raises(
        NothingToDeliverTo, match=r"neither a handler nor a publisher.*: import the modules of the"
    ):
        await getattr(relay, start)()
    meant = OutboxRelay(stage.engine, stage.container, handlers=(), deliver_to_nobody=True, now=stage.at(0))
    await meant.run_until_idle()


async def test_events_of_an_aggregate_are_handled_in_their_order(stage: Stage) -> None:
    """R4."""
    seen, wallet, other = Recorder(), uuid4(), uuid4()
    for n in range(20):
        await stage.put(f"w{n}", of=wallet)
        await stage.put(f"o{n}", of=other)
    await stage.drain(handler("h", seen), batch_size_max=7, concurrency=3)
    for letter in "wo":
        assert [what for what in seen.seen if what[0] == letter] == [f"{letter}{n}" for n in range(20)]


async def test_events_of_no_aggregate_are_delivered_and_wait_for_nobody(stage: Stage) -> None:
    """R2, R4: one that fails holds back nothing."""
    seen = Recorder().fail("a")
    await stage.put("a", "b")
    await stage.drain(handler("h", seen))
    assert await stage.events() == {"a": "open", "b": "delivered"}


async def test_emitted_events_are_ordered_by_position_within_what_they_are_about(stage: Stage) -> None:
    """K4, R4: they have no number, and one that fails holds back the later ones."""
    seen, wallet = Recorder().fail("a"), uuid4()
    await stage.put("a", "b", of=wallet, numbered=False)
    await stage.drain(handler("h", seen))
    assert seen.seen == ["a"]
    await stage.drain(handler("h", seen), at=10)
    assert seen.seen == ["a", "a", "b"]


async def test_each_event_goes_to_those_who_handle_its_type(stage: Stage) -> None:
    """R2, K5."""
    noted, both = Recorder(), Recorder()
    await stage.put("a")
    await stage.put("b", event_type="bank.announced")
    await stage.drain(handler("noted", noted, Noted), handler("both", both, Noted, Announced))
    assert noted.seen == ["a"]
    assert sorted(both.seen) == ["a", "b"]


async def test_a_failing_handler_leaves_the_others_alone(stage: Stage) -> None:
    """R5: only what has not succeeded runs again."""
    good, bad, wallet = Recorder(), Recorder().fail("a"), uuid4()
    await stage.put("a", "b", of=wallet)
    await stage.drain(handler("good", good), handler("bad", bad))
    assert good.seen == ["a", "b"]
    assert bad.seen == ["a"]
    assert await stage.deliveries() == {("a", "bad"): "waiting", ("b", "bad"): "waiting"}
    await stage.drain(handler("good", good), handler("bad", bad), at=10)
    assert good.seen == ["a", "b"]
    assert bad.seen == ["a", "a", "b"]
    assert await stage.events() == {"a": "delivered", "b": "delivered"}


async def test_a_failing_aggregate_leaves_the_others_alone(stage: Stage) -> None:
    """R4."""
    seen = Recorder().fail("a1")
    await stage.put("a1", "a2", of=uuid4())
    await stage.put("b1", "b2", of=uuid4())
    await stage.drain(handler("h", seen))
    assert sorted(seen.seen) == ["a1", "b1", "b2"]


async def test_an_unordered_handler_passes_over_what_failed(stage: Stage) -> None:
    """K5, R4."""
    seen, wallet = Recorder().fail("a"), uuid4()
    await stage.put("a", "b", of=wallet)
    await stage.drain(handler("h", seen, ordered=False))
    assert seen.seen == ["a", "b"]
    await stage.put("c", of=wallet)
    await stage.drain(handler("h", seen, ordered=False))
    assert seen.seen == ["a", "b", "c"]
    await stage.drain(handler("h", seen, ordered=False), at=10)
    assert seen.seen == ["a", "b", "c", "a"]


async def test_later_events_wait_behind_a_retry_whoever_claims_them(stage: Stage) -> None:
    """R4: across relays, and across claims of one."""
    seen, wallet = Recorder().fail("a"), uuid4()
    await stage.put("a", of=wallet)
    await stage.drain(handler("h", seen))
    await stage.put("b", of=wallet)
    relay = stage.relay(handler("h", seen))
    await relay.run_once()
    await stage.put("c", of=wallet)
    await relay.run_once()
    assert seen.seen == ["a"]
    await stage.drain(handler("h", seen), at=10)
    assert seen.seen == ["a", "a", "b", "c"]


async def test_a_handler_reads_what_it_serves(stage: Stage) -> None:
    """K5: position, headers, attempt."""
    found: list[Delivery] = []

    async def act(event: Noted) -> None:
        found.append(current_delivery())
        if len(found) == 1:
            raise ValueError("once more")

    await stage.put("a", headers={"user_id": "ada"})
    await stage.drain(handler("h", act))
    await stage.drain(handler("h", act), at=10)
    row = await stage.event("a")
    assert [(each.event_id, each.position, each.attempt) for each in found] == [
        (row["event_id"], row["position"], 1),
        (row["event_id"], row["position"], 2),
    ]
    assert found[0].headers == {"user_id": "ada"}


async def test_an_event_is_decoded_once_for_all_its_handlers(stage: Stage) -> None:
    """R1: nothing in it can change, so they may have the same one."""
    found: list[Noted] = []

    async def act(event: Noted) -> None:
        found.append(event)

    await stage.put("a")
    await stage.drain(handler("h", act), handler("i", act))
    one, other = found
    assert one is other


@event("bank.itemised")
class Itemised(DomainEvent):
    """Something in it can be changed by who has it."""

    items: list[str]


async def test_what_a_handler_changes_in_its_event_no_other_sees(stage: Stage) -> None:
    """R5: nor does its own next attempt."""
    seen: list[list[str]] = []

    async def act(event: Itemised) -> None:
        seen.append([*event.items])
        event.items.append("mine")
        if len(seen) == 1:
            raise ValueError("once more")

    payload = serialize_event(Itemised(["given"]))
    await stage.put("a", event_type="bank.itemised", payload=payload)
    handlers = handler("h", act, Itemised), handler("i", act, Itemised)
    await stage.drain(*handlers)
    await stage.drain(*handlers, at=10)
    assert seen == [["given"]] * 3


async def test_a_handler_gets_the_event_with_its_aggregate(stage: Stage) -> None:
    """K2, K8."""
    found: list[Noted] = []

    async def act(event: Noted) -> None:
        found.append(event)

    wallet = uuid4()
    await stage.put("a", "b", of=wallet)
    await stage.drain(handler("h", act))
    assert [(each.aggregate_type, each.aggregate_id, each.aggregate_version) for each in found] == [
        ("bank.wallet", wallet, 1),
        ("bank.wallet", wallet, 2),
    ]


@pytest.mark.parametrize(
    "origin", [{}, {"correlation_id": "the-first", "traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}]
)
async def test_what_a_handler_emits_says_what_caused_it(stage: Stage, origin: dict[str, str]) -> None:
    """K10, R6."""

    async def act(event: Noted) -> None:
        async with stage.uow() as uow:
            uow.emit(Announced("told"))
            await uow.commit()

    await stage.put("a", headers={**origin, "user_id": "ada"})
    await stage.drain(handler("h", act))
    cause = str((await stage.event("a"))["event_id"])
    headers = await stage.witness.fetchval(
        "SELECT headers::text FROM outbox_events WHERE event_type = 'bank.announced'"
    )
    assert json.loads(headers) == {"correlation_id": cause, **origin, "causation_id": cause}
    assert await stage.events() == {"a": "delivered", "told": "delivered"}


async def test_a_malformed_payload_is_a_failure_of_each_handler(stage: Stage) -> None:
    """R9."""
    seen = Recorder()
    await stage.put("a", payload='{"what": 7, "wrong": true}', event_type="bank.paid")
    await stage.put("b", event_type="bank.noted")
    await stage.drain(handler("h", seen, Noted, Paid))
    assert seen.seen == ["b"]
    [row] = await stage.witness.fetch("SELECT status, attempts, error_message FROM outbox_deliveries")
    assert (row["status"], row["attempts"]) == ("waiting", 1)
    assert row["error_message"].startswith("MalformedPayload: ")


async def test_many_dead_heads_hide_no_delivery_behind_them(stage: Stage) -> None:
    """R4: claims hop over them, a part at a time."""
    seen = Recorder()
    await stage.put("a", of=uuid4())
    seen.fail("a")
    await stage.drain(handler("h", seen))
    await stage.witness.execute(
        """
        INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status)
        SELECT gen_random_uuid(), -n, 'h', 'a' || n, 'dead' FROM generate_series(1, 1200) AS n
        """
    )
    await stage.drain(handler("h", seen), at=10)
    assert seen.seen == ["a", "a"]


async def test_what_one_relay_has_in_hand_no_other_runs_or_overtakes(stage: Stage) -> None:
    """R1, R4."""
    first, go, begun, held = at_the_gate()
    seen, wallet = Recorder(), uuid4()
    await stage.put("a", of=wallet)
    running = asyncio.create_task(stage.drain(first))
    await begun.wait()
    await stage.put("b", of=wallet)
    await stage.drain(handler("h", seen))
    assert (held, seen.seen) == (["a"], [])
    go.set()
    await running
    await stage.drain(handler("h", seen))
    assert held + seen.seen == ["a", "b"]


@pytest.mark.parametrize(("numbered", "between"), [(True, []), (False, []), (True, ["out of order"])])
async def test_what_commits_late_is_not_overtaken_by_what_was_recorded_after_it(
    stage: Stage, bank_url: str, numbered: bool, between: list[str]
) -> None:
    """R2b, R4: a transaction that took its position long ago, while others were passed.

    Also where the number between the two is that of an event that is handled from a moment on (K13).
    """
    seen, wallet, slow = Recorder(), uuid4(), await connected(bank_url)
    transaction = slow.transaction()
    await transaction.start()
    await stage.put("late", of=wallet, numbered=numbered, by=slow)
    relay = stage.relay(handler("h", seen))
    for what in ("other", "another"):
        await stage.put(what)
        await relay.run_once()
    assert seen.seen == ["other", "another"]
    await transaction.commit()
    await slow.close()
    await stage.put(*between, of=wallet, not_before=stage.at(9999))
    await stage.put("next", of=wallet, numbered=numbered)
    await relay.run_until_idle()
    assert seen.seen == ["other", "another", "late", "next"]


async def test_an_open_transaction_of_a_stranger_delays_nothing(stage: Stage, bank_url: str) -> None:
    """R2b, R4: one that has taken a position, and one that holds a snapshot."""
    seen, stranger = Recorder(), await connected(bank_url)
    await stranger.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM outbox_events")
    await stage.put("open", by=stranger)
    for what in "abc":
        await stage.put(what, of=uuid4())
        await stage.drain(handler("h", seen))
    assert seen.seen == ["a", "b", "c"]
    await stranger.execute("ROLLBACK")
    await stranger.close()
    await stage.drain(handler("h", seen))
    assert seen.seen == ["a", "b", "c"]


@pytest.mark.parametrize(("letters", "bytes_max"), [(1_000, 1_500), (100_000, 25_000)])
@pytest.mark.parametrize("fails_first", [False, True])
async def test_a_relay_takes_no_more_than_memory_has_room_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, fails_first: bool, letters: int, bytes_max: int
) -> None:
    """R12: neither of events nor of deliveries, and however small what is large is stored.

    What is left is taken next, in order.
    """
    monkeypatch.setattr(log, "READ_BYTES_MAX", bytes_max)
    monkeypatch.setattr(deliveries, "READ_BYTES_MAX", bytes_max)
    counts: list[int] = []
    monkeypatch.setattr(Line, "fetch_as", counted(Line.fetch_as, counts))
    whats = [letter * letters for letter in "abcde"]
    seen = Recorder()
    for what in whats if fails_first else []:
        seen.fail(what)
    wallet = uuid4()
    for number, what in enumerate(whats):
        await stage.put(what, of=wallet if number < 3 else uuid4())
    await stage.drain(handler("h", seen))
    if fails_first:
        assert set((await stage.deliveries()).values()) == {"waiting"}
        for at in (10, 20, 30):
            await stage.drain(handler("h", seen), at=at)
    assert max(counts) == 2
    assert sum(counts) >= len(whats) * (2 if fails_first else 1)
    assert set((await stage.events()).values()) == {"delivered"}
    assert [what for what in dict.fromkeys(seen.seen) if what in whats[:3]] == whats[:3]


def counted(fetch_as: Callable[..., Awaitable[list[Any]]], counts: list[int]) -> Any:
    """Count the events that each statement brings."""

    async def counting(line: Line, record_class: type, statement: str, *arguments: Any) -> list[Any]:
        rows = await fetch_as(line, record_class, statement, *arguments)
        if issubclass(record_class, LoggedEvent):
            counts.append(len(rows) - 1)
        return rows

    return counting


async def test_what_waits_alone_leaves_no_row_of_anybody_else(stage: Stage) -> None:
    """R5: what has no order, or no aggregate, is unsettled under its own id, and holds back nothing."""
    seen = Recorder().fail("a")
    loose = handler("loose", seen, ordered=False)
    await stage.put("a")
    await stage.drain(loose, retries_max=1)
    await stage.put("b", "c", "d")
    await stage.drain(loose)
    assert seen.seen == ["a", "b", "c", "d"]
    assert await stage.deliveries() == {("a", "loose"): "dead"}
