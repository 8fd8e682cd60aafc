"""One run of one handler, and what it came to (R5, R6, R7, R8)."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.outbox.atomic import OneTransaction
from outbox_kernel.infrastructure.outbox.receipts import HandlerRun
from outbox_kernel.infrastructure.outbox.sealing.scrubbing import scrubbed, traceback_of
from outbox_kernel.infrastructure.relay.outages import outage_of
from outbox_kernel.infrastructure.relay.telling import about_event
from outbox_kernel.kernel.context import handling
from outbox_kernel.kernel.errors import Reject, RetryAfter, SecondCommit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from outbox_kernel.infrastructure.relay.lease import Lease
    from outbox_kernel.infrastructure.relay.roster import Carried, CarriedPublisher
    from outbox_kernel.infrastructure.relay.rows import LoggedEvent
    from outbox_kernel.kernel.context import Delivery

_log = logging.getLogger("outbox.relay")

ERROR_CHARACTERS_MAX = 2_000
# How long a run whose time is over may take to end.
GRACE_SECONDS = 5.0
# A century: what a handler asks for must stay a time that the database can store.
DELAY_SECONDS_MAX = 100 * 365.25 * 86_400


class GivenBack(BaseException):
    """The run was ended by the relay, not by itself: it is nobody's failure, and is to be run again."""


class Away(BaseException):
    """What the run needs is away: it is nobody's failure, and is to be run again once that is back."""


class Run(HandlerRun):
    """A handler at work under a relay's lease."""

    rows: Sequence[LoggedEvent] | None = None
    """All that it is given at once, of which `row` is the last, if the handler takes batches."""
    detached: bool = False
    ended_for: str | None = None
    """Why the relay cancelled it: timeout or stop."""
    given_up: bool = False
    """It ignored its cancellation, its outcome is decided; whatever it still does is of no account."""

    def __init__(
        self,
        carried: Carried,
        row: LoggedEvent,
        attempts: int,
        task: asyncio.Task[Any],
        lease: Lease,
        schema: str | None,
        database: str | None,
    ) -> None:
        # Not by the base, for which a delivery would have to be made: few handlers ever ask for theirs.
        self.carried, self.row, self.attempts, self.task = carried, row, attempts, task
        self.event_id, self.handler, self.former = row["event_id"], carried.name, carried.renamed_from
        self.relay, self.epoch = lease.relay, lease.epoch
        self.schema, self.database = schema, database
        self.started = time.monotonic()

    @property
    def delivery(self) -> Delivery:
        """What the handler may read of its event."""
        return self.row.delivery(self.attempts + 1)

    @property
    def is_of_several(self) -> bool:
        """Whether nobody can say yet which of its events has failed, if one has."""
        return self.rows is not None and len(self.rows) > 1

    @property
    def given(self) -> object:
        """What the handler is called with."""
        if self.rows is None:
            return self.carried.given(self.row)
        return [self.carried.given(row) for row in self.rows]

    def secrets(self) -> Sequence[str]:
        """Return what no error of it may tell: it was in sealed fields (O6)."""
        return tuple(each for row in self.rows or (self.row,) for each in row.secrets)

    def end(self, reason: str) -> None:
        """Cancel it, and let nothing of it commit any more.

        That comes first: what it has left in a thread or a task would commit the second half of its effect, once its
        session has been closed under it and the first half is gone.
        """
        self.ended_for = reason
        self.over = True
        self.task.cancel()


@attrs.frozen
class Verdict:
    """How a run ended: done, waiting for another attempt, or dead."""

    status: str
    attempts: int
    delay_seconds: float = 0.0
    error_message: str | None = None


DONE = Verdict("done", 0)
SPLIT = "split"
"""The status of a batch that has failed: which event is at fault is to be found out."""


async def run_handler(run: Run) -> Verdict:
    """Run a handler over its event to an end, whatever it does in its own coroutine; raise Away for an outage."""
    try:
        with handling(run):
            given = run.given
            if run.carried.atomic:
                async with OneTransaction(run, run.carried.timeout_seconds + 2 * GRACE_SECONDS):
                    await run.carried.call(given)
            else:
                await run.carried.call(given)
    except BaseException as error:  # a handler may raise anything, and harms only itself
        if isinstance(error, GeneratorExit) and _is_closed(run.task):
            raise  # the end of the process is nobody's failure
        return _ended(run, error)
    finally:
        if run.task.cancelling() and not _is_closed(run.task):
            await _bear_cancellation(run.task)
    return _ended(run, None)


def _is_closed(task: asyncio.Task[object]) -> bool:
    """Whether this code is not run by its task: the loop has ended, and the garbage collector closes what is left."""
    try:
        return asyncio.current_task() is not task
    except RuntimeError:
        return True


