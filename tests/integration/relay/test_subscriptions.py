"""Due is data: who is owed which events, whoever lives at the time (R2, R9)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast
from uuid import uuid4

import attrs
import pytest

from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.infrastructure.operations.subscriptions import pause, resume, retire
from outbox_kernel.infrastructure.outbox.own_connection import Line, Step
from outbox_kernel.infrastructure.relay import subscription as subscription_module
from outbox_kernel.infrastructure.relay.lease import Lease
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.infrastructure.relay.shift import Shift
from outbox_kernel.infrastructure.relay.subscription import Renaming
from outbox_kernel.kernel.catalogue import isolated_definitions
from tests.domain import Announced, Noted
from tests.relaying import Recorder, Stage, connected, handler
from tests.serving import at_the_gate, has_begun, has_run, serving
from tests.waiting import until

SUBSCRIPTION = "SELECT patterns, retired_at IS NOT NULL, since FROM outbox_subscriptions WHERE name = $1"
CURSORS = "SELECT count(*) FROM outbox_cursors WHERE subscription = $1"


async def subscription(stage: Stage, name: str) -> Any:
    return await stage.witness.fetchrow(SUBSCRIPTION, name)


async def change(stage: Stage, name: str, what: str) -> None:
    """What the operator's commands write."""
    await stage.witness.execute(
        f"UPDATE outbox_subscriptions SET {what}, revision = revision + 1 WHERE name = $1", name
    )


async def test_what_a_relay_does_not_carry_waits_in_the_log_for_one_that_does(stage: Stage) -> None:
    """R2: at no cost to anybody, so without a row."""
    here, elsewhere, wallet = Recorder(), Recorder(), uuid4()
    await stage.drain(handler("elsewhere", elsewhere))
    await stage.put("a", "b", of=wallet)
    await stage.drain(handler("here", here))
    assert here.seen == ["a", "b"]
    assert await stage.events() == {"a": "pending", "b": "pending"}
    await stage.drain(handler("here", here))
    await stage.drain(handler("elsewhere", elsewhere))
    assert (here.seen, elsewhere.seen) == (["a", "b"], ["a", "b"])
    assert await stage.events() == {"a": "delivered", "b": "delivered"}
    assert await stage.deliveries() == {}


# --- from when on ----------------------------------------------------------------------------------------


async def test_a_handler_is_due_for_what_commits_after_it_first_started(stage: Stage) -> None:
    """R2: not for what had committed before, whoever has handled that."""
    new = Recorder()
    await stage.put("old")
    await stage.drain(handler("h", Recorder()))
    await stage.put("passed by nobody")
    both = handler("h", Recorder()), handler("new", new)
    await stage.drain(*both, from_beginning=False)
    await stage.put("young")
    await stage.drain(*both, from_beginning=False)
    assert new.seen == ["young"]


async def test_who_reads_an_outbox_that_nobody_has_read_gets_all_of_it(stage: Stage) -> None:
    """R2, D2: what was committed before there was a relay would be delivered to nobody."""
    seen, later = Recorder(), Recorder()
    await stage.put("old")
    await stage.drain(handler("h", seen), from_beginning=False)
    await stage.drain(handler("h", seen), handler("later", later), from_beginning=False)
    assert (seen.seen, later.seen) == (["old"], [])


async def test_one_that_was_there_once_has_read_it(stage: Stage) -> None:
    """R2: who comes back alone after it was retired gets what commits from then on."""
    seen = Recorder()
    await stage.drain(handler("h", seen), from_beginning=False)
    await stage.witness.execute(
        "UPDATE outbox_subscriptions SET retired_at = clock_timestamp(), revision = revision + 1"
    )
    await stage.put("meanwhile")
    await stage.drain(handler("h", seen), from_beginning=False)
    assert seen.seen == []


async def test_what_is_open_while_a_handler_first_starts_is_due_for_it(stage: Stage, bank_url: str) -> None:
    """R2, R2b: exactly what commits from then on, however low its position."""
    seen, slow = Recorder(), await connected(bank_url)
    await stage.drain(handler("other", Recorder()), from_beginning=False)
    transaction = slow.transaction()
    await transaction.start()
    await stage.put("open", by=slow)
    await stage.put("before")
    await stage.drain(handler("h", seen), from_beginning=False)
    await transaction.commit()
    await slow.close()
    await stage.drain(handler("h", seen), from_beginning=False)
    assert seen.seen == ["open"]


