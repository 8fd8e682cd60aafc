"""A handler may get several events at once: one effect, a receipt for each, and who is at fault stands alone (R16)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest
from sqlalchemy import insert

from outbox_kernel.infrastructure.relay import OutboxRelay, timeouts
from outbox_kernel.kernel import RetrySchedule, current_delivery
from outbox_kernel.kernel.errors import Reject, RetryAfter, Unavailable
from outbox_kernel.kernel.handlers import HandlerRegistration
from outbox_kernel.kernel.stored import StoredEvent
from tests.domain import Noted, journal
from tests.relaying import Recorder, Stage, handler
from tests.serving import all_delivered, has_seen, serving
from tests.waiting import until


@attrs.define(eq=False)
class Loader:
    """Writes all of a batch into the journal in one commit, and fails over what it was told to."""

    stage: Stage
    runs: list[list[str]] = attrs.Factory(list)
    bad: dict[str, list[BaseException]] = attrs.Factory(dict)
    commits: bool = True

    async def __call__(self, events: Sequence[Any]) -> None:
        whats = [event.what for event in events]
        self.runs.append(whats)
        async with self.stage.uow() as uow:
            await uow.session.execute(insert(journal), [{"line": what} for what in whats])
            for what in whats:
                if errors := self.bad.get(what):
                    raise errors[0] if len(errors) == 1 else errors.pop(0)
            if self.commits:
                await uow.commit()

    @property
    def sizes(self) -> list[int]:
        return [len(each) for each in self.runs]


def batched(
    name: str, act: Callable[[Sequence[Any]], Any], batch: int = 200, **options: Any
) -> HandlerRegistration:
    """A handler that gets batches, made of a function."""
    return handler(name, act, Noted, batch=batch, **options)


async def put(stage: Stage, count: int, *, of: UUID | None = None) -> list[str]:
    whats = [f"{number:03}" for number in range(count)]
    for what in whats:
        await stage.put(what, of=of or uuid4())
    return whats


# --- all goes well ----------------------------------------------------------------------------------


async def test_it_gets_up_to_so_many_events_at_once_with_one_commit_and_a_receipt_each(stage: Stage) -> None:
    loader = Loader(stage)
    whats = await put(stage, 25)
    await stage.drain(batched("h", loader, 10))
    assert loader.runs == [whats[:10], whats[10:20], whats[20:]]
    assert await stage.journal() == whats
    assert await stage.receipts() == [(what, "h", "done") for what in whats]
    assert len(await transactions(stage)) == 3
    assert (await stage.deliveries(), set((await stage.events()).values())) == ({}, {"delivered"})


async def transactions(stage: Stage) -> set[int]:
    """Those that have written receipts."""
    return {row["xmin"] for row in await stage.witness.fetch("SELECT xmin::text FROM outbox_receipts")}


async def test_events_of_an_aggregate_come_in_their_order_and_many_together(stage: Stage) -> None:
    loader, wallets = Loader(stage), [uuid4(), uuid4()]
    for what in ("a1", "b1", "a2", "b2", "a3"):
        await stage.put(what, of=wallets[what[0] == "b"])
    await stage.drain(batched("h", loader, 4))
    assert loader.runs == [["a1", "b1", "a2", "b2"], ["a3"]]


async def test_a_batch_may_be_larger_than_what_a_relay_reads_at_once(stage: Stage) -> None:
    """R15: OUTBOX_BATCH_SIZE is the relay's own affair."""
    loader = Loader(stage)
    whats = await put(stage, 30)
    await stage.drain(batched("h", loader, 30), batch_size_max=5)
    assert loader.runs == [whats]


async def test_what_arrives_while_a_batch_runs_is_the_next_one(stage: Stage) -> None:
    """Nobody waits for a batch to be full."""
    go, begun, loader = asyncio.Event(), asyncio.Event(), Loader(stage)

    async def act(events: Sequence[Any]) -> None:
        begun.set()
        await go.wait()
        await loader(events)

    relay = stage.relay(batched("h", act), at=None, poll_interval_seconds=0.05)
    async with serving(relay):
        await relay.subscribed.wait()
        await stage.put("first", of=uuid4())
        await begun.wait()
        for what in ("a", "b", "c"):
            await stage.put(what, of=uuid4())
        await until(lambda: has_in_hand(relay, 4))
        go.set()
        await until(all_delivered(stage, 4))
    assert loader.runs == [["first"], ["a", "b", "c"]]


async def has_in_hand(relay: OutboxRelay, count: int) -> bool:
    shift = relay._shift  # noqa: SLF001 - nobody else can say
    return shift is not None and sum(each.in_hand for each in shift.subscribers["h"].readers) == count


