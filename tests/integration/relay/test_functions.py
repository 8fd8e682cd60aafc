"""Handlers that are functions: given what they ask for, in a thread where they are not `async` (K5, R6, R8)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, sessionmaker

from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.infrastructure.errors import HandlerNotBuilt
from outbox_kernel.infrastructure.outbox import bus_of
from outbox_kernel.infrastructure.outbox.receipts import HandlerRun, current_run
from outbox_kernel.infrastructure.relay import timeouts
from outbox_kernel.kernel import current_delivery, current_headers
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.domain import Announced, Noted, journal
from tests.drivers import Driver
from tests.relaying import Recorder, Stage, handler
from tests.serving import has_looked_everywhere, serving
from tests.waiting import until

SOON = 0.02


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is slow or given up after seconds is so at once."""
    monkeypatch.setattr(timeouts, "SLOW_SECONDS", SOON)


@attrs.frozen
class Shelf:
    session: AsyncSession


def of(function: Any, name: str = "f", **options: Any) -> HandlerRegistration:
    return HandlerRegistration(name, function, (Noted,), **options)


async def test_a_function_gets_what_it_asks_for_in_one_scope_with_one_session(stage: Stage) -> None:
    """K5: as a handler class does."""
    pairs: list[tuple[AsyncSession, AsyncSession]] = []
    stage.container[SqlAlchemyUnitOfWork] = lambda: stage.uow()  # noqa: PLW0108 - a method would be taken for the thing itself

    async def note(
        event: Noted, session: AsyncSession, *, shelf: Shelf, uow: SqlAlchemyUnitOfWork, twice: bool = False
    ) -> None:
        pairs.append((session, shelf.session))
        async with uow:
            await uow.session.execute(insert(journal).values(line=f"{event.what} {twice}"))
            await uow.commit()

    await stage.put("a", "b")
    await stage.drain(of(note))
    assert await stage.journal() == ["a False", "b False"]
    assert [one is other for one, other in pairs] == [True, True]
    assert pairs[0][0] is not pairs[1][0]
    assert await stage.receipts() == [("a", "f", "done"), ("b", "f", "done")]


async def test_a_function_that_is_not_async_runs_in_a_thread_with_all_that_belongs_to_its_run(
    stage: Stage,
) -> None:
    """K5, K10: its delivery, the headers of what it records, and the run whose receipt it writes."""
    seen: list[Any] = []

    def note(event: Noted, mailer: Recorder) -> None:
        delivery, run = current_delivery(), current_run()
        assert run is not None
        seen.extend([event.what, delivery.attempt, delivery.headers, run.handler])
        seen.extend([current_headers()["causation_id"] == str(delivery.event_id), type(mailer)])
        seen.append(threading.current_thread() is threading.main_thread())

    await stage.put("a", headers={"user_id": "u-1"})
    await stage.drain(of(note))
    assert seen == ["a", 1, {"user_id": "u-1"}, "f", True, Recorder, False]
    assert await stage.events() == {"a": "delivered"}


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt(), StopIteration()],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_function_raises_in_its_thread_is_its_own_failure(
    stage: Stage, error: BaseException
) -> None:
    """R8."""
    good, seen = Recorder(), []

    def bad(event: Noted) -> None:
        seen.append(event.what)
        if len(seen) == 1:
            raise error

    await stage.put("a")
    for at in (0, 10):
        await stage.drain(of(bad), handler("good", good), at=at)
    assert (seen, good.seen) == (["a", "a"], ["a"])
    assert await stage.events() == {"a": "delivered"}