async def test_all_of_the_log_is_due_for_one_that_asks_for_it_once(stage: Stage) -> None:
    """R2, R17."""
    seen = Recorder()
    await stage.put("old")
    await stage.drain(handler("other", Recorder()))
    for _ in range(2):
        await stage.drain(handler("h", seen, start="beginning"), from_beginning=False)
    assert seen.seen == ["old"]


async def test_a_start_with_nothing_new_changes_no_subscription_and_no_place(stage: Stage) -> None:
    """R2: relays that come and go cost the others nothing."""
    seen = Recorder()
    await stage.drain(handler("h", seen), from_beginning=False)
    await stage.put("a")
    await stage.drain(handler("h", seen), from_beginning=False)
    assert await stage.witness.fetchval("SELECT sum(revision) FROM outbox_subscriptions") == 1
    assert seen.seen == ["a"]


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


def once_it_has_learnt(patching: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]]) -> None:
    """Let something happen as soon as a relay knows who is due, and before it reads."""
    learn = Shift.learn

    async def learn_too_early(shift: Shift) -> None:
        patching.setattr(Shift, "learn", learn)
        await learn(shift)
        await act()

    patching.setattr(Shift, "learn", learn_too_early)


async def test_an_older_relay_passes_nothing_by_that_a_grown_pattern_is_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: it learns of the pattern with the very read that would have passed the event."""
    old_seen, seen = Recorder(), Recorder()
    newer = handler("h", seen, Noted, Announced)

    async def start_newer() -> None:
        await stage.drain(newer)
        await stage.put("a", event_type="bank.announced")

    once_it_has_learnt(monkeypatch, start_newer)
    await stage.relay(handler("h", old_seen, Noted)).run_once()
    assert await stage.deliveries() == {("a", "h"): "waiting"}
    await stage.drain(newer)
    assert (old_seen.seen, seen.seen) == ([], ["a"])


# --- retired ---------------------------------------------------------------------------------------------


async def test_a_retired_handler_is_due_for_nothing_new(stage: Stage) -> None:
    """R2: nor for what it had not passed yet."""
    gone = Recorder()
    await stage.drain(handler("gone", gone))
    await stage.put("not passed")
    assert (await retire(Desk(stage.witness, now=stage.at(60)), "gone")).newly
    await stage.put("a")
    await stage.drain(handler("h", Recorder()))
    assert await stage.events() == {"not passed": "delivered", "a": "delivered"}
    assert await stage.witness.fetchval(CURSORS, "gone") == 0


async def test_a_retired_name_that_starts_again_is_due_again(stage: Stage) -> None:
    """R2: from then on, and for nothing of before."""
    back = Recorder()
    await stage.drain(handler("back", back), from_beginning=False)
    await stage.put("not passed")
    await change(stage, "back", "retired_at = now()")
    await stage.put("a")
    await stage.drain(handler("back", back), from_beginning=False)
    await stage.put("b")
    await stage.drain(handler("back", back), from_beginning=False)
    assert back.seen == ["b"]


async def test_a_relay_that_begins_anew_while_it_serves_leaves_retired_what_was_retired(stage: Stage) -> None:
    """R2: after a lease that was lost, too; what a newer name has taken over would come to both of them."""
    relay = stage.relay(handler("gone", Recorder()))
    await relay.run_once()
    await retire(Desk(stage.witness, now=stage.at(60)), "gone")
    async with relay._shift_begun(takes_all=True, is_start=False) as shift:  # noqa: SLF001 - as its next shift begins
        assert shift.subscribers["gone"].subscription.retired
    assert not await stage.witness.fetchval("SELECT count(*) FROM outbox_cursors")


async def test_who_runs_until_idle_leaves_retired_what_was_retired_meanwhile(stage: Stage) -> None:
    """R2: its lease was lost, and it begins anew to find out that nothing is left."""
    begun: list[str] = []

    async def act(event: Any) -> None:
        begun.append(event.what)
        await change(stage, "h", "retired_at = now()")
        await until(is_taken_over)

    async def is_taken_over() -> bool:
        # Who sweeps passes over a row that somebody holds, as each statement of the relay's does while it is under way.
        return (await stage.take_over(at=3600))[0] > 0

    await stage.put("a")
    await stage.relay(handler("h", act)).run_until_idle()
    assert begun == ["a"]
    assert not await stage.witness.fetchval("SELECT count(*) FROM outbox_cursors")


async def test_a_retired_name_comes_back_with_the_patterns_it_comes_with(stage: Stage) -> None:
    """R2: what it was for in its former life is over."""
    await stage.drain(handler("h", Recorder(), Noted, Announced))
    await change(stage, "h", "retired_at = now()")
    await stage.drain(handler("h", Recorder(), Noted))
    assert (await subscription(stage, "h"))["patterns"] == ["bank.noted"]
    await stage.put("a", event_type="bank.announced")
    await stage.drain(handler("h", Recorder(), Noted))
    assert await stage.events() == {"a": "delivered"}


async def test_a_relay_that_carries_what_is_retired_passes_nothing_for_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: as one of older code does, whose handler has another name by now, and with it its place in the log."""
    old_seen, seen = Recorder(), Recorder()
    renamed = handler("now", seen, renamed_from="former")

    async def rename() -> None:
        await stage.drain(renamed, from_beginning=False)
        await stage.put("a")

    once_it_has_learnt(monkeypatch, rename)
    await stage.drain(handler("former", old_seen))
    assert await stage.events() == {"a": "pending"}
    await stage.drain(renamed, from_beginning=False)
    assert (old_seen.seen, seen.seen) == ([], ["a"])


