"""Whatever a handler does in its own coroutine, it does to itself alone (R5, R8)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from decimal import ROUND_DOWN, Context, Decimal, DefaultContext, getcontext
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.errors import HandlerNotBuilt, RunOver
from outbox_kernel.infrastructure.relay import timeouts, workers
from outbox_kernel.kernel import RetrySchedule, current_delivery, event_context
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.domain import Noted
from tests.relaying import Recorder, Stage, handler
from tests.waiting import until

SOON = 0.02
ONCE_MORE = RetrySchedule((0,), dead_at=2)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is slow or given up after seconds is so at once."""
    monkeypatch.setattr(timeouts, "SLOW_SECONDS", SOON)
    monkeypatch.setattr(timeouts, "GRACE_SECONDS", SOON)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        asyncio.CancelledError(),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        StopIteration(),
        TimeoutError(),
        Unprintable(),
        ExceptionGroup("two", [ValueError("x"), KeyError("y")]),
        ValueError("NUL \0 and a lone surrogate \ud800"),
        ValueError("long " * 10_000),
    ],
    ids=lambda error: type(error).__name__ + str(len(error.args and str(error.args[0]))),
)
async def test_whatever_a_handler_raises_is_its_own_failure(stage: Stage, error: BaseException) -> None:
    """R8."""
    bad, good = Recorder().fail("a", error), Recorder()
    wallet = uuid4()
    await stage.put("a", "b", of=wallet)
    await stage.put("c")
    await stage.drain(handler("bad", bad), handler("good", good))
    assert (sorted(bad.seen), sorted(good.seen)) == (["a", "c"], ["a", "b", "c"])
    delivery = await stage.delivery("a", "bad")
    assert (delivery["status"], delivery["attempts"]) == ("waiting", 1)
    assert (await stage.status("a"))["error_message"]
    await stage.drain(handler("bad", bad), handler("good", good), at=10)
    assert await stage.events() == {"a": "delivered", "b": "delivered", "c": "delivered"}


@pytest.mark.parametrize("as_delivery", [False, True])
async def test_a_handler_that_cancels_its_own_task_has_failed(stage: Stage, as_delivery: bool) -> None:
    """R8."""
    seen = Recorder()
    if as_delivery:
        seen.fail("a")

    async def act(event: Any) -> None:
        await seen(event)
        if len(seen.seen) == 1 + as_delivery:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    wallet = uuid4()
    await stage.put("a", "b", of=wallet)
    await stage.drain(handler("h", act))
    await stage.drain(handler("h", act), at=10)
    await stage.drain(handler("h", act), at=20)
    assert await stage.events() == {"a": "delivered", "b": "delivered"}
    assert seen.seen == ["a"] * (2 + as_delivery) + ["b"]
    assert (await stage.delivery("a", "h"))["attempts"] == 1 + as_delivery


async def test_a_handler_that_the_container_cannot_make_at_run_time_has_failed(stage: Stage) -> None:
    """R9."""

    class Clerk:
        pass

    class Asking:
        def __init__(self, clerk: Clerk) -> None:
            self.clerk = clerk

        async def handle(self, event: Noted) -> None:
            seen.append(event.what)

    Asking.__init__.__annotations__["clerk"] = Clerk
    seen: list[str] = []
    made: list[int] = []

    def make() -> Clerk:
        made.append(1)
        if len(made) > 1:  # the first is made at the start, to see that it can be
            raise OSError("no clerk in the house")
        return Clerk()

    stage.container[Clerk] = make
    asking = HandlerRegistration("asking", Asking, (Noted,))
    good = Recorder()
    await stage.put("b")
    await stage.relay(asking, handler("good", good)).run_once()
    assert (seen, good.seen) == ([], ["b"])
    assert (await stage.status("b"))["error_message"] == "OSError: no clerk in the house"
    assert await stage.deliveries() == {("b", "asking"): "waiting"}


async def test_a_handler_that_cannot_be_made_at_start_is_one_sentence(stage: Stage) -> None:
    """R14."""

    class Asking:
        def __init__(self) -> None:
            raise OSError("no clerk in the house")

        async def handle(self, event: Noted) -> None: ...

    with pytest.raises(HandlerNotBuilt, match="handler 'asking' cannot be made"):
        await stage.drain(HandlerRegistration("asking", Asking, (Noted,)))


# --- slow, hanging, deaf ---------------------------------------------------------------------------------


async def test_a_slow_handler_leaves_the_first_pass_and_the_others_go_on(stage: Stage, hasty: None) -> None:
    """R4: its aggregate's later events wait for it alone."""
    go, wallet = asyncio.Event(), uuid4()
    slow_seen, quick = [], Recorder()

    async def slow(event: Any) -> None:
        slow_seen.append(event.what)
        if event.what == "a":
            await go.wait()

    quick_done = asyncio.Event()

    async def then(event: Any) -> None:
        await quick(event)
        if event.what == "b":
            quick_done.set()

    await stage.put("a", "b", of=wallet)
    running = asyncio.create_task(stage.drain(handler("1slow", slow), handler("2quick", then), concurrency=2))
    await quick_done.wait()
    assert slow_seen == ["a"]
    await until(lambda: is_leased(stage))
    go.set()
    await running
    assert (slow_seen, quick.seen) == (["a", "b"], ["a", "b"])
    assert await stage.events() == {"a": "delivered", "b": "delivered"}
    assert set((await stage.deliveries()).values()) == {"done"}


