"""A run: a handler at work over an event, to its end, whatever it does (R5, R6, R7, R8)."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.calling import bear_cancellation, has_left
from outbox_kernel.infrastructure.outbox.atomic import OneTransaction
from outbox_kernel.infrastructure.outbox.receipts import HandlerRun, Terms
from outbox_kernel.infrastructure.outbox.sql.receipts import HANDLED
from outbox_kernel.infrastructure.relay.limits import GRACE_SECONDS
from outbox_kernel.infrastructure.relay.outages import HandlerOutage, outage_of
from outbox_kernel.infrastructure.relay.retry import (
    DONE,
    Verdict,
    failed,
    failed_after_commit,
    handled_before,
)
from outbox_kernel.kernel.context import handling

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Sequence
    from uuid import UUID

    from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
    from outbox_kernel.infrastructure.relay.log import Log
    from outbox_kernel.infrastructure.relay.subscription import Carried
    from outbox_kernel.infrastructure.relay.workers import Work, Worker
    from outbox_kernel.infrastructure.telemetry.counting import SubscriptionCounts
    from outbox_kernel.infrastructure.telemetry.run_spans import RunSpans
    from outbox_kernel.kernel.context import Delivery

_log = logging.getLogger("outbox.relay")


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

    def __init__(self, doing: Handling, work: Work, task: asyncio.Task[Any]) -> None:
        # Not by the base, for which a delivery would have to be made: few handlers ever ask for theirs.
        self.doing, self.terms, self.task = doing, doing.terms, task
        self.row, self.attempts = work.row, work.attempts
        self.started = time.monotonic()

    @property
    def carried(self) -> Carried:
        """Whose run it is."""
        return self.doing.carried

    @property
    def event_id(self) -> UUID:
        """Its event, or the last of a batch."""
        return self.row.event_id

    @property
    def delivery(self) -> Delivery:
        """What the handler may read of its event."""
        return self.row.delivery(self.attempts + 1)

    @property
    def is_of_several(self) -> bool:
        """Whether nobody can say yet which of its events has failed, if one has."""
        return self.rows is not None and len(self.rows) > 1

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


async def run_handler(run: Run) -> Verdict:
    """Run a handler over its event to an end, whatever it does in its own coroutine; raise Away for an outage."""
    try:
        with handling(run):
            carried = run.doing.carried
            given = carried.given(run.row) if run.rows is None else [*map(carried.given, run.rows)]
            if carried.atomic:
                async with OneTransaction(run, carried.timeout_seconds + 2 * GRACE_SECONDS):
                    await carried.call(given)
            else:
                await carried.call(given)
    except BaseException as error:  # a handler may raise anything, and harms only itself
        if isinstance(error, GeneratorExit) and has_left(run.task):
            raise  # the end of the process is nobody's failure
        return _ended(run, error) or await _failed(run, error)
    finally:
        if run.task.cancelling() and not has_left(run.task):
            await bear_cancellation(run.task)
    return _ended(run, None) or await _failed(run, None)


def _ended(run: Run, error: BaseException | None) -> Verdict | None:
    """Say what an end means: a success, or the relay's own doing; None: a failure."""
    if run.given_up:
        return DONE  # it was decided about while it ran
    if run.second is not None:
        return failed(run, run.second)  # even if the handler swallowed it: half of its effect is missing
    if run.committed:
        return DONE if error is None else failed_after_commit(run, error)
    if run.handled:
        return DONE
    refused = run.refused  # even if the handler returned as if its effect were done
    if run.ended_for == "timeout" and (refused or error is not None):
        return None
    if refused or (run.ended_for == "stop" and error is not None):
        raise GivenBack from error
    if error is not None and outage_of(error) is not None:
        raise Away from error
    return DONE if error is None else None


