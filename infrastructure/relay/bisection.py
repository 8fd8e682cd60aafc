"""Bisection: what a subscriber does whose handler gets several events at once, and fails over one of them (R16).

A batch has one run, one effect and a receipt for each of its events. If it fails it is halved, and halved again, until
the event at fault stands alone: that one is charged, what is left of its aggregate waits behind it, and all others
succeed. What is a delivery runs alone, as a batch of one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.relay.retry import DONE, SPLIT, Verdict
from outbox_kernel.infrastructure.relay.run import Away, Handling, Run

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.relay.workers import Work, Worker

_log = logging.getLogger("outbox.relay")


@attrs.define(eq=False)
class Batching(Handling):
    """Runs a handler over several events at once."""

    async def __call__(self, worker: Worker, work: Work) -> Verdict | None:
        """Run it over a delivery; or over all of a queue that one batch holds, and say itself what came of each."""
        if work.batch is None:
            return await self.perform(worker, self._run_over(worker, [work]))
        worker.together = [self._gathered(worker, work)]
        is_first = True
        while worker.together:
            # What a part before it has left behind may keep some of it waiting.
            part = [each for each in worker.together[0] if not worker.workers.subscriber.must_wait(each)]
            worker.together[0] = part
            if part and not is_first:
                if not worker.workers.go_on:
                    raise Away
                worker.workers.note_begin()
            if not part:
                worker.together.pop(0)
            elif not await self._go_through(worker, part):
                break
            is_first = False
        return None

    def given_up(self, worker: Worker, work: Work, run: Run) -> None:
        """Charge one that stands alone; of several each is to run alone, as a delivery."""
        together, worker.together = worker.together, []
        if not together:
            super().given_up(worker, work, run)
            return
        verdict, subscriber, part = self.giving_up(run), worker.workers.subscriber, together.pop(0)
        for each in part:
            if verdict.status == SPLIT:
                subscriber.given_back(each, is_late=False)
            else:
                subscriber.settled(each, verdict, is_late=False)
        for each in (each for rest in together for each in rest):
            subscriber.given_back(each, is_late=False)

    def _gathered(self, worker: Worker, work: Work) -> list[Work]:
        """Take what there is of a queue, up to a batch; to find out how things stand, one is enough."""
        gathered, queue, workers = [work], worker.queue, worker.workers
        size = 1 if workers.is_probing else self.carried.batch or 1
        while queue is not None and queue.works and len(gathered) < size:
            following = queue.works.pop(0)
            if not workers.subscriber.must_wait(following):
                gathered.append(following)
        return gathered

    async def _go_through(self, worker: Worker, part: list[Work]) -> bool:
        """Run it once over a part of a batch; return whether the rest may follow."""
        run = self._run_over(worker, part)
        verdict = await self.perform(worker, run)
        if verdict is None:
            return False
        if run.handled and not run.committed:
            worker.together[0] = await self._without_handled(worker, part, run)
            return True
        worker.together.pop(0)
        if verdict.status == SPLIT:
            self._tell_split(run, verdict)
            half = len(part) // 2
            worker.together[:0] = [part[:half], part[half:]]
        else:
            for each in part:
                worker.workers.subscriber.settled(each, verdict, is_late=False)
        return True

    async def _without_handled(self, worker: Worker, part: list[Work], run: Run) -> list[Work]:
        """Take note of those that have receipts, as after a crash; return the others, which have none yet."""
        handled = await self.handled(run)
        for each in part:
            if each.row.event_id in handled:
                worker.workers.subscriber.settled(each, DONE, is_late=False)
        return [each for each in part if each.row.event_id not in handled]

    def _run_over(self, worker: Worker, part: list[Work]) -> Run:
        run = Run(self, part[-1], worker.task)
        run.rows = [each.row for each in part]
        run.others = tuple(each.row.event_id for each in part[:-1])
        return run

    def _tell_split(self, run: Run, verdict: Verdict) -> None:
        events, reason = len(run.rows or ()), (verdict.error_message or "").partition("\n")[0]
        _log.info(
            "handler %s failed over %d events at once, and is run over each half of them: %s",
            *(self.carried.name, events, reason),
            extra={"action": "handler.batch.split", "handler": self.carried.name, "events": events},
        )
