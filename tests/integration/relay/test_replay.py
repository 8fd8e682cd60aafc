"""The past: a cursor that goes back brings what it had passed, in order, and no row is written for it (R17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from outbox_kernel.infrastructure.operations import Desk, Selection
from outbox_kernel.infrastructure.operations.mending import choose_for_retry, choose_for_skip, retry, skip
from outbox_kernel.infrastructure.operations.replaying import rewind as go_back
from outbox_kernel.infrastructure.outbox.delivery import Outcome
from outbox_kernel.infrastructure.outbox.sql.cursors import DROP_AHEAD
from outbox_kernel.infrastructure.relay.deliveries import Deliveries
from outbox_kernel.kernel import Reject, Unavailable
from tests.relaying import Recorder, Stage, carrying, connected, handler
from tests.serving import has_in_hand, has_run, serving
from tests.waiting import until


@pytest_asyncio.fixture
async def late(bank_url: str) -> AsyncIterator[Any]:
    connection = await connected(bank_url)
    yield connection
    await connection.close()


async def rewind(stage: Stage, name: str, position: int = 0) -> None:
    """What an operator's command writes."""
    await stage.witness.execute(
        "UPDATE outbox_cursors SET rewind_to = $2 WHERE subscription = $1", name, position
    )


async def test_what_was_passed_comes_again_in_order_for_that_handler_alone(stage: Stage) -> None:
    """R4, R5: from the position on to which it goes back."""
    seen, other, wallet = Recorder(), Recorder(), uuid4()
    both = handler("h", seen), handler("other", other)
    await stage.put("a", "b", "c", of=wallet)
    await stage.drain(*both)
    await rewind(stage, "h", (await stage.event("a"))["position"])
    await stage.put("d", of=wallet)
    await stage.drain(*both)
    assert seen.seen == ["a", "b", "c", "b", "c", "d"]
    assert other.seen == ["a", "b", "c", "d"]
    assert await stage.deliveries() == {}
    await stage.drain(*both)
    assert len(seen.seen) == 6


async def test_an_effect_that_has_happened_does_not_happen_again(stage: Stage) -> None:
    """R6: the receipts are there."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)

    await stage.put("a", "b")
    await stage.drain(handler("h", act))
    await rewind(stage, "h")
    await stage.drain(handler("h", act))
    assert await stage.journal() == ["a", "b"]


async def test_a_relay_that_serves_goes_back_when_it_is_told(stage: Stage) -> None:
    """R17: with no poll to remind it."""
    seen = Recorder()
    await stage.put("a")
    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=3600)):
        await until(lambda: has_run(seen, 1))

        async def goes_back() -> bool:
            # Until the place behind it is written, there is nothing to go back from.
            await rewind(stage, "h")
            await Desk(stage.witness).wake_relays()
            return len(seen.seen) > 1

        await until(goes_back)


async def test_what_stands_still_goes_back_too(stage: Stage) -> None:
    """R7, R17: nothing is in its hands that it waits with, and it is told where to go on."""
    seen, wallet = Recorder(), uuid4()
    await stage.put("a", "b", of=wallet)
    await stage.drain(handler("h", seen))
    await stage.put("c", of=wallet)
    seen.fail("c", Unavailable("payments"))
    relay = stage.relay(handler("h", seen), at=None, poll_interval_seconds=0.1)
    async with serving(relay):
        await until(lambda: has_run(seen, 3))
        await rewind(stage, "h")
        await Desk(stage.witness).wake_relays()
        await until(lambda: has_run(seen, 6))
    assert seen.seen == ["a", "b", "c", "a", "b", "c"]


async def test_what_is_handled_and_not_yet_passed_comes_again_too(stage: Stage) -> None:
    """R6, R17: what stands before it is in hand, so that the place behind it is not written when it is gone back to."""
    away, done, whats = [True], asyncio.Event(), ["a", "b", "c", "d"]

    async def act(event: Any) -> None:
        if event.what == "a" and away:
            await done.wait()
            raise Unavailable("payments")
        await stage.enter(event.what)

    async def others_are_done() -> bool:
        return await stage.journal() == whats[1:]

    async def all_came() -> bool:
        return await stage.journal() == ["a", "b", "c", "c", "d", "d"]

    await stage.put(*whats)
    position = (await stage.event("c"))["position"]
    async with serving(stage.relay(handler("h", act), at=None, poll_interval_seconds=0.1)):
        await until(others_are_done)
        done.set()
        assert (await go_back(Desk(stage.witness), "h", position, again=True)).effects == 2
        away.clear()
        await until(all_came)


@pytest.mark.parametrize("trouble", [Reject("never"), ValueError("not today")])
async def test_what_is_unsettled_ahead_comes_again_at_its_turn(stage: Stage, trouble: Exception) -> None:
    """R4, R7: not by its delivery, and before what comes earlier; dead or not, its attempts begin anew."""
    seen, wallet = Recorder().fail("c", trouble), uuid4()
    await stage.put("a", "b", "c", "d", of=wallet)
    await stage.drain(handler("h", seen))
    assert set(await stage.deliveries()) == {("c", "h"), ("d", "h")}
    await rewind(stage, "h", (await stage.event("a"))["position"])
    await stage.drain(handler("h", seen), at=1000)
    assert seen.seen == ["a", "b", "c", "b", "c", "d"]
    assert await stage.deliveries() == {}


async def test_however_much_is_unsettled_ahead_all_of_it_comes_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R17: dropped in as many statements as it takes."""
    monkeypatch.setattr("outbox_kernel.infrastructure.relay.log.AHEAD_MAX", 1)
    seen = Recorder().fail("a").fail("b").fail("c")
    for what in "abc":
        await stage.put(what, what.upper(), of=uuid4())
    await stage.drain(handler("h", seen))
    assert len(await stage.deliveries()) == 6
    await rewind(stage, "h")
    await stage.drain(handler("h", seen))
    assert sorted(seen.seen) == sorted("abcaAbBcC")
    assert await stage.deliveries() == {}


