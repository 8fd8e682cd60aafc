"""Due is data: who is owed which events, whoever lives at the time (R2, R9)."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.infrastructure.operations.subscriptions import retire
from outbox_kernel.infrastructure.relay import renaming
from outbox_kernel.infrastructure.relay.store import Store
from outbox_kernel.kernel.catalogue import isolated_definitions
from tests.domain import Announced, Noted
from tests.relaying import LEASE_SECONDS, Recorder, Stage, handler

SUBSCRIPTION = "SELECT patterns, retired_at IS NOT NULL, since FROM outbox_subscriptions WHERE name = $1"


async def subscription(stage: Stage, name: str) -> Any:
    return await stage.witness.fetchrow(SUBSCRIPTION, name)


async def change(stage: Stage, name: str, what: str) -> None:
    """What the operator's commands write."""
    await stage.witness.execute(
        f"UPDATE outbox_subscriptions SET {what}, revision = revision + 1 WHERE name = $1", name
    )


async def test_a_relay_leaves_what_it_does_not_carry_to_one_that_does(stage: Stage) -> None:
    """R2, R9: uncharged, and it is no failure."""
    here, elsewhere, wallet = Recorder(), Recorder(), uuid4()
    await stage.drain(handler("elsewhere", elsewhere))
    await stage.put("a", "b", of=wallet)
    await stage.drain(handler("here", here))
    assert here.seen == ["a", "b"]
    assert await stage.events() == {"a": "open", "b": "open"}
    row = await stage.delivery("a", "elsewhere")
    assert (row["status"], row["attempts"], row["takeovers"]) == ("waiting", 0, 0)
    await stage.drain(handler("here", here))
    await stage.drain(handler("elsewhere", elsewhere))
    assert (here.seen, elsewhere.seen) == (["a", "b"], ["a", "b"])
    assert await stage.events() == {"a": "delivered", "b": "delivered"}


async def test_a_handler_is_due_for_what_is_claimed_after_it_first_started(stage: Stage) -> None:
    """R2: not for what was delivered before."""
    new = Recorder()
    await stage.put("old")
    await stage.drain(handler("h", Recorder()))
    await stage.drain(handler("h", Recorder()), handler("new", new))
    await stage.put("young")
    await stage.drain(handler("h", Recorder()), handler("new", new))
    assert new.seen == ["young"]


async def test_a_running_relay_learns_of_a_new_handler_before_its_next_event(stage: Stage) -> None:
    """R2."""
    new = Recorder()
    relay = stage.relay(handler("h", Recorder()))
    await relay.run_once()
    await stage.relay(handler("new", new)).run_once()
    await stage.put("a")
    await relay.run_once()
    assert await stage.deliveries() == {("a", "new"): "waiting"}
    await stage.drain(handler("new", new))
    assert new.seen == ["a"]


async def test_patterns_grow_and_never_shrink(stage: Stage) -> None:
    """R2: an older relay beside a newer one takes nothing away."""
    await stage.drain(handler("h", Recorder(), Noted))
    await stage.drain(handler("h", Recorder(), Noted, Announced))
    await stage.drain(handler("h", Recorder(), Noted))
    row = await subscription(stage, "h")
    assert row["patterns"] == ["bank.announced", "bank.noted"]
    await stage.put("a", event_type="bank.announced")
    await stage.drain(handler("h", Recorder(), Noted))
    assert await stage.deliveries() == {("a", "h"): "waiting"}


async def test_a_start_with_nothing_new_changes_no_subscription(stage: Stage) -> None:
    """R2: relays that come and go cost the others nothing."""
    for _ in range(2):
        await stage.drain(handler("h", Recorder()))
    assert await stage.witness.fetchval("SELECT sum(revision) FROM outbox_subscriptions") == 1