async def _bear_cancellation(task: asyncio.Task[object]) -> None:
    """Whoever cancelled it, its time, a stop or the handler itself: that was this run's, not the next one's."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # where one arrives that the handler asked for and did not wait for
    while task.cancelling():
        task.uncancel()


def give_up(run: Run) -> Verdict:
    """Decide the outcome of a run that does not end even when it is cancelled."""
    run.given_up = run.over = True
    reason = TimeoutError(f"no end after {run.carried.timeout_seconds:g} s, and it ignored its cancellation")
    return _failed(run, run.second or reason)


def refused(publisher: CarriedPublisher, row: LoggedEvent, attempts: int, reason: str) -> Verdict:
    """Decide about an event that a broker does not take."""
    attempts, reason = attempts + 1, storable(scrubbed(reason, row.secrets))
    delay = publisher.schedule.delay_after(attempts)
    about = {"publisher": publisher.name, **about_event(row), "attempts": attempts}
    if delay is None:
        _log.critical(
            "publisher %s is dead for event %s %s: retry or skip it: %s",
            *(publisher.name, row.event_type, row.event_id, reason),
            extra={"action": "publisher.event.dead", **about},
        )
        return Verdict("dead", attempts, 0.0, reason)
    _log.warning(
        "publisher %s: the broker refused event %s %s, which is tried again in %g s: %s",
        *(publisher.name, row.event_type, row.event_id, delay, reason),
        extra={"action": "publisher.event.refused", **about, "delay_seconds": delay},
    )
    return Verdict("waiting", attempts, delay, reason)


def _ended(run: Run, error: BaseException | None) -> Verdict:
    """Say what an end means: a success, the relay's own doing, or a failure."""
    if run.second is not None:
        return _failed(run, run.second)  # even if the handler swallowed it: half of its effect is missing
    if run.committed:
        return DONE if error is None else _succeeded_and_failed(run, error)
    if run.handled:
        return DONE
    refused = run.refused  # even if the handler returned as if its effect were done
    if run.ended_for == "timeout" and (refused or error is not None):
        return _failed(run, TimeoutError(f"no end after {run.carried.timeout_seconds:g} s"))
    if refused or (run.ended_for == "stop" and error is not None):
        raise GivenBack from error
    if error is not None and outage_of(error) is not None:
        raise Away from error
    return DONE if error is None else _failed(run, error)


def _succeeded_and_failed(run: Run, error: BaseException) -> Verdict:
    _log.error(
        "handler %s failed over event %s %s after its effect had committed, which counts as success",
        *_named(run),
        extra={"action": "handler.failed_after_commit", **_about(run)},
        exc_info=traceback_of(error, run.secrets()),
    )
    return DONE if run.is_of_several else Verdict("done", run.attempts, error_message=_told(run, error))


def _failed(run: Run, error: BaseException) -> Verdict:
    if run.is_of_several and not isinstance(error, SecondCommit):
        return Verdict(SPLIT, 0, 0.0, _told(run, error))
    attempts = run.attempts + 1
    delay = _delay(run, error, attempts)
    about = {**_about(run), "attempts": attempts}
    # What a handler says on purpose has its reason in its words, and nothing to look for in a traceback.
    meant = isinstance(error, Reject | RetryAfter)
    reason, trace = _told(run, error), None if meant else traceback_of(error, run.secrets())
    if delay is None:
        _log.critical(
            "handler %s is dead for event %s %s: retry or skip it: %s",
            *(*_named(run), reason.partition("\n")[0]),
            extra={"action": "handler.dead", **about},
            exc_info=trace,
        )
        return Verdict("dead", attempts, 0.0, reason)
    _log.warning(
        "handler %s failed over event %s %s and is tried again in %g s: %s",
        *(*_named(run), delay, reason.partition("\n")[0]),
        extra={"action": "handler.failed", **about, "delay_seconds": delay},
        exc_info=trace,
    )
    return Verdict("waiting", attempts, delay, reason)


def _delay(run: Run, error: BaseException, attempts: int) -> float | None:
    if isinstance(error, Reject | SecondCommit):
        return None
    delay = run.carried.schedule.delay_after(attempts)
    if delay is not None and isinstance(error, RetryAfter):
        delay = error.seconds
    return None if delay is None else min(float(delay), DELAY_SECONDS_MAX)


def _told(run: Run, error: BaseException) -> str:
    try:
        words = str(error)
    except Exception as broken:  # noqa: BLE001 - an error's words are the handler's code too
        words = f"(its own text failed with {type(broken).__name__})"
    return storable(f"{type(error).__name__}: {scrubbed(words, run.secrets())}")


def storable(text: str) -> str:
    """Return the words of an error as a column takes them."""
    # NUL is what a text column cannot hold, and a lone surrogate no encoding.
    text = text.replace("\0", "\\0")
    return text.encode(errors="backslashreplace").decode()[:ERROR_CHARACTERS_MAX]


def _named(run: Run) -> tuple[str, str, UUID]:
    """Return what a line of the log names in its words: an application's own log may show nothing else of it."""
    return run.carried.name, run.row.event_type, run.row.event_id


def _about(run: Run) -> dict[str, object]:
    return {"handler": run.carried.name, **about_event(run.row)}