async def test_what_is_unsettled_before_the_new_place_is_not_overtaken(stage: Stage) -> None:
    """R4."""
    seen, wallet = Recorder().fail("a"), uuid4()
    await stage.put("a", "b", "c", of=wallet)
    await stage.drain(handler("h", seen))
    await rewind(stage, "h", (await stage.event("a"))["position"])
    await stage.drain(handler("h", seen))
    assert seen.seen == ["a"]
    assert await stage.deliveries() == {("a", "h"): "waiting", ("b", "h"): "waiting", ("c", "h"): "waiting"}
    await stage.drain(handler("h", seen), at=1000)
    assert seen.seen == ["a", "a", "b", "c"]


async def test_a_cursor_goes_back_once_what_is_in_a_relays_hands_has_ended(stage: Stage) -> None:
    """R4: it would be handled beside what comes before it; and if it comes to wait again, it is read again, too."""
    seen, wallet = Recorder().fail("b"), uuid4()
    await stage.put("a", "b", "c", of=wallet)
    await stage.drain(handler("h", seen))
    await stage.witness.execute(
        "UPDATE outbox_deliveries SET status = 'leased', lease_relay = $1, lease_epoch = 1 WHERE position = 2",
        (await stage.log()).lease.relay,
    )
    await rewind(stage, "h")
    await stage.drain(handler("h", seen), at=10)
    assert await stage.deliveries() == {("b", "h"): "leased"}
    assert seen.seen == ["a", "b"]
    await stage.witness.execute(
        "UPDATE outbox_deliveries SET status = 'waiting', lease_relay = NULL, lease_epoch = NULL"
    )
    await stage.drain(handler("h", seen), at=11)
    assert seen.seen == ["a", "b", "a", "b", "c"]
    assert await stage.deliveries() == {}


async def test_what_was_skipped_is_not_handled_when_it_is_read_again(stage: Stage) -> None:
    """R6: nor does it stop what comes after it; an effect that commits nothing would have no receipt to stop it."""
    seen, wallet = Recorder().fail("b", Reject("never")), uuid4()
    await stage.put("a", "b", "c", of=wallet)
    await stage.drain(handler("h", seen))
    desk = Desk(stage.witness)
    await skip(desk, await choose_for_skip(desk, Selection(handler="h")))
    await stage.drain(handler("h", seen))
    await rewind(stage, "h")
    await stage.drain(handler("h", seen))
    assert seen.seen == ["a", "b", "c", "a", "c"]
    assert (await stage.deliveries())["b", "h"] == "skipped"
    assert await stage.events() == {"a": "delivered", "b": "delivered", "c": "delivered"}


