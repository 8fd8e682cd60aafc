"""Handling: what a subscriber does whose events a handler gets (R5, R6, R7, R8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.relay.running import DONE, Away, Run, Verdict, give_up, run_handler
from outbox_kernel.infrastructure.relay.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from outbox_kernel.infrastructure.relay.lease import Lease
    from outbox_kernel.infrastructure.relay.pausing import Pause
    from outbox_kernel.infrastructure.relay.roster import Carried
    from outbox_kernel.infrastructure.relay.workers import Worker
    from outbox_kernel.infrastructure.relay.works import Work
    from outbox_kernel.infrastructure.telemetry.counting import SubscriptionCounts
    from outbox_kernel.infrastructure.telemetry.run_spans import RunSpans


@attrs.define(eq=False)
class Handling:
    """Runs a handler under the lease of a shift."""

    carried: Carried
    lease: Lease
    schema: str | None
    database: str
    """Where the outbox is: what commits there takes a receipt."""

    counts: SubscriptionCounts | None = attrs.field(default=None, kw_only=True)
    """Where runs are counted, if anybody asks for numbers."""
    spans: RunSpans | None = attrs.field(default=None, kw_only=True)
    """What traces runs, if anybody takes spans."""
    standing: Standing = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Begin with nothing known to be away."""
        self.standing = Standing(self.carried.name)

    @property
    def is_away(self) -> bool:
        """Whether something that it needs is away, and it is not yet time to probe."""
        return self.standing.is_away

    @property
    def pause(self) -> Pause | None:
        """Why it stands still."""
        return self.standing.pause

    def __call__(self, worker: Worker, work: Work) -> Awaitable[Verdict | None]:
        """Run it over one event; raise Away if something that it needs is."""
        return self.perform(worker, self.run_of(worker, work))

    def run_of(self, worker: Worker, work: Work) -> Run:
        """Return a run over one event, which has not begun."""
        return Run(
            *(self.carried, work.row, work.attempts, worker.task),
            *(self.lease, self.schema, self.database),
        )

    async def perform(self, worker: Worker, run: Run) -> Verdict | None:
        """Run it to its end; None if that was decided before, since it had been given up."""
        worker.run, verdict = run, None
        span = None if self.spans is None else self.spans.begin(run)
        try:
            verdict = await run_handler(run)
            self.standing.note_answer(run.started)
        except Away as away:
            self.standing.begin(away.__cause__ or away, run.started, run.secrets())
            raise
        finally:
            if span is not None:
                span.end(verdict)
            run.over = True
            worker.run = None
            self._let_out(worker, run)
        if run.given_up:
            return None
        if (counts := self.counts) is not None:
            counts.left -= 1  # here, and not by a call: most runs are as quick as that
            if counts.left <= 0 or verdict is not DONE or run.detached:
                counts.note_run(run, verdict)
        return verdict

    def _let_out(self, worker: Worker, run: Run) -> None:
        """Free the place of a slow run once what it has left in a thread has ended, too."""
        left, workers = run.left_behind, worker.workers
        if left is not None and not left.done():
            if not run.detached:
                workers.slow += 1
            left.add_done_callback(lambda _: workers.free_place())
        elif run.detached:
            workers.free_place()

    def given_up(self, worker: Worker, work: Work) -> None:
        """Decide about a run that ignores its cancellation."""
        if worker.run is not None:
            verdict = self.giving_up(worker.run)
            worker.workers.performer.settled(work, verdict, is_late=worker.is_aside)

    def giving_up(self, run: Run) -> Verdict:
        """Decide about it, and count it."""
        verdict = give_up(run)
        if self.counts is not None:
            self.counts.note_special(run, verdict)
        return verdict