# --- paused ----------------------------------------------------------------------------------------------


async def test_a_paused_handler_stands_still_at_its_cursor(stage: Stage) -> None:
    """R2: with no row and no try; others go on."""
    held, good, wallet = Recorder(), Recorder(), uuid4()
    relay = stage.relay(handler("held", held), handler("good", good))
    await relay.run_once()
    await change(stage, "held", "paused_at = now()")
    await stage.put("a", "b", of=wallet)
    await relay.run_once()
    await relay.run_once()
    assert (held.seen, good.seen) == ([], ["a", "b"])
    assert await stage.deliveries() == {}
    assert await stage.events() == {"a": "pending", "b": "pending"}
    await change(stage, "held", "paused_at = NULL")
    await stage.put("c", of=wallet)
    await relay.run_until_idle()
    assert (held.seen, good.seen) == (["a", "b", "c"], ["a", "b", "c"])


async def test_what_waits_for_a_paused_handler_is_not_taken(stage: Stage) -> None:
    """R2."""
    seen = Recorder().fail("a")
    await stage.put("a", of=uuid4())
    await stage.drain(handler("h", seen))
    await change(stage, "h", "paused_at = now()")
    await stage.drain(handler("h", seen), at=10)
    assert seen.seen == ["a"]
    await change(stage, "h", "paused_at = NULL")
    await stage.drain(handler("h", seen), at=10)
    assert seen.seen == ["a", "a"]


async def test_who_is_paused_is_paused_under_a_new_name_too(stage: Stage) -> None:
    """R2: until somebody lets it go on, which newer code does not."""
    seen = Recorder()
    await stage.drain(handler("former", seen))
    await change(stage, "former", "paused_at = now()")
    await stage.put("a")
    renamed = handler("now", seen, renamed_from="former")
    await stage.drain(renamed)
    assert seen.seen == []
    assert await resume(Desk(stage.witness), "now")
    await stage.drain(renamed)
    assert seen.seen == ["a"]


async def test_a_relay_that_serves_hears_of_a_pause_and_of_its_end(stage: Stage) -> None:
    """R2: with no poll to remind it, and nothing else to read."""
    seen, other, desk = Recorder(), Recorder(), Desk(stage.witness)
    relay = stage.relay(handler("h", seen), handler("i", other), at=None, poll_interval_seconds=3600)
    async with serving(relay):
        await relay.subscribed.wait()
        assert await pause(desk, "h")
        assert await pause(desk, "i")
        await stage.put("a")
        assert await resume(desk, "i")
        await until(lambda: has_run(other, 1))
        assert seen.seen == []
        assert await resume(desk, "h")
        await until(lambda: has_run(seen, 1))


async def test_a_pause_lets_end_what_runs_and_begins_nothing_of_what_was_read(stage: Stage) -> None:
    """R2, O1: a handler that must not run now does not go on through a batch."""
    h, go, begun, seen = at_the_gate()
    await stage.put("a", "b", "c", of=uuid4())
    relay = stage.relay(h, at=None)
    async with serving(relay):
        await begun.wait()
        assert await pause(Desk(stage.witness), "h")
        await until(lambda: stands_still(relay, "h"))
        go.set()
        await until(lambda: is_at_rest(relay, "h"))
        assert seen == ["a"]
        assert await resume(Desk(stage.witness), "h")
        await until(lambda: has_begun(seen, 3))
    assert await stage.deliveries() == {}