async def test_what_is_skipped_before_it_is_read_is_not_handled(stage: Stage) -> None:
    """R4, R6: and what comes after it is, after what comes before."""
    seen, wallet = Recorder(), uuid4()
    await stage.drain(handler("h", seen))
    await stage.put("a", "b", "c", of=wallet)
    desk = Desk(stage.witness)
    event = (await stage.event("b"))["event_id"]
    await skip(desk, await choose_for_skip(desk, Selection(event, "h")))
    await stage.drain(handler("h", seen))
    assert seen.seen == ["a", "c"]
    assert await stage.events() == {"a": "delivered", "b": "delivered", "c": "delivered"}
    assert await stage.receipts() == [("b", "h", "skipped")]


async def test_what_is_skipped_far_ahead_is_not_handled_either(stage: Stage) -> None:
    """R4, R6: its delivery is there long before the handler comes to it, and again after it has gone back."""
    seen = Recorder()
    await stage.drain(handler("h", seen))
    whats = [f"{number}" for number in range(8)]
    await stage.put(*whats)
    desk = Desk(stage.witness)
    event = (await stage.event("7"))["event_id"]
    await skip(desk, await choose_for_skip(desk, Selection(event, "h")))
    for _ in range(2):
        await stage.drain(handler("h", seen), batch_size_max=1)
        assert await stage.deliveries() == {("7", "h"): "skipped"}
        await rewind(stage, "h")
    assert seen.seen == whats[:-1] * 2


async def test_what_is_retried_before_its_handler_comes_to_it_waits_for_its_turn(stage: Stage) -> None:
    """R4: its skip is as if it had never been."""
    seen = Recorder()
    await stage.drain(handler("h", seen))
    await stage.put("a", "b", "c", of=uuid4())
    desk = Desk(stage.witness)
    event = (await stage.event("c"))["event_id"]
    await skip(desk, await choose_for_skip(desk, Selection(event, "h")))
    assert (await retry(desk, await choose_for_retry(desk, Selection(event, "h")))).changed == 1
    await stage.drain(handler("h", seen), batch_size_max=1)
    assert seen.seen == ["a", "b", "c"]
    assert await stage.deliveries() == {("c", "h"): "done"}
    assert await stage.receipts() == []


async def dead(stage: Stage, what: str, takeovers: int) -> Selection:
    """Let the handler's delivery be dead of killing so many relays; return how an operator names it."""
    event = await stage.event(what)
    await stage.witness.execute(
        "UPDATE outbox_deliveries SET takeovers = $2, error_message = 'kills the process' "
        "WHERE event_id = $1 AND status = 'dead'",
        *(event["event_id"], takeovers),
    )
    return Selection(event["event_id"], "h")


async def gone_back(stage: Stage, h: Any) -> None:
    """Have its cursors go back to the beginning, and the first event be read again."""
    await rewind(stage, "h")
    await stage.relay(h, batch_size_max=1).run_once()


async def test_what_has_killed_processes_and_is_retried_ahead_waits_for_its_turn(stage: Stage) -> None:
    """R4, R5: what stands before it is read again first, and it runs once."""
    seen = Recorder().fail("d", Reject("never"))
    h = handler("h", seen)
    await stage.put("a", "b", "c", "d", of=uuid4())
    await stage.drain(h)
    meant = await dead(stage, "d", takeovers=3)
    await gone_back(stage, h)
    desk = Desk(stage.witness)
    assert (await retry(desk, await choose_for_retry(desk, meant))).changed == 1
    await stage.drain(h, batch_size_max=1)
    assert seen.seen == ["a", "b", "c", "d"] * 2


async def test_what_has_killed_processes_and_is_skipped_ahead_is_not_run(stage: Stage) -> None:
    """R4, R17: it keeps its turn, by which whoever reads it leaves it to that."""
    seen = Recorder().fail("c", Reject("never"))
    h = handler("h", seen)
    await stage.put("a", "b", "c", "d", of=uuid4())
    await stage.drain(h)
    meant = await dead(stage, "c", takeovers=3)
    await gone_back(stage, h)
    desk = Desk(stage.witness)
    assert (await skip(desk, await choose_for_skip(desk, meant))).changed == 1
    await stage.drain(h, batch_size_max=1)
    assert seen.seen == ["a", "b", "c", "a", "b", "d"]
    assert (await stage.deliveries())["c", "h"] == "skipped"