async def test_a_retired_handler_is_due_for_nothing_new(stage: Stage) -> None:
    """R2."""
    gone = Recorder()
    await stage.drain(handler("gone", gone))
    await change(stage, "gone", "retired_at = now()")
    await stage.put("a")
    await stage.drain(handler("h", Recorder()))
    assert await stage.events() == {"a": "delivered"}
    await stage.drain(handler("gone", gone))
    assert gone.seen == []


async def test_a_retired_name_that_starts_again_is_due_again(stage: Stage) -> None:
    """R2: from then on."""
    back = Recorder()
    await stage.drain(handler("back", back))
    await change(stage, "back", "retired_at = now()")
    await stage.put("a")
    await stage.drain()
    await stage.drain(handler("back", back))
    await stage.put("b")
    await stage.drain(handler("back", back))
    assert back.seen == ["b"]


async def test_a_retired_name_comes_back_with_the_patterns_it_comes_with(stage: Stage) -> None:
    """R2: what it was for in its former life is over."""
    await stage.drain(handler("h", Recorder(), Noted, Announced))
    await change(stage, "h", "retired_at = now()")
    await stage.drain(handler("h", Recorder(), Noted))
    assert (await subscription(stage, "h"))["patterns"] == ["bank.noted"]
    await stage.put("a", event_type="bank.announced")
    await stage.drain(handler("h", Recorder(), Noted))
    assert await stage.events() == {"a": "delivered"}


async def test_a_handler_that_was_retired_while_its_relay_had_no_lease_is_due_again_with_the_next(
    stage: Stage,
) -> None:
    """R2, R3: a relay that comes back carries what it carried, as one that starts does."""
    seen = Recorder()
    relay = stage.relay(handler("own", seen), at=None)
    await relay.run_once()
    await stage.witness.execute("UPDATE outbox_relays SET expires_at = now() - interval '1 minute'")
    assert (await retire(Desk(stage.witness), "own")).newly
    await stage.put("a")
    await relay.run_once()
    assert seen.seen == ["a"]
    assert not (await subscription(stage, "own"))[1]