async def stands_still(relay: Any, name: str) -> bool:
    return bool(relay._shift.subscribers[name].stands_still)  # noqa: SLF001 - nobody else can say


async def is_at_rest(relay: Any, name: str) -> bool:
    return bool(relay._shift.subscribers[name].workers.at_rest)  # noqa: SLF001 - as above


# --- unknown ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
async def test_an_unknown_type_waits_for_a_relay_that_knows_it(stage: Stage, version: int) -> None:
    """R9: unknown name, or a newer version of a known one; it keeps its place and delays nobody else."""
    seen, other, wallet = Recorder(), Recorder(), uuid4()
    name = "bank.unheard" if version == 1 else "bank.noted"
    await stage.drain(handler("h", seen), handler("all", other))
    await change(stage, "h", f"patterns = patterns || '{{{name}}}'")
    await stage.put("a", of=wallet, event_type=name, version=version)
    await stage.put("b", of=wallet)
    await stage.put("c", of=uuid4())
    await stage.drain(handler("h", seen), handler("all", other))
    await stage.drain(handler("h", seen), handler("all", other), at=10_000)
    assert seen.seen == ["c"]
    assert (await stage.delivery("a", "h"))["attempts"] == 0
    assert (await stage.status("a"))["status"] == "open"
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
    """R2: at its place in the log, and with its deliveries, their attempts, and their order."""
    seen, wallet = Recorder().fail("a"), uuid4()
    await stage.put("a", "b", of=wallet)
    await stage.drain(handler("former", seen))
    await stage.put("c", of=wallet)
    await stage.put("d", of=uuid4())
    renamed = handler("now", seen, renamed_from="former")
    await stage.drain(renamed, from_beginning=False)
    assert seen.seen == ["a", "d"]
    row = await stage.delivery("a", "now")
    assert (row["status"], row["attempts"]) == ("waiting", 1)
    await stage.drain(renamed, from_beginning=False, at=10)
    assert seen.seen == ["a", "d", "a", "b", "c"]
    assert (await subscription(stage, "former"))[1]
    assert not (await subscription(stage, "now"))[1]


async def test_a_renamed_handler_has_the_receipts_of_the_former_one(stage: Stage) -> None:
    """R2, R6."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)

    await stage.put("a")
    await stage.drain(handler("former", act))
    await stage.witness.execute("UPDATE outbox_cursors SET rewind_to = 0")
    await stage.drain(handler("now", act, renamed_from="former"))
    assert await stage.journal() == ["a"]


async def test_a_relay_of_older_code_keeps_what_it_has_in_hand_and_gives_the_rest_where_it_stands(
    stage: Stage,
) -> None:
    """R2, R4: nothing is lost, repeated or overtaken between the two."""
    gate, go, begun, held = at_the_gate()
    seen, wallet = Recorder(), uuid4()
    old = stage.relay(attrs.evolve(gate, name="former"), at=None, poll_interval_seconds=3600)
    await stage.put("a", of=wallet)
    async with serving(old):
        await begun.wait()
        renamed = handler("now", seen, renamed_from="former")
        await stage.relay(renamed, from_beginning=False, at=None).run_until_idle()
        await stage.put("b", of=wallet)
        await stage.relay(renamed, from_beginning=False, at=None).run_until_idle()
        assert (held, seen.seen) == (["a"], [])
        go.set()

        async def both_are_run() -> bool:
            await Desk(stage.witness).wake_relays()
            await stage.relay(renamed, from_beginning=False, at=None).run_until_idle()
            return len(held + seen.seen) == 2

        await until(both_are_run)
    assert (held, seen.seen) == (["a"], ["b"])
    assert await stage.events() == {"a": "delivered", "b": "delivered"}


async def test_an_effect_happens_once_while_old_and_new_names_run_side_by_side(stage: Stage) -> None:
    """R2, R6: an old relay has started once more, and a receipt written under one name holds for the other."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)

    former, now = handler("former", act), handler("now", act, renamed_from="former")
    await stage.drain(former)
    await stage.drain(now)
    await stage.drain(former, from_beginning=False)
    await stage.put("a", "b")
    await stage.drain(former)
    await stage.drain(now)
    assert await stage.journal() == ["a", "b"]