async def test_what_is_skipped_again_by_a_rewind_is_retried_only_when_asked_for(stage: Stage) -> None:
    """O1: as it was before its handler went back over it."""
    seen = Recorder().fail("b")
    h = handler("h", seen)
    await stage.put("a", "b")
    await stage.drain(h)
    desk = Desk(stage.witness)
    await skip(desk, await choose_for_skip(desk, Selection(handler="h")))
    await gone_back(stage, h)
    assert await choose_for_retry(desk, Selection(handler="h")) == []
    await stage.drain(h)
    assert seen.seen == ["a", "b", "a"]


async def test_what_is_retried_while_it_is_taken_to_be_skipped_waits_again(stage: Stage) -> None:
    """R4, O1: the claim still saw the receipt."""
    await stage.put("a")
    await stage.drain(handler("h", Recorder().fail("a")))
    await stage.witness.execute(
        "INSERT INTO outbox_receipts (event_id, handler, outcome) "
        "SELECT event_id, handler, 'skipped' FROM outbox_deliveries"
    )
    deliveries = Deliveries(await stage.log(at=60), carrying("h"))
    [row], _ = await deliveries._claim({}, [])  # noqa: SLF001 - as a relay takes it
    await stage.witness.execute("DELETE FROM outbox_receipts")
    deliveries.settle(Outcome(row, "h", row.turn, "skipped", attempts=row.attempts))
    await deliveries.write()
    assert (row.is_skipped, await stage.deliveries()) == (True, {("a", "h"): "waiting"})


async def is_waited_for(stage: Stage, connection: Any) -> bool:
    """Whether somebody waits for what this connection has locked."""
    asked = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))"
    return bool(await stage.witness.fetchval(asked, connection.get_server_pid()))


async def test_what_is_retried_in_the_moment_of_a_claim_is_not_overtaken(stage: Stage, late: Any) -> None:
    """R4, O1: the claim still sees its receipt, and takes it to be skipped behind the first of its turn."""
    seen = Recorder().fail("a")
    await stage.put("a", "b", "c", "d", of=uuid4())
    await stage.drain(handler("h", seen))
    event = (await stage.event("b"))["event_id"]
    await stage.witness.execute(
        "INSERT INTO outbox_receipts (event_id, handler, outcome) VALUES ($1, 'h', 'skipped')", event
    )
    desk = Desk(late, now=stage.at(1))
    async with late.transaction():
        chosen = await choose_for_retry(desk, Selection(event, "h"))
        assert (await retry(desk, chosen)).changed == 1
        claiming = asyncio.create_task(stage.drain(handler("h", seen), at=60))
        await until(lambda: is_waited_for(stage, late))
    await claiming
    assert seen.seen == ["a", "a", "b", "c", "d"]
    assert set((await stage.deliveries()).values()) == {"done"}


async def test_what_is_skipped_while_it_is_dropped_keeps_its_delivery(stage: Stage, late: Any) -> None:
    """R4, R17: or whoever reads the event would find no trace of the skip."""
    await stage.put("a")
    await stage.drain(handler("h", Recorder().fail("a")))
    await rewind(stage, "h")
    log, desk = await stage.log(at=60), Desk(late)
    which = {"names": ["h"] * 32, "shards": [*range(32)]}
    async with late.transaction():
        chosen = await choose_for_skip(desk, Selection((await stage.event("a"))["event_id"], "h"))
        assert (await skip(desk, chosen)).changed == 1
        dropping = asyncio.create_task(log.run(DROP_AHEAD, **which, ahead_max=10))
        await until(lambda: is_waited_for(stage, late))
    [dropped] = await dropping
    assert dropped["found"] == 1
    assert await stage.deliveries() == {("a", "h"): "waiting"}
    assert await stage.receipts() == [("a", "h", "skipped")]