async def is_leased(stage: Stage) -> bool:
    return "leased" in (await stage.deliveries()).values()


async def test_a_slow_handler_is_shown_as_leased_while_it_runs(stage: Stage, hasty: None) -> None:
    """R4, O1."""
    go = asyncio.Event()

    async def slow(event: Any) -> None:
        await go.wait()

    async def is_shown() -> bool:
        return await stage.deliveries() == {("a", "slow"): "leased"}

    await stage.put("a")
    running = asyncio.create_task(stage.drain(handler("slow", slow)))
    await until(is_shown)
    assert await stage.events() == {"a": "open"}
    go.set()
    await running
    assert await stage.events() == {"a": "delivered"}


async def test_a_slow_handler_that_fails_is_tried_again(stage: Stage, hasty: None) -> None:
    """R7: and what came after it waits its turn."""
    seen, wallet = Recorder(), uuid4()

    async def slow(event: Any) -> None:
        seen.seen.append(event.what)
        if len(seen.seen) == 1:
            with suppress(TimeoutError):
                async with asyncio.timeout(SOON * 10):
                    await asyncio.Event().wait()
            raise ValueError("slow and wrong")

    await stage.put("a", "b", of=wallet)
    await stage.drain(handler("h", slow))
    assert seen.seen == ["a"]
    await stage.drain(handler("h", slow), at=10)
    assert seen.seen == ["a", "a", "b"]
    assert await stage.events() == {"a": "delivered", "b": "delivered"}


async def test_a_handler_that_hangs_is_cancelled_at_its_timeout(stage: Stage) -> None:
    """R8."""

    async def hang(event: Any) -> None:
        await asyncio.Event().wait()

    good = Recorder()
    await stage.put("a", "b", of=uuid4())
    await stage.drain(handler("hang", hang, timeout_seconds=SOON), handler("good", good))
    delivery = await stage.delivery("a", "hang")
    assert (delivery["status"], delivery["attempts"]) == ("waiting", 1)
    assert (await stage.status("a"))["error_message"] == f"TimeoutError: no end after {SOON:g} s"
    assert good.seen == ["a", "b"]


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("swallows", [False, True])
async def test_a_handler_commits_nothing_in_its_clean_up_once_its_time_is_over(
    stage: Stage, swallows: bool, atomic: bool
) -> None:
    """R6, R8: whatever it makes of the refusal, its next run has the effect."""

    async def act(event: Any) -> None:
        if current_delivery().attempt > 1:
            await stage.enter("whole")
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                await stage.enter("rest")
            except RunOver:
                if not swallows:
                    raise

    await stage.put("a")
    await stage.drain(handler("h", act, timeout_seconds=SOON, atomic=atomic))
    assert (await stage.status("a"))["error_message"] == f"TimeoutError: no end after {SOON:g} s"
    assert await stage.journal() == []
    await stage.drain(handler("h", act, atomic=atomic), at=10)
    assert await stage.journal() == ["whole"]
    assert await stage.receipts() == [("a", "h", "done")]


