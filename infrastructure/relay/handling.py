"""Handling: what a subscriber does whose events a handler gets (R5, R6, R7, R8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.outbox.receipts import HandlerRun
from outbox_kernel.infrastructure.relay.running import Away, Run, Verdict, give_up, run_handler
from outbox_kernel.infrastructure.relay.standing import Standing

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.relay.lease import Lease
    from outbox_kernel.infrastructure.relay.pausing import Pause
    from outbox_kernel.infrastructure.relay.roster import Carried
    from outbox_kernel.infrastructure.relay.workers import Worker
    from outbox_kernel.infrastructure.relay.works import Work


@attrs.define(eq=False)
class Handling:
    """Runs a handler under the lease of a shift."""

    carried: Carried
    lease: Lease
    schema: str | None
    database: str
    """Where the outbox is: what commits there takes a receipt."""

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

    async def __call__(self, worker: Worker, work: Work) -> Verdict | None:
        """Run it over one event; raise Away if something that it needs is."""
        return await self.perform(worker, self.run_of(worker, work))

    def run_of(self, worker: Worker, work: Work) -> Run:
        """Return a run over one event, which has not begun."""
        carried, row = self.carried, work.row
        receipt = HandlerRun(
            *(row.event_id, carried.name, self.lease.relay, self.lease.epoch),
            self.schema,
            former=carried.renamed_from,
            database=self.database,
            tell=lambda: row.delivery(work.attempts + 1),
            # Not of the run, which has the receipt: what goes round in a circle only the garbage collector frees.
            secrets=lambda: row.secrets,
        )
        return Run(carried, row, work.attempts, receipt, worker.task)

    async def perform(self, worker: Worker, run: Run) -> Verdict | None:
        """Run it to its end; None if that was decided before, since it had been given up."""
        worker.run, receipt = run, run.receipt
        try:
            verdict = await run_handler(run)
            self.standing.note_answer(run.started)
        except Away as away:
            self.standing.begin(away.__cause__ or away, run.started, receipt.secrets())
            raise
        finally:
            receipt.over = True
            worker.run = None
            self._let_out(worker, run)
        return None if run.given_up else verdict

    def _let_out(self, worker: Worker, run: Run) -> None:
        """Free the place of a slow run once what it has left in a thread has ended, too."""
        left, workers = run.receipt.left_behind, worker.workers
        if left is not None and not left.done():
            if not run.detached:
                workers.slow += 1
            left.add_done_callback(lambda _: workers.free_place())
        elif run.detached:
            workers.free_place()

    def given_up(self, worker: Worker, work: Work) -> None:
        """Decide about a run that ignores its cancellation."""
        if worker.run is not None:
            worker.workers.performer.settled(work, give_up(worker.run), is_late=worker.is_aside)