async def test_what_is_skipped_twice_before_it_is_read_is_not_handled(stage: Stage) -> None:
    """R4, O1: whoever presses the button again means the same."""
    seen = Recorder()
    await stage.drain(handler("h", seen))
    await stage.put("a", "b", of=uuid4())
    desk = Desk(stage.witness)
    meant = Selection((await stage.event("b"))["event_id"], "h")
    for _ in range(2):
        assert (await skip(desk, await choose_for_skip(desk, meant))).changed == 1
    await stage.drain(handler("h", seen), batch_size_max=1)
    assert seen.seen == ["a"]
    assert await stage.deliveries() == {("b", "h"): "skipped"}


async def test_what_has_killed_processes_and_let_later_ones_pass_is_not_run_again(stage: Stage) -> None:
    """R3, R17: it would kill them in the middle of their work."""
    seen = Recorder().fail("b", Reject("never"))
    h = handler("h", seen, on_dead="continue")
    await stage.put("a", "b", "c", of=uuid4())
    await stage.drain(h)
    await dead(stage, "b", takeovers=3)
    await rewind(stage, "h")
    await stage.drain(h)
    assert seen.seen == ["a", "b", "c", "a", "c"]
    assert (await stage.deliveries())["b", "h"] == "skipped"


@pytest.mark.parametrize("on_dead", ["park", "continue"])
async def test_what_was_suspected_for_its_neighbours_sake_is_tried_again(stage: Stage, on_dead: str) -> None:
    """R3, R17: relays have vanished over it, and it was rejected for a reason of its own."""
    seen = Recorder().fail("b", Reject("not yet"))
    h = handler("h", seen, on_dead=on_dead)
    await stage.put("a", "b", of=uuid4())
    await stage.drain(h)
    await stage.witness.execute("UPDATE outbox_deliveries SET takeovers = 2")
    await rewind(stage, "h")
    del seen.troubles["b"]
    await stage.drain(h)
    assert seen.seen == ["a", "b", "a", "b"]


async def test_what_is_skipped_and_nobody_can_run_holds_up_nobody(stage: Stage) -> None:
    """R9, R17: newer code was taken back, and what it had written was skipped; its subscription goes back over it."""
    seen, wallet = Recorder(), uuid4()
    await stage.put("a", of=wallet)
    await stage.put("newer", of=wallet, version=2)
    await stage.put("b", of=wallet)
    await stage.drain(handler("h", seen))
    desk = Desk(stage.witness)
    meant = Selection((await stage.event("newer"))["event_id"], "h")
    assert (await skip(desk, await choose_for_skip(desk, meant))).changed == 1
    await stage.drain(handler("h", seen))
    await rewind(stage, "h")
    await stage.drain(handler("h", seen))
    assert seen.seen == ["a", "b"] * 2
    assert (await stage.deliveries())["newer", "h"] == "skipped"


async def test_what_is_retried_once_its_run_has_met_the_skip_is_handled(stage: Stage) -> None:
    """R4, O1: its relay takes it for done, and has not yet said so."""
    gates = {what: asyncio.Event() for what in ("a", "b")}
    begun = {what: asyncio.Event() for what in gates}

    async def act(event: Any) -> None:
        begun[event.what].set()
        await gates[event.what].wait()
        await stage.enter(event.what)

    desk = Desk(stage.witness)
    await stage.put(*gates)
    meant = Selection((await stage.event("b"))["event_id"], "h")
    relay = stage.relay(handler("h", act), at=None, poll_interval_seconds=0.1)
    async with serving(relay):
        await asyncio.gather(*(each.wait() for each in begun.values()))
        await skip(desk, await choose_for_skip(desk, meant))
        gates["b"].set()
        await until(lambda: has_in_hand(relay, 1))
        await retry(desk, await choose_for_retry(desk, meant))
        gates["a"].set()

        async def all_done() -> bool:
            return await stage.journal() == ["a", "b"]

        await until(all_done)