async def test_a_handler_that_has_committed_before_its_time_is_over_has_succeeded(stage: Stage) -> None:
    """R6: what has committed is no failure, however the run ends."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)
        await asyncio.Event().wait()

    await stage.put("a")
    await stage.drain(handler("h", act, timeout_seconds=SOON))
    assert await stage.events() == {"a": "delivered"}
    assert await stage.receipts() == [("a", "h", "done")]


async def test_what_swallows_its_timeout_harms_nothing_after_it(stage: Stage, hasty: None) -> None:
    """R8: neither the rest of its turn nor the next failure in it."""
    seen, wallet = Recorder().fail("a"), uuid4()
    seen.fail("b")

    async def act(event: Any) -> None:
        await seen(event)
        if event.what == "a":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return

    h = handler("h", act, timeout_seconds=SOON)
    await stage.put("a", "b", "c", of=wallet)
    await stage.drain(h)
    await stage.drain(h, at=10)
    assert seen.seen == ["a", "a", "b"]
    await stage.drain(h, at=20)
    assert seen.seen == ["a", "a", "b", "b", "c"]
    assert set((await stage.events()).values()) == {"delivered"}


@pytest.mark.parametrize("as_delivery", [False, True])
async def test_a_handler_that_ignores_its_cancellation_is_given_up(
    stage: Stage, hasty: None, as_delivery: bool
) -> None:
    """R8: its outcome is decided without it, and it may no longer commit."""
    go, wallet = asyncio.Event(), uuid4()
    refused: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    seen = Recorder()
    if as_delivery:
        seen.fail("a")

    async def deaf(event: Any) -> None:
        await seen(event)
        if len(seen.seen) > 1 + as_delivery:
            return
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        try:
            await stage.enter("too late")
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            refused.set_result(error)

    h = handler("h", deaf, timeout_seconds=SOON)
    await stage.put("a", "b", of=wallet)
    await stage.drain(h)
    if as_delivery:
        await stage.drain(h, at=10)
    delivery = await stage.delivery("a", "h")
    assert (delivery["status"], delivery["attempts"]) == ("waiting", 1 + as_delivery)
    assert (await stage.delivery("b", "h"))["status"] == "waiting"
    assert "ignored its cancellation" in (await stage.status("a"))["error_message"]
    await stage.drain(h, at=20)
    assert seen.seen == ["a"] * (2 + as_delivery) + ["b"]
    go.set()
    assert "given this run up" in str(await refused)
    assert await stage.journal() == []
    assert set((await stage.events()).values()) == {"delivered"}


@pytest.mark.parametrize("after", ["returns", "fails"])
async def test_a_handler_that_cancels_its_own_task_harms_only_itself(stage: Stage, after: str) -> None:
    """R8: the cancellation it asked for, and did not wait for, must not reach the next run."""

    async def cancel(event: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if after == "fails":
            raise ValueError("and fails")

    async def wait(event: Any) -> None:
        await asyncio.sleep(0)

    await stage.put("a", of=uuid4())
    await stage.drain(handler("1cancel", cancel), handler("2wait", wait))
    expected = {} if after == "returns" else {("a", "1cancel"): "waiting"}
    assert await stage.deliveries() == expected


async def test_a_cancellation_that_comes_too_late_for_its_own_run_leaves_nothing_undone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R8: as by a time limit of the handler's own, which it has not taken back; it meets the relay between two runs."""
    monkeypatch.setattr(workers, "LOOP_SECONDS_MAX", 0.0)  # so that the loop may go round after each run
    seen: list[str] = []

    async def act(event: Any) -> None:
        seen.append(event.what)
        task = asyncio.current_task()
        assert task is not None
        if event.what == "b":
            # In the turn of the loop after the one in which a run's own cancellation is borne.
            loop = asyncio.get_running_loop()
            loop.call_soon(lambda: loop.call_soon(task.cancel))

    await stage.put("a", "b", "c", "d", of=uuid4())
    await stage.drain(handler("h", act))
    assert seen == ["a", "b", "c", "d"]
    assert set((await stage.events()).values()) == {"delivered"}


async def test_a_run_that_was_given_up_is_told_of_once(
    stage: Stage, hasty: None, caplog: pytest.LogCaptureFixture
) -> None:
    """R8: whatever it comes to in the end."""
    go, ended = asyncio.Event(), asyncio.Event()

    async def deaf(event: Any) -> None:
        while not go.is_set():
            with suppress(asyncio.CancelledError):
                await go.wait()
        ended.set()
        raise ValueError("late")

    await stage.put("a")
    await stage.drain(handler("h", deaf, timeout_seconds=SOON))
    go.set()
    await ended.wait()
    await asyncio.sleep(0)
    told = [each.getMessage() for each in caplog.records if "failed over event" in each.getMessage()]
    assert len(told) == 1
    assert "ignored its cancellation" in told[0]


# --- what a handler leaves behind ------------------------------------------------------------------------

left: ContextVar[str] = ContextVar("left", default="nothing")


async def test_what_a_handler_leaves_in_its_context_no_other_finds(stage: Stage) -> None:
    """R5: not the next handler, nor the next event, nor its own retry."""
    found: list[str] = []

    async def leave(event: Any) -> None:
        found.append(left.get())
        left.set(event.what)
        event_context(user_id="mallory").__enter__()
        if found[1:] == []:
            raise ValueError("once more")

    async def look(event: Any) -> None:
        found.append(left.get())

    await stage.put("a", "b", of=uuid4())
    await stage.put("c")
    for at in (0, 10):
        await stage.drain(handler("1leave", leave), handler("2look", look), at=at)
    assert len(found) == 7
    assert set(found) == {"nothing"}


async def test_a_handler_that_calculates_needs_no_worker_of_its_own_for_each_event(stage: Stage) -> None:
    """R5: decimals have a context, and to have one is nothing that another handler could find."""
    workers: set[asyncio.Task[Any] | None] = set()

    async def divide(_event: Any) -> None:
        workers.add(asyncio.current_task())
        Decimal(1) / Decimal(3)

    await stage.put(*map(str, range(20)), of=uuid4())
    await stage.drain(handler("divide", divide))
    assert len(workers) == 1


@pytest.mark.parametrize("change", [{"prec": 2}, {"rounding": ROUND_DOWN}, {"capitals": 0}])
async def test_how_a_handler_calculates_is_its_own_affair(stage: Stage, change: dict[str, Any]) -> None:
    """R5: a context of decimals that is changed in its place is nobody else's, either."""
    found: list[Context] = []

    async def change_it(_event: Any) -> None:
        found.append(getcontext().copy())
        for name, value in change.items():
            setattr(getcontext(), name, value)

    await stage.put("a", "b", "c", of=uuid4())
    await stage.drain(handler("change", change_it))
    for name in change:
        assert [getattr(each, name) for each in found] == [getattr(DefaultContext, name)] * 3