@pytest.mark.usefixtures("hasty")
async def test_a_function_that_hangs_in_its_thread_has_failed_and_may_not_commit_any_more(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """R8: a thread cannot be ended; it is left behind, and others go on."""
    gate, runs, good = threading.Event(), list[HandlerRun | None](), Recorder()

    def hang(event: Noted) -> None:
        runs.append(current_run())
        gate.wait()

    await stage.put("a")
    await stage.drain(of(hang, timeout_seconds=SOON), handler("good", good))
    delivery = await stage.delivery("a", "f")
    assert (delivery["status"], delivery["attempts"], good.seen) == ("waiting", 1, ["a"])
    assert "no end after 0.02 s" in (await stage.status("a"))["error_message"]
    [run] = runs
    assert run is not None
    assert run.over
    [left] = [each for each in threading.enumerate() if each.name.startswith("outbox-handler ")]
    assert left.daemon
    gate.set()

    async def told() -> bool:
        return "the thread of handler f ended after its run had been given up" in caplog.text

    with caplog.at_level(logging.WARNING):
        await until(told)


@pytest.fixture
def sessions(bank_url: str) -> Iterator[sessionmaker[Session]]:
    """Synchronous sessions with capture, as a program without an event loop has them."""
    driver = Driver.of("psycopg, sync", bank_url)
    yield driver.captured()
    driver.engine.dispose()


async def test_what_a_function_commits_in_its_thread_happens_once(
    stage: Stage, sessions: sessionmaker[Session]
) -> None:
    """R6, C9: the receipt is written with it, and what it emits is caused by its event."""

    def note(event: Noted, maker: sessionmaker[Session]) -> None:
        with maker.begin() as session:
            session.execute(insert(journal).values(line=event.what))
            bus_of(session).emit(Announced(f"{event.what} is noted"))
        raise ConnectionError("after its commit")

    stage.container[sessionmaker[Session]] = sessions
    await stage.put("a")
    await stage.drain(of(note))
    assert await stage.journal() == ["a"]
    assert await stage.receipts() == [("a", "f", "done")]
    [cause] = await stage.witness.fetchrow(
        "SELECT headers->>'causation_id' FROM outbox_events ORDER BY position DESC"
    )
    assert cause == str((await stage.event("a"))["event_id"])


@pytest.mark.usefixtures("hasty")
async def test_what_a_function_would_commit_after_its_time_is_refused(
    stage: Stage, sessions: sessionmaker[Session], caplog: pytest.LogCaptureFixture
) -> None:
    """R6, R8: its next run has the effect, once."""
    gate, began = threading.Event(), list[str]()

    def note(event: Noted) -> None:
        began.append(event.what)
        if len(began) == 1:
            gate.wait()
        with sessions.begin() as session:
            session.execute(insert(journal).values(line=f"run {len(began)}"))

    await stage.put("a")
    await stage.drain(of(note, timeout_seconds=SOON))
    gate.set()

    async def told() -> bool:
        return "RunOver: handler 'f' may not commit its effect" in caplog.text

    await until(told)
    assert await stage.journal() == []
    await stage.drain(of(note), at=10)
    assert await stage.journal() == ["run 2"]
    assert await stage.receipts() == [("a", "f", "done")]


@attrs.define(eq=False)
class Halves:
    """Writes one half, and the second when the test says so, through a session that the container has made."""

    sessions: sessionmaker[Session]
    gate: threading.Event = attrs.Factory(threading.Event)
    runs: int = 0
    ended: list[Any] = attrs.Factory(list)

    @asynccontextmanager
    async def container(self, kind: Any) -> AsyncIterator[Session]:
        assert kind is Session
        try:
            with self.sessions() as session:
                yield session
        finally:
            self.ended.append("scope")

    def write(self, event: Noted, session: Session) -> None:
        self.runs += 1
        run = self.runs
        try:
            session.execute(insert(journal).values(line=f"first half of run {run}"))
            if run == 1:
                self.gate.wait()
            session.execute(insert(journal).values(line=f"second half of run {run}"))
            session.commit()
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        self.ended.append("committed")


BOTH_HALVES = ["first half of run 2", "second half of run 2"]


@pytest.mark.usefixtures("hasty")
async def test_a_thread_keeps_its_session_until_it_ends_and_never_commits_half_of_its_effect(
    stage: Stage, sessions: sessionmaker[Session]
) -> None:
    """R6, R8: an injected session is not closed under the thread that works with it."""
    halves = Halves(sessions)
    stage.container = halves.container  # type: ignore[assignment]  # an application's own
    await stage.put("a")
    await stage.drain(of(halves.write, timeout_seconds=SOON))
    halves.ended.clear()  # of the check at the start
    halves.gate.set()

    async def is_over() -> bool:
        return len(halves.ended) == 2

    await until(is_over)
    assert halves.ended == ["RunOver", "scope"]
    assert await stage.journal() == []
    await stage.drain(of(halves.write), at=10)
    assert await stage.journal() == BOTH_HALVES
    assert await stage.receipts() == [("a", "f", "done")]


@pytest.mark.usefixtures("hasty")
async def test_what_an_async_handler_leaves_in_a_thread_never_commits_half_of_its_effect(
    stage: Stage, sessions: sessionmaker[Session]
) -> None:
    """R6, R8: the session is closed under the thread, and what it would commit then is refused."""
    halves = Halves(sessions)

    async def has_ended() -> bool:
        return bool(halves.ended)

    async def act(event: Noted) -> None:
        session = sessions()
        try:
            await asyncio.to_thread(halves.write, event, session)
        finally:
            session.close()
            halves.gate.set()
            await until(has_ended)

    await stage.put("a")
    await stage.drain(of(act, timeout_seconds=SOON))
    assert halves.ended == ["RunOver"]
    assert await stage.journal() == []
    await stage.drain(of(act), at=10)
    assert await stage.journal() == BOTH_HALVES
    assert await stage.receipts() == [("a", "f", "done")]


@pytest.mark.usefixtures("hasty")
async def test_threads_left_behind_count_against_the_concurrency_of_their_handler(stage: Stage) -> None:
    """R8, R12: else each event would leave one more, with all that it holds."""
    gate, begun, good = threading.Event(), list[str](), Recorder()
    names = [f"e{number:02}" for number in range(30)]

    def hang(event: Noted) -> None:
        begun.append(event.what)
        gate.wait()

    def left() -> int:
        return sum(each.name.startswith("outbox-handler ") for each in threading.enumerate())

    async def none_left() -> bool:
        return not left()

    await until(none_left)
    await stage.put(*names)
    relay = stage.relay(of(hang, timeout_seconds=SOON), handler("good", good), concurrency=2)
    await relay.run_until_idle()
    assert sorted(good.seen) == names
    assert 2 <= left() == len(begun) < 2 * 2
    attempts = sorted([(await stage.delivery(name, "f"))["attempts"] for name in names])
    assert attempts == [0] * (30 - len(begun)) + [1] * len(begun)
    gate.set()
    await until(none_left)
    await relay.run_until_idle()
    assert len(begun) == 30
    assert len(set(begun)) == 30


@pytest.mark.usefixtures("hasty")
async def test_the_place_of_a_thread_that_was_left_behind_is_taken_as_soon_as_it_ends(stage: Stage) -> None:
    """R8, R12: by what waits for room, with no event and no poll to remind the relay."""
    gate, begun = threading.Event(), list[str]()

    def hang(event: Noted) -> None:
        begun.append(event.what)
        gate.wait()

    async def waits_for_room() -> bool:
        return len(begun) == 1 and set((await stage.deliveries()).values()) == {"waiting"}

    async def has_begun_all() -> bool:
        return sorted(set(begun)) == ["a", "b"]

    await stage.put("a", "b")
    relay = stage.relay(
        of(hang, timeout_seconds=SOON), at=None, concurrency=1, poll_interval_seconds=3600, lease_seconds=3600
    )
    async with serving(relay):
        await until(waits_for_room)
        await until(lambda: has_looked_everywhere(relay))
        gate.set()
        await until(has_begun_all)


async def test_a_function_that_the_container_cannot_serve_stops_the_start(stage: Stage) -> None:
    """R14."""

    async def note(event: Noted, port: int) -> None: ...

    with pytest.raises(
        HandlerNotBuilt,
        match=r"handler 'f' cannot be made by the container \(int.*\): register what it asks for in a wiring module",
    ):
        await stage.drain(of(note))


@pytest.mark.parametrize("kind", [AsyncSession, SqlAlchemyUnitOfWork], ids=lambda kind: kind.__name__)
async def test_a_function_in_a_thread_that_asks_for_what_is_async_stops_the_start(
    stage: Stage, kind: Any
) -> None:
    """R14: it would await nothing, and have no effect."""
    stage.container[SqlAlchemyUnitOfWork] = lambda: stage.uow()  # noqa: PLW0108 - as above

    def note(event: Noted, wanted) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001 - told below

    note.__annotations__["wanted"] = kind
    sentence = rf"handler 'f' cannot be called: .*note is not `async`, and its 'wanted' is of no use .*{kind.__name__};"
    with pytest.raises(HandlerNotBuilt, match=sentence):
        await stage.drain(of(note))


async def test_a_function_whose_types_are_unknown_at_run_time_stops_the_start(stage: Stage) -> None:
    """R14: such as of one that is imported for type checking alone."""

    async def note(event: Noted, mailer: Mailer) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - the point

    with pytest.raises(
        HandlerNotBuilt,
        match=r"handler 'f' cannot be called: the type of 'mailer' of .*note is not known while the program runs",
    ):
        await stage.drain(of(note))