async def _failed(run: Run, error: BaseException | None) -> Verdict:
    """Decide about a failure, unless an earlier run has had the effect: the next may fail just over that (R6)."""
    if error is None or run.ended_for == "timeout":
        error = TimeoutError(f"no end after {run.carried.timeout_seconds:g} s")
    run.ended_for = run.ended_for or "itself"  # whatever the time, nobody is to end it while it asks
    run.over = True  # and nothing that it has left in another task is to commit meanwhile
    if not has_left(run.task):
        if run.task.cancelling():
            await bear_cancellation(run.task)
        run.handled = bool(await run.doing.handled(run))
    if run.committed:
        return failed_after_commit(run, error)  # what was under way has come through
    return handled_before(run, error) if run.handled else failed(run, error)


@attrs.define(eq=False)
class Handling:
    """What a subscriber does whose events a handler gets: runs it under the lease of a shift."""

    carried: Carried
    log: Log
    """Asked for receipts."""
    database: str
    """Where the outbox is: what commits there takes a receipt."""
    counts: SubscriptionCounts | None = attrs.field(default=None, kw_only=True)
    spans: RunSpans | None = attrs.field(default=None, kw_only=True)
    terms: Terms = attrs.field(init=False)
    outage: HandlerOutage = attrs.field(
        init=False, default=attrs.Factory(lambda self: HandlerOutage(self.carried.name), takes_self=True)
    )

    @terms.default
    def _terms_of_lease(self) -> Terms:
        name, former, lease = self.carried.name, self.carried.renamed_from, self.log.lease
        return Terms(name, lease.relay, lease.epoch, former, self.log.schema, self.database)

    def __call__(self, worker: Worker, work: Work) -> Awaitable[Verdict | None]:
        """Run it over one event; raise Away if something that it needs is."""
        return self.perform(worker, Run(self, work, worker.task))

    async def perform(self, worker: Worker, run: Run) -> Verdict | None:
        """Run it to its end; None if that was decided before, since it had been given up."""
        worker.run, verdict = run, None
        span = None if self.spans is None else self.spans.begin(run)
        try:
            verdict = await run_handler(run)
            if self.outage.is_disturbed:
                self.outage.note_answer(run.started)
        except Away as away:
            self.outage.begin(away.__cause__ or away, run.started, run.secrets())
            raise
        finally:
            if span is not None:
                span.end(verdict)
            run.over = True
            worker.run = None
            if run.detached or run.left_behind is not None:
                self._let_out(worker, run)
        if run.given_up:
            return None
        if (counts := self.counts) is not None:
            counts.left -= 1  # here, and not by a call: most runs are as quick as that
            if counts.left <= 0 or verdict is not DONE or run.detached:
                counts.note_run(run, verdict)
        return verdict

    async def handled(self, run: Run) -> set[UUID]:
        """Return of which of its events there are receipts."""
        found = await self.log.run(HANDLED, event_ids=[run.event_id, *run.others], names=run.terms.names)
        return {row["event_id"] for row in found}

    def _let_out(self, worker: Worker, run: Run) -> None:
        """Free the place of a slow run once what it has left in a thread has ended, too."""
        left, workers = run.left_behind, worker.workers
        if left is not None and not left.done():
            if not run.detached:
                workers.slow += 1
            left.add_done_callback(lambda _: workers.free_place())
        elif run.detached:
            workers.free_place()

    def given_up(self, worker: Worker, work: Work, run: Run) -> None:
        """Decide about a run that ignores its cancellation."""
        worker.workers.subscriber.settled(work, self.giving_up(run), is_late=worker.is_aside)

    def giving_up(self, run: Run) -> Verdict:
        """Decide about it, and count it."""
        run.given_up = run.over = True
        limit = run.carried.timeout_seconds
        reason = TimeoutError(f"no end after {limit:g} s, and it ignored its cancellation")
        verdict = failed(run, run.second or reason)
        if self.counts is not None:
            self.counts.note_special(run, verdict)
        return verdict