async def test_however_many_letters_let_later_ones_pass_all_are_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R17: so many at a time as a deadline allows."""
    monkeypatch.setattr("outbox_kernel.infrastructure.relay.log.AHEAD_MAX", 1)
    whats = ["a", "b", "c"]
    seen = Recorder()
    for what in whats:
        seen.fail(what, Reject("not yet"))
    h = handler("h", seen, on_dead="continue")
    await stage.put(*whats)
    await stage.drain(h)
    await rewind(stage, "h")
    for what in whats:
        del seen.troubles[what]
    await stage.drain(h)
    assert seen.seen == whats * 2
    assert (await stage.deliveries(), await stage.receipts()) == ({}, [])


@pytest.mark.parametrize("again", ["succeeds", "fails"])
async def test_a_dead_letter_that_let_later_ones_pass_is_tried_again(stage: Stage, again: str) -> None:
    """R7, R17: the receipt that kept a late run from its effect goes with it, and nobody takes it for a skip."""
    errors = {"b": [Reject("not yet"), *([Reject("never")] if again == "fails" else [])]}

    async def act(event: Any) -> None:
        if waiting := errors.get(event.what):
            raise waiting.pop(0)
        await stage.enter(event.what)

    h = handler("h", act, on_dead="continue")
    await stage.put("a", "b", "c", of=uuid4())
    await stage.drain(h)
    assert (await stage.deliveries())["b", "h"] == "dead"
    await rewind(stage, "h")
    await stage.drain(h)
    if again == "succeeds":
        assert await stage.journal() == ["a", "b", "c"]
        assert ("b", "h") not in await stage.deliveries()
    else:
        assert (await stage.status("b"))["error_message"] == "Reject: never"
        assert (await stage.deliveries())["b", "h"] == "dead"
        assert ("b", "h", "skipped") in await stage.receipts()


async def test_what_is_half_done_stays_so_when_what_comes_before_it_fails(stage: Stage) -> None:
    """R6, R7, R17: it is left behind that, and would meet the receipt of its first effect."""
    seen = Recorder()

    async def act(event: Any) -> None:
        await seen(event)
        if event.what == "b":
            await stage.enter("one half")
            await stage.enter("the other half")

    h = handler("h", act, on_dead="continue")
    await stage.put("a", "b", "c", of=uuid4())
    await stage.drain(h)
    assert (await stage.deliveries())["b", "h"] == "dead"
    seen.fail("a")
    await rewind(stage, "h")
    await stage.drain(h)
    await stage.drain(h, at=60)
    assert seen.seen == ["a", "b", "c", "a", "a", "c"]
    assert (await stage.status("b"))["error_message"].startswith("SecondCommit: ")
    assert await stage.events() == {"a": "delivered", "b": "dead", "c": "delivered"}


async def test_what_is_skipped_while_it_runs_is_not_tried_again(stage: Stage) -> None:
    """R6: it has been read already, and the delivery that its skip has written is the one it keeps."""
    seen, wallet = Recorder(), uuid4()

    async def act(event: Any) -> None:
        await seen(event)
        if event.what == "a":
            desk = Desk(stage.witness)
            chosen = await choose_for_skip(desk, Selection((await stage.event("a"))["event_id"], "h"))
            await skip(desk, chosen)
            raise ValueError("no")

    await stage.put("a", "b", of=wallet)
    await stage.drain(handler("h", act))
    assert seen.seen == ["a", "b"]
    assert (await stage.deliveries())["a", "h"] == "skipped"
    assert await stage.events() == {"a": "delivered", "b": "delivered"}


async def test_what_has_killed_processes_stays_dead(stage: Stage) -> None:
    """R7b: and what comes after it waits for it, whatever comes before it is handled again."""
    seen, wallet = Recorder().fail("b", Reject("never")), uuid4()
    await stage.put("a", "b", "c", of=wallet)
    await stage.drain(handler("h", seen))
    await dead(stage, "b", takeovers=5)
    await rewind(stage, "h")
    await stage.drain(handler("h", seen), at=1000)
    assert seen.seen == ["a", "b", "a"]
    assert (await stage.delivery("b", "h"))["status"] == "dead"
    assert (await stage.delivery("c", "h"))["status"] == "waiting"


async def test_what_had_a_delivery_and_fails_again_is_tried_again(stage: Stage) -> None:
    """R7: its attempts begin anew."""
    seen = Recorder().fail("a", times=2)
    await stage.put("a")
    for at in (0, 10, 30):
        await stage.drain(handler("h", seen), at=at)
    seen.fail("a")
    await rewind(stage, "h")
    await stage.drain(handler("h", seen), at=40)
    row = await stage.delivery("a", "h")
    assert (row["status"], row["attempts"]) == ("waiting", 1)
    await stage.drain(handler("h", seen), at=50)
    assert await stage.events() == {"a": "delivered"}
    assert len(seen.seen) == 5