async def test_batches_run_one_after_the_other_or_as_many_at_once_as_it_says(stage: Stage) -> None:
    """Each aggregate's in order all the same."""
    at_work = {"one": 0, "four": 0}
    most, seen = dict(at_work), dict[str, list[str]](one=[], four=[])

    def acting(name: str) -> Callable[[Sequence[Any]], Any]:
        async def act(events: Sequence[Any]) -> None:
            at_work[name] += 1
            most[name] = max(most[name], at_work[name])
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen[name] += [event.what for event in events]
            at_work[name] -= 1

        return act

    wallets = [uuid4() for _ in range(40)]
    for number in range(3):
        for index, wallet in enumerate(wallets):
            await stage.put(f"{index} {number}", of=wallet)
    await stage.drain(batched("one", acting("one"), 5), batched("four", acting("four"), 5, concurrency=4))
    assert most["one"] == 1
    assert 1 < most["four"] <= 4
    for whats in seen.values():
        assert len(whats) == 120
        for index in range(40):
            assert [what for what in whats if what.startswith(f"{index} ")] == [
                f"{index} {n}" for n in range(3)
            ]


async def test_it_may_be_a_function_in_a_thread_and_of_patterns(stage: Stage) -> None:
    """K5: of a pattern's events it gets each as it is stored."""
    seen: list[Any] = []

    async def act(events: Sequence[Any]) -> None:
        seen.extend(events)

    def note(events: Sequence[StoredEvent]) -> None:
        seen.append([event.payload["what"] for event in events])

    h = HandlerRegistration("h", note, (), patterns=("bank.*",), batch=10)
    await stage.put("a", "b", of=uuid4())
    await stage.drain(h, attrs.evolve(batched("other", act, 10), patterns=("bank.*",)))
    assert ["a", "b"] in seen
    assert [event.what for event in seen if isinstance(event, Noted)] == ["a", "b"]


async def test_what_it_commits_is_caused_by_the_last_event_of_the_batch(stage: Stage) -> None:
    """K10, K5: it cannot be by all of them."""
    told = []

    async def act(_events: Sequence[Any]) -> None:
        told.append(current_delivery())

    await stage.put("a", "b", of=uuid4())
    await stage.drain(batched("h", act))
    assert [(each.event_id, each.attempt) for each in told] == [((await stage.event("b"))["event_id"], 1)]


# --- one fails --------------------------------------------------------------------------------------