async def test_a_relay_that_cannot_subscribe_under_its_next_lease_takes_another(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2, R12: it claims nothing before the database knows what it carries."""
    seen = Recorder()
    relay = stage.relay(handler("own", seen))
    await relay.run_once()
    await stage.witness.execute("UPDATE outbox_relays SET expires_at = clock_timestamp()")
    await change(stage, "own", "retired_at = now()")

    async def fail(*_: Any) -> None:
        raise DatabaseUnreachable("it has just gone")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "subscribe", fail)
        with pytest.raises(DatabaseUnreachable):
            await relay.run_once()
    await stage.put("a")
    await relay.run_once()
    assert seen.seen == ["a"]


async def test_a_paused_handler_waits_without_a_try(stage: Stage) -> None:
    """R2: its deliveries are written waiting; others go on."""
    held, good, wallet = Recorder(), Recorder(), uuid4()
    relay = stage.relay(handler("held", held), handler("good", good))
    await relay.run_once()
    await change(stage, "held", "paused_at = now()")
    await stage.put("a", "b", of=wallet)
    await relay.run_once()
    await relay.run_once()
    assert (held.seen, good.seen) == ([], ["a", "b"])
    assert (await stage.delivery("a", "held"))["attempts"] == 0
    await change(stage, "held", "paused_at = NULL")
    await stage.put("c", of=wallet)
    await relay.run_until_idle()
    assert held.seen == ["a", "b", "c"]


@pytest.mark.parametrize("version", [1, 2])
async def test_an_unknown_type_waits_for_a_relay_that_knows_it(stage: Stage, version: int) -> None:
    """R9: unknown name, or a newer version of a known one; it keeps its place and delays nobody else."""
    seen, other, wallet = Recorder(), Recorder(), uuid4()
    name = "bank.unheard" if version == 1 else "bank.noted"
    await stage.drain(handler("h", seen), handler("all", other))
    await change(stage, "h", f"patterns = patterns || '{{{name}}}'")
    if version == 1:
        await stage.put("a", of=wallet, event_type=name)
    else:
        await stage.put("a", of=wallet, event_type=name, version=2)
    await stage.put("b", of=wallet)
    await stage.put("c", of=uuid4())
    await stage.drain(handler("h", seen), handler("all", other))
    await stage.drain(handler("h", seen), handler("all", other), at=10_000)
    assert seen.seen == ["c"]
    assert (await stage.delivery("a", "h"))["attempts"] == 0
    assert (await stage.event("a"))["status"] == "open"
    assert (await stage.delivery("b", "h"))["status"] == "waiting"
    with isolated_definitions():
        from outbox_kernel.kernel import DomainEvent, event, upcasts

        if version == 1:

            @event(name)
            class Unheard(DomainEvent):
                what: str

            newer: type[DomainEvent] = Unheard
        else:

            @upcasts(name, from_version=1)
            def lift(body: dict[str, Any]) -> dict[str, Any]:
                return body

            @event(name, version=2)
            class NewerNoted(DomainEvent):
                what: str

            newer = NewerNoted
        await stage.drain(handler("h", seen, Noted, newer), handler("all", other, Noted, newer), at=10_001)
    assert seen.seen == ["c", "a", "b"]
    assert set((await stage.events()).values()) == {"delivered"}


# --- renamed ---------------------------------------------------------------------------------------------


async def test_a_renamed_handler_goes_on_where_the_former_one_stood(stage: Stage) -> None:
    """R2: deliveries with their attempts, in order."""
    seen, wallet = Recorder().fail("a"), uuid4()
    await stage.put("a", "b", of=wallet)
    await stage.drain(handler("former", seen))
    await stage.put("c", of=wallet)
    renamed = handler("now", seen, renamed_from="former")
    await stage.drain(renamed)
    assert seen.seen == ["a"]
    row = await stage.delivery("a", "now")
    assert (row["status"], row["attempts"]) == ("waiting", 1)
    await stage.drain(renamed, at=10)
    assert seen.seen == ["a", "a", "b", "c"]
    assert (await subscription(stage, "former"))[1]
    assert not (await subscription(stage, "now"))[1]


async def test_a_renamed_handler_has_the_receipts_of_the_former_one(stage: Stage) -> None:
    """R2, R6."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)

    await stage.put("a")
    await stage.drain(handler("former", act))
    await stage.witness.execute("UPDATE outbox_events SET status = 'pending'")
    await stage.drain(handler("now", act, renamed_from="former"))
    assert await stage.journal() == ["a"]


@pytest.mark.parametrize("former_first", [True, False])
async def test_an_effect_happens_once_while_old_and_new_names_run_side_by_side(
    stage: Stage, former_first: bool
) -> None:
    """R2, R6: a receipt written under one name after the names were moved holds for the other."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)

    former, now = handler("former", act), handler("now", act, renamed_from="former")
    relays = {each.name: stage.relay(each) for each in (former, now)}
    await relays["former"].run_once()
    await relays["now"].run_once()
    await change(stage, "former", "retired_at = NULL")  # an old relay has started once more
    await change(stage, "now", "retired_at = now()")
    await stage.put("a")
    order = ["former", "now"] if former_first else ["now", "former"]
    for name in order:
        await change(stage, name, "retired_at = NULL")
        await change(stage, "now" if name == "former" else "former", "retired_at = now()")
        await relays[name].run_once()
        await stage.witness.execute("UPDATE outbox_events SET status = 'pending'")
    assert await stage.journal() == ["a"]
    assert await stage.deliveries() == {}


async def test_a_delivery_that_runs_under_the_former_name_is_settled_there(stage: Stage) -> None:
    """R2: the names move when nobody holds it."""
    go, begun, seen = asyncio.Event(), asyncio.Event(), Recorder().fail("a")

    async def act(event: Any) -> None:
        await seen(event)
        begun.set()
        await go.wait()

    wallet = uuid4()
    await stage.put("a", of=wallet)
    await stage.drain(handler("former", act))
    running = asyncio.create_task(stage.drain(handler("former", act), at=10))
    await begun.wait()
    await stage.put("b", of=wallet)
    renamed = handler("now", seen, renamed_from="former")
    await stage.drain(renamed, at=10)
    assert seen.seen == ["a", "a"]
    go.set()
    await running
    assert (await stage.event("a"))["status"] == "delivered"
    await stage.drain(renamed, at=10)
    assert seen.seen == ["a", "a", "b"]
    assert set((await stage.events()).values()) == {"delivered"}


async def test_what_fails_under_the_former_name_holds_back_the_new_one(stage: Stage) -> None:
    """R4: a relay of the older code is still at work when the newer one has started."""
    seen, wallet = Recorder().fail("a"), uuid4()
    old = stage.relay(handler("former", seen))
    await stage.put("a", of=wallet)
    await old.run_once()
    new = stage.relay(handler("now", seen, renamed_from="former"))
    await new.run_once()
    await stage.witness.execute("UPDATE outbox_deliveries SET handler = 'former'")  # written a moment later
    await stage.put("b", of=wallet)
    await new.run_once()
    await new.run_once()
    assert seen.seen == ["a"]
    await stage.drain(handler("now", seen, renamed_from="former"), at=LEASE_SECONDS)
    assert seen.seen == ["a", "a", "b"]


async def test_what_both_names_have_is_left_to_the_new_one(stage: Stage) -> None:
    """R2: an older relay has started once more and written down what it knows; the event ends all the same."""
    seen = Recorder()
    renamed = handler("now", seen, renamed_from="former")
    await stage.drain(handler("former", Recorder()))
    await stage.drain(renamed)
    await change(stage, "former", "retired_at = NULL")
    await stage.put("a")
    await stage.drain(handler("other", Recorder()))
    assert await stage.deliveries() == {("a", "former"): "waiting", ("a", "now"): "waiting"}
    await stage.drain(renamed)
    assert seen.seen == ["a"]
    assert await stage.events() == {"a": "delivered"}
    assert await stage.deliveries() == {("a", "now"): "done"}


async def test_a_name_that_changed_long_ago_costs_a_window_of_receipts_and_no_delivery(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2, R13: and all of them are moved, one window after the other."""
    moves, move = [0], Store.rename_deliveries
    monkeypatch.setattr(renaming, "WINDOW_ROWS", 2)

    async def count(self: Store, *given: Any) -> None:
        moves[0] += 1
        await move(self, *given)

    monkeypatch.setattr(Store, "rename_deliveries", count)
    await stage.put("a", "b", "c", "d", "e")
    await stage.witness.execute(
        "INSERT INTO outbox_receipts (event_id, handler) SELECT event_id, 'former' FROM outbox_events"
    )
    relay = stage.relay(handler("now", Recorder(), renamed_from="former"))
    await relay._start()  # noqa: SLF001 - what it does every poll interval
    names = relay._renaming  # noqa: SLF001 - as above
    for _ in range(3):
        await names.step(stage.line())
    assert {name for _, name, _ in await stage.receipts()} == {"now"}
    assert moves == [1]
    await change(stage, "now", "name = 'former', retired_at = NULL")
    await names.step(stage.line())
    await names.step(stage.line())
    await names.step(stage.line())
    assert moves == [3]


async def test_a_receipt_under_the_former_name_goes_when_no_relay_has_that_name(stage: Stage) -> None:
    """R2: or a replay under the new name would count as done already."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)

    await stage.put("a")
    renamed = handler("now", act, renamed_from="former")
    await stage.drain(renamed)
    assert await stage.receipts() == [("a", "former", "done"), ("a", "now", "done")]
    await stage.drain(renamed)
    assert await stage.receipts() == [("a", "now", "done")]