async def test_what_an_old_relay_was_due_for_when_it_started_once_more_is_left_to_the_new_name(
    stage: Stage,
) -> None:
    """R2: its cursors go, since the new name has its own."""
    seen, old_seen = Recorder(), Recorder()
    renamed = handler("now", seen, renamed_from="former")
    await stage.drain(handler("former", old_seen))
    await stage.drain(renamed)
    await stage.drain(handler("former", old_seen), from_beginning=False)
    await stage.put("a")
    await stage.drain(renamed)
    assert (old_seen.seen, seen.seen) == ([], ["a"])
    assert await stage.events() == {"a": "delivered"}
    assert await stage.witness.fetchval(CURSORS, "former") == 0


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
    assert await stage.deliveries() == {("a", "former"): "done"}
    await stage.drain(renamed, at=10)
    assert seen.seen == ["a", "a", "b"]
    assert set((await stage.events()).values()) == {"delivered"}


async def test_what_fails_under_the_former_name_holds_back_the_new_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4: a relay of the older code writes it down when the newer one has started."""
    seen, wallet = Recorder().fail("a"), uuid4()
    renamed = handler("now", seen, renamed_from="former")
    await stage.put("a", of=wallet)
    await stage.drain(handler("former", seen))
    await stage.put("b", of=wallet)

    async def write() -> None:
        await stage.witness.execute("UPDATE outbox_deliveries SET handler = 'former'")

    once_it_has_learnt(monkeypatch, write)
    await stage.drain(renamed, at=10)
    assert seen.seen == ["a"]
    await stage.drain(renamed, at=10)
    assert seen.seen == ["a", "a", "b"]


async def test_what_waits_under_both_names_is_left_to_the_new_one(stage: Stage) -> None:
    """R2: an older relay has written down what it knows; the event ends all the same."""
    seen = Recorder().fail("a")
    renamed = handler("now", seen, renamed_from="former")
    await stage.put("a")
    await stage.drain(renamed)
    await stage.witness.execute(
        "INSERT INTO outbox_deliveries (event_id, position, handler, order_key) "
        "SELECT event_id, position, 'former', order_key FROM outbox_deliveries"
    )
    await stage.drain(renamed, at=10)
    assert seen.seen == ["a", "a"]
    assert await stage.events() == {"a": "delivered"}
    assert await stage.deliveries() == {("a", "now"): "done"}


async def test_a_name_that_changed_long_ago_costs_a_window_of_receipts_and_no_delivery(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2, R13: and all of them are moved, one window after the other."""
    monkeypatch.setattr(subscription_module, "WINDOW_ROWS", 2)
    await stage.put("a", "b", "c", "d", "e")
    await stage.witness.execute(
        "INSERT INTO outbox_receipts (event_id, handler) SELECT event_id, 'former' FROM outbox_events"
    )
    line = Counting(stage.line())
    moving = Renaming(Log(cast("Line", line), Lease()), {"names": ["now"], "former": ["former"]})
    for _ in range(4):
        await moving.step()
    assert {name for _, name, _ in await stage.receipts()} == {"now"}
    assert line.transactions == 1
    await stage.drain(handler("former", Recorder()))
    await moving.step()
    await moving.step()
    await moving.step()
    assert line.transactions == 3


@attrs.define(eq=False)
class Counting:
    """A relay's line that counts its transactions."""

    line: Line
    transactions: int = 0

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        return await self.line.fetch(statement, *arguments)

    async def transact(self, steps: Sequence[Step]) -> list[list[Any]]:
        self.transactions += 1
        return await self.line.transact(steps)


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


async def test_relays_that_come_and_go_with_nothing_to_do_leave_no_trace(stage: Stage) -> None:
    """R13: as `outbox relay --once` does that a timer starts each minute."""
    for _ in range(3):
        await stage.drain(handler("h", Recorder()))
    assert await stage.witness.fetchval("SELECT count(*) FROM outbox_cursors_past") == 0


async def test_what_was_written_while_nobody_was_due_has_no_moment_at_which_it_was_passed(
    stage: Stage,
) -> None:
    """S: the subscription that has come back began behind it."""
    await stage.put("a")
    await stage.drain(handler("h", Recorder()))
    await stage.witness.execute(
        "UPDATE outbox_subscriptions SET retired_at = clock_timestamp(), revision = 2"
    )
    await stage.put("b")
    await stage.drain(handler("h", Recorder()), at=10, from_beginning=False)
    await stage.put("c")
    await stage.drain(handler("h", Recorder()), at=20, from_beginning=False)
    passed = {what: (await stage.status(what))["processed_at"] for what in ("b", "c")}
    created = {what: (await stage.event(what))["created_at"] for what in ("b", "c")}
    assert passed["b"] == created["b"]
    assert passed["c"] > created["c"]