async def test_the_one_at_fault_is_found_charged_alone_and_all_others_succeed(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    loader = Loader(stage, bad={"037": [ValueError("no 037 today")]})
    whats = await put(stage, 100)
    await stage.drain(batched("h", loader, 100))
    assert loader.sizes[0] == 100
    assert ["037"] in loader.runs
    assert len(loader.runs) <= 2 * 7 + 1
    assert await stage.journal() == [what for what in whats if what != "037"]
    assert await stage.deliveries() == {("037", "h"): "waiting"}
    assert (await stage.delivery("037", "h"))["attempts"] == 1
    assert [each.levelname for each in caplog.records if each.levelno >= logging.WARNING] == ["WARNING"]


async def test_what_is_left_of_its_aggregate_gets_rows_behind_it(stage: Stage) -> None:
    """R4, R7: and everything else of the batch succeeds."""
    loader, wallet = Loader(stage, bad={"a2": [ValueError("no")]}), uuid4()
    await stage.put("a1", "a2", "a3", of=wallet)
    await stage.put("b1", "b2", of=uuid4())
    await stage.put("a4", of=wallet)
    await stage.drain(batched("h", loader))
    assert await stage.journal() == ["a1", "b1", "b2"]
    assert await stage.deliveries() == {(what, "h"): "waiting" for what in ("a2", "a3", "a4")}
    assert [(await stage.delivery(what, "h"))["attempts"] for what in ("a2", "a3", "a4")] == [1, 0, 0]
    loader.bad.clear()
    loader.runs.clear()
    await stage.drain(batched("h", loader), at=10)
    assert loader.runs == [["a2"], ["a3"], ["a4"]]
    assert set((await stage.events()).values()) == {"delivered"}


async def test_several_at_fault_are_each_found(stage: Stage) -> None:
    bad = {what: [ValueError("no")] for what in ("003", "004", "031")}
    loader = Loader(stage, bad=dict(bad))  # type: ignore[arg-type]
    whats = await put(stage, 32)
    await stage.drain(batched("h", loader, 32))
    assert await stage.journal() == [what for what in whats if what not in bad]
    assert await stage.deliveries() == {(what, "h"): "waiting" for what in bad}


async def test_a_batch_that_fails_once_charges_nobody(stage: Stage) -> None:
    """Its halves succeed, so that none of its events is at fault."""
    loader = Loader(stage, bad={"001": [ValueError("once"), *([ValueError("again")] * 0)]})

    async def act(events: Sequence[Any]) -> None:
        try:
            await loader(events)
        finally:
            loader.bad.clear()

    whats = await put(stage, 4)
    await stage.drain(batched("h", act))
    assert (loader.sizes, await stage.journal(), await stage.deliveries()) == ([4, 2, 2], whats, {})


@pytest.mark.parametrize(
    ("said", "status", "attempts"), [(Reject("never"), "dead", 1), (RetryAfter(30), "waiting", 1)]
)
async def test_what_a_handler_says_counts_once_the_event_stands_alone(
    stage: Stage, said: Exception, status: str, attempts: int
) -> None:
    """K5: of several nobody can say whom it means."""
    loader = Loader(stage, bad={"001": [said]})
    await put(stage, 4)
    await stage.drain(batched("h", loader))
    row = await stage.delivery("001", "h")
    assert (row["status"], row["attempts"]) == (status, attempts)
    assert await stage.journal() == ["000", "002", "003"]


async def test_an_event_that_cannot_be_decoded_fails_alone(stage: Stage) -> None:
    """R9."""
    loader = Loader(stage)
    await stage.put("a", of=uuid4())
    await stage.put("odd", of=uuid4(), payload='{"what": 5}')
    await stage.put("c", of=uuid4())
    await stage.drain(batched("h", loader))
    assert await stage.journal() == ["a", "c"]
    assert list((await stage.deliveries()).values()) == ["waiting"]


async def test_one_that_is_dead_can_be_passed(stage: Stage) -> None:
    """R7: on_dead="continue", within the batch that it failed in."""
    loader, wallet = Loader(stage, bad={"b": [Reject("never")]}), uuid4()
    await stage.put("a", "b", "c", of=wallet)
    h = batched("h", loader, on_dead="continue")
    await stage.drain(h)
    await stage.drain(h)
    assert await stage.journal() == ["a", "c"]
    assert await stage.events() == {"a": "delivered", "b": "dead", "c": "delivered"}


async def test_an_outage_charges_nobody_and_is_probed_with_one_event(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R7: then batches go on as they were, in order."""
    schedule = RetrySchedule((0.01,), jitter_share=0)
    monkeypatch.setattr("outbox_kernel.infrastructure.relay.outages.EXPONENTIAL", schedule)
    loader, is_away = Loader(stage), [True]

    async def act(events: Sequence[Any]) -> None:
        if is_away[0]:
            loader.runs.append([event.what for event in events])
            raise Unavailable("payments")
        await loader(events)

    whats = await put(stage, 20, of=uuid4())
    async with serving(stage.relay(batched("h", act, 20), at=None)):
        await until(lambda: has_tried(loader, 5))
        assert await stage.deliveries() == {}
        is_away[0] = False
        known = len(loader.runs)
        await until(all_delivered(stage, 20))
    assert {tuple(each) for each in loader.runs[1:known]} == {("000",)}
    assert await stage.journal() == whats
    assert (await stage.deliveries(), loader.runs[-1]) == ({}, whats[1:])


async def has_tried(loader: Loader, times: int) -> bool:
    return len(loader.runs) >= times


# --- time -------------------------------------------------------------------------------------------


async def test_a_batch_that_takes_too_long_has_failed_and_is_halved(stage: Stage) -> None:
    """R8: the time is one of a run."""
    loader = Loader(stage)

    async def act(events: Sequence[Any]) -> None:
        if any(event.what == "002" for event in events):
            loader.runs.append([event.what for event in events])
            await asyncio.Event().wait()
        await loader(events)

    await put(stage, 4)
    await stage.drain(batched("h", act, timeout_seconds=0.2))
    assert [each for each in loader.runs if "002" in each] == [
        ["000", "001", "002", "003"],
        ["002", "003"],
        ["002"],
    ]
    assert await stage.journal() == ["000", "001", "003"]
    row = await stage.witness.fetchrow("SELECT attempts, error_message FROM outbox_deliveries")
    assert tuple(row) == (1, "TimeoutError: no end after 0.2 s")


async def test_a_batch_that_ignores_its_end_leaves_each_to_run_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R8: uncharged, since nobody can say who is at fault."""
    monkeypatch.setattr(timeouts, "GRACE_SECONDS", 0.1)
    go, runs = asyncio.Event(), []

    async def act(events: Sequence[Any]) -> None:
        runs.append([event.what for event in events])
        while len(runs) == 1 and not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    await put(stage, 3)
    async with serving(stage.relay(batched("h", act, timeout_seconds=0.1), at=None)):
        await until(lambda: are_left(stage, 3))
        assert {(await stage.delivery(*key))["attempts"] for key in await stage.deliveries()} == {0}
        go.set()
        await until(all_delivered(stage, 3))
    assert runs == [["000", "001", "002"], ["000"], ["001"], ["002"]]


async def are_left(stage: Stage, count: int) -> bool:
    return len(await stage.deliveries()) == count


async def test_a_slow_batch_gets_no_rows_and_holds_up_nobody_else(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R5: what follows for that handler waits in hand."""
    monkeypatch.setattr(timeouts, "SLOW_SECONDS", 0.05)
    go, begun, other, loader = asyncio.Event(), asyncio.Event(), Recorder(), Loader(stage)

    async def act(events: Sequence[Any]) -> None:
        begun.set()
        await go.wait()
        await loader(events)

    whats = await put(stage, 5)
    relay = stage.relay(batched("h", act), handler("other", other), at=None, poll_interval_seconds=0.05)
    async with serving(relay):
        await begun.wait()
        for number in range(3):
            await stage.put(f"later {number}", of=uuid4())
            await until(lambda: has_seen(other, {f"later {number}"}))  # noqa: B023 - awaited at once
        await asyncio.wait_for(watched(relay), 10)
        assert await stage.deliveries() == {}
        go.set()
        await until(all_delivered(stage, 8))
    assert [what for each in loader.runs for what in each] == [
        *whats,
        *(f"later {number}" for number in range(3)),
    ]
    assert await stage.deliveries() == {}


async def watched(relay: OutboxRelay) -> None:
    """Return once the relay has looked at a run that has been slow for a while."""
    shift = relay._shift  # noqa: SLF001 - nobody else can say
    assert shift is not None
    [(_, run)] = shift.subscribers["h"].workers.running
    run.started -= 1
    shift.watch_once()


@pytest.mark.parametrize("grace", [60.0, 0.0], ids=["in time", "not in time"])
async def test_a_relay_that_stops_lets_a_batch_end_or_leaves_it_uncharged(stage: Stage, grace: float) -> None:
    """R11."""
    go, begun, loader = asyncio.Event(), asyncio.Event(), Loader(stage)

    async def act(events: Sequence[Any]) -> None:
        begun.set()
        await go.wait()
        await loader(events)

    whats = await put(stage, 6)
    relay = stage.relay(batched("h", act, 4), at=None, grace_seconds=grace)
    async with serving(relay):
        await begun.wait()
        relay.stop()
        if grace:
            go.set()
    assert await stage.journal() == (whats if grace else [])
    go.set()
    await stage.drain(batched("h", act, 4))
    assert await stage.journal() == whats
    assert {(await stage.delivery(*key))["attempts"] for key in await stage.deliveries()} <= {0}


# --- effects ----------------------------------------------------------------------------------------


async def test_a_batch_of_which_some_have_receipts_runs_over_the_others(stage: Stage) -> None:
    """R6: as after a crash between the commit and the progress that was to follow; other events have come since."""
    loader = Loader(stage)
    whats = await put(stage, 6)
    await stage.drain(batched("h", loader, 6))
    await stage.rewind()
    for what in ("x", "y"):
        await stage.put(what, of=uuid4())
    loader.runs.clear()
    await stage.drain(batched("h", loader, 100))
    assert loader.runs == [[*whats, "x", "y"], ["x", "y"]]
    assert await stage.journal() == [*whats, "x", "y"]
    assert (await stage.deliveries(), set((await stage.events()).values())) == ({}, {"delivered"})


async def test_all_of_them_with_receipts_are_done(stage: Stage) -> None:
    """R6: nothing happens twice."""
    loader = Loader(stage)
    whats = await put(stage, 6)
    await stage.drain(batched("h", loader, 6))
    await stage.rewind()
    loader.runs.clear()
    await stage.drain(batched("h", loader, 6))
    assert (loader.runs, await stage.journal(), await stage.deliveries()) == ([whats], whats, {})


async def test_a_batch_that_fails_over_what_has_receipts_runs_over_the_others(stage: Stage) -> None:
    """R6: it never comes to the commit that their receipts would refuse."""
    loader = Loader(stage)
    whats = await put(stage, 4)
    await stage.drain(batched("h", loader))
    await stage.rewind()
    loader.runs.clear()
    loader.bad = {what: [ValueError("it is loaded already")] for what in whats}
    await stage.put("x", of=uuid4())
    await stage.drain(batched("h", loader))
    assert loader.runs == [[*whats, "x"], ["x"]]
    assert (await stage.deliveries(), set((await stage.events()).values())) == ({}, {"delivered"})


async def test_receipts_under_a_former_name_count(stage: Stage) -> None:
    """R6: `renamed_from=`."""
    loader = Loader(stage)
    whats = await put(stage, 3)
    await stage.drain(batched("old", loader))
    await stage.drain(batched("new", loader, renamed_from="old"))
    await stage.rewind()
    await stage.drain(batched("new", loader, renamed_from="old"))
    assert await stage.journal() == whats


async def test_a_second_commit_in_one_run_makes_all_of_the_batch_dead(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """R6: the first effect is that of all of them, so that to halve them would hide it."""
    loader = Loader(stage)

    async def act(events: Sequence[Any]) -> None:
        await loader(events)
        await stage.enter("second")

    whats = await put(stage, 3)
    await stage.drain(batched("h", act))
    assert await stage.journal() == whats
    assert await stage.deliveries() == {(what, "h"): "dead" for what in whats}
    assert [each.levelname for each in caplog.records if each.levelno >= logging.CRITICAL] == ["CRITICAL"]


async def test_an_atomic_batch_is_one_transaction_of_all_it_does(stage: Stage) -> None:
    """R6."""
    bad = {"001"}

    async def act(events: Sequence[Any]) -> None:
        for event in events:
            await stage.enter(event.what)
        if bad & {event.what for event in events}:
            raise ValueError("no")

    whats = await put(stage, 4)
    await stage.drain(batched("h", act, atomic=True))
    assert await stage.journal() == [what for what in whats if what != "001"]
    assert await stage.receipts() == [(what, "h", "done") for what in whats if what != "001"]


async def test_what_fails_after_its_commit_counts_as_done_for_all(stage: Stage) -> None:
    """R6."""
    loader = Loader(stage)

    async def act(events: Sequence[Any]) -> None:
        await loader(events)
        raise ValueError("late")

    whats = await put(stage, 3)
    await stage.drain(batched("h", act))
    assert (loader.sizes, await stage.journal()) == ([3], whats)
    assert (await stage.deliveries(), set((await stage.events()).values())) == ({}, {"delivered"})


async def test_a_handler_without_an_effect_here_is_halved_all_the_same(stage: Stage) -> None:
    """R6: what is not at fault is at least once."""
    loader = Loader(stage, bad={"002": [ValueError("no")]}, commits=False)
    await put(stage, 4)
    await stage.drain(batched("h", loader))
    assert loader.runs == [["000", "001", "002", "003"], ["000", "001"], ["002", "003"], ["002"], ["003"]]
    assert await stage.deliveries() == {("002", "h"): "waiting"}


# --- bounds, deliveries, suspects -------------------------------------------------------------------


async def test_a_rate_counts_runs_and_not_events(stage: Stage) -> None:
    loader = Loader(stage)
    whats = await put(stage, 40)
    await stage.drain(batched("h", loader, 20, rate="1/s", concurrency=1))
    assert (loader.sizes, await stage.journal()) == ([20, 20], whats)


async def test_what_may_have_killed_relays_runs_alone(stage: Stage) -> None:
    """R7b."""
    loader = Loader(stage)
    await stage.drain(batched("h", loader))
    whats = await put(stage, 3)
    await stage.witness.execute("UPDATE outbox_cursors SET takeovers = 2")
    await stage.drain(batched("h", loader))
    assert sorted(loader.runs) == [[what] for what in whats]


async def test_a_lost_lease_leaves_a_batch_to_the_next(stage: Stage) -> None:
    """R3: what was under way may not commit any more."""
    go, begun, loader = asyncio.Event(), asyncio.Event(), Loader(stage)

    async def act(events: Sequence[Any]) -> None:
        begun.set()
        await go.wait()
        await loader(events)

    whats = await put(stage, 5)
    async with serving(stage.relay(batched("h", act), at=None, poll_interval_seconds=0.05)):
        await begun.wait()
        await stage.witness.execute("UPDATE outbox_relays SET epoch = epoch + 1000")
        go.set()
        await until(all_delivered(stage, 5))
    assert await stage.journal() == whats
    assert await stage.receipts() == [(what, "h", "done") for what in whats]
