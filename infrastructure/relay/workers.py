"""Workers: each takes one aggregate at a time and goes through its events, one after the other (R4, R5, R8).

A run that takes long gets a delivery: its worker stays with it, and the aggregate goes on with another.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from decimal import Context, getcontext, setcontext
from operator import attrgetter
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.relay.limits import LOOP_SECONDS_MAX
from outbox_kernel.infrastructure.relay.run import Away, GivenBack, Run
from outbox_kernel.infrastructure.relay.timeouts import watch

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
    from outbox_kernel.infrastructure.relay.cursor import Batch
    from outbox_kernel.infrastructure.relay.rate import Pacer
    from outbox_kernel.infrastructure.relay.retry import Verdict
    from outbox_kernel.infrastructure.relay.subscriber import Subscriber
    from outbox_kernel.infrastructure.waiting import Signal


@attrs.define(eq=False)
class Work:
    """One event for one handler or publisher: out of a batch, or as a delivery."""

    row: LoggedEvent
    key: Hashable
    """The aggregate, where its order is kept."""
    batch: Batch | None
    attempts: int = 0


@attrs.define(eq=False)
class Queue:
    """What is in hand of one aggregate, in order."""

    key: Hashable
    works: list[Work] = attrs.Factory(list)
    is_turn: bool = False
    """Whether these are deliveries: one that does not succeed ends the turn."""


@attrs.define(eq=False)
class Worker:
    """Who does works, one at a time."""

    workers: Workers
    task: asyncio.Task[None] = attrs.field(init=False)
    work: Work | None = None
    queue: Queue | None = None
    run: Run | None = None
    together: list[list[Work]] = attrs.Factory(list)
    """What it has in hand of a batch, in the parts that are done at once; `work` is none of it any more."""
    is_aside: bool = False
    """It is no longer counted: what it does is slow."""
    context: contextvars.Context = attrs.field(init=False)
    """What stands in its context as long as no handler has left anything there."""

    async def serve(self) -> None:
        """Go through queues for as long as there are any."""
        began = time.monotonic()
        # Its own, which may be changed in its place; and at once, since an event's own amounts would make one.
        setcontext(self.workers.arithmetic.copy())
        self.context = contextvars.copy_context()
        while not self.is_aside and (queue := self.workers.next_queue(self)) is not None:
            self.queue = queue
            began = await self._go_through(queue, began)
            self.queue = None

    def let_go(self) -> None:
        """Give back what is in hand: a cancellation that a handler asked for has come too late for its own run."""
        if self.work is not None:
            self._give_back(self._unsettled(self.work))
        if self.queue is not None and not self.is_aside:
            self.workers.left(self.queue)

    async def _go_through(self, queue: Queue, began: float) -> float:
        workers, subscriber = self.workers, self.workers.subscriber
        while queue.works and not workers.is_stopping:
            work = queue.works.pop(0)
            if not subscriber.must_wait(work):
                self.work = work
                workers.note_begin()
                goes_on = False
                try:
                    goes_on = self._note_end(work, await subscriber.perform(self, work))
                except Away:
                    subscriber.note_pause()
                    self._put_back(self._unsettled(work))
                except GivenBack:
                    self._give_back(self._unsettled(work))
                self.work = None
                if self.is_aside:
                    return began
                if self._must_hand_on() or not goes_on or not workers.go_on:
                    break
            if time.monotonic() - began > LOOP_SECONDS_MAX:
                await asyncio.sleep(0)
                began = time.monotonic()
            if queue.works and not workers.may_begin():
                workers.put_off(queue)
                return began
        workers.left(queue)
        return began

    def _note_end(self, work: Work, verdict: Verdict | None) -> bool:
        """Take note of what a work came to; return whether the next of its queue may follow."""
        if verdict is None:
            return False
        self.workers.subscriber.settled(work, verdict, is_late=self.is_aside)
        return work.batch is not None or verdict.status == "done"

    def _unsettled(self, work: Work) -> list[Work]:
        together, self.together = self.together, []
        return [each for part in together for each in part] or [work]

    def _put_back(self, works: Sequence[Work]) -> None:
        """Keep works at their place in the order: they are done again, once what they need is back."""
        if self.queue is None or self.is_aside or works[0].batch is None or self.workers.is_stopping:
            self._give_back(works)
        else:
            self.queue.works[:0] = works

    def _give_back(self, works: Sequence[Work]) -> None:
        for each in works:
            self.workers.subscriber.given_back(each, is_late=self.is_aside)

    def _must_hand_on(self) -> bool:
        """Let another worker go on if the handler has left something in this one's context."""
        if contextvars.copy_context() == self.context and _settings_of(getcontext()) == self.workers.settings:
            return False
        self.workers.uncount(self)
        return True


# All by which two contexts of decimals make the same of the same numbers.
_settings_of = attrgetter("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "traps")


@attrs.define(eq=False)
class Workers:
    """Those of one handler or publisher, and the queues before them."""

    subscriber: Subscriber
    count_max: int
    changed: Signal
    _steps_aside: bool = attrs.field(kw_only=True)
    _is_bounded: bool = attrs.field(kw_only=True)
    """Slow runs take the places of others."""
    _pacer: Pacer | None = attrs.field(kw_only=True)
    width: int = attrs.field(init=False, default=attrs.Factory(lambda self: self.count_max, takes_self=True))
    is_probing: bool = False
    """One is at work at a time, and slow or not, until there is an answer."""
    slow: int = 0
    """Runs that were slow and go on, threads that were left behind included."""
    is_stopping: bool = False
    failure: BaseException | None = None
    # Every worker begins in the context in which the relay was made, not in one that a handler left.
    context: contextvars.Context = attrs.Factory(contextvars.copy_context)
    arithmetic: Context = attrs.Factory(lambda: getcontext().copy())
    settings: tuple[object, ...] = attrs.Factory(lambda self: _settings_of(self.arithmetic), takes_self=True)
    _ready: deque[Queue] = attrs.Factory(deque)
    _queues: dict[Hashable, Queue] = attrs.Factory(dict)
    _all: set[Worker] = attrs.Factory(set)
    _given_up: set[asyncio.Task[None]] = attrs.Factory(set)
    _counted: int = 0
    _beginning: Worker | None = None
    _timer: asyncio.TimerHandle | None = None

    def add(self, works: Iterable[Work]) -> None:
        """Have works of batches done, each behind those of its aggregate that are in hand."""
        queues, ready = self._queues, self._ready
        for work in works:
            key = work.key
            queue = queues.get(key)
            if queue is None:
                queue = Queue(key, [work])
                if key is not None:
                    queues[key] = queue
                ready.append(queue)
            else:
                queue.works.append(work)
        self._call_up()

    def add_turn(self, turn: Queue) -> None:
        """Have deliveries done."""
        self._ready.append(turn)
        self._call_up()

    def next_queue(self, worker: Worker) -> Queue | None:
        """Give a worker the next queue, if one waits."""
        if self._beginning is worker:
            self._beginning = None
        if not self._ready or self.is_stopping or not self.may_begin():
            return None
        queue = self._ready.popleft()
        self._call_up()
        return queue

    def left(self, queue: Queue) -> None:
        """Take note that a worker is through with a queue, or leaves the rest of it."""
        if queue.works and not queue.is_turn:
            self._ready.appendleft(queue)
            self._call_up()
            return
        while queue.works:
            self.subscriber.given_back(queue.works.pop(0), is_late=False)
        if self._queues.get(queue.key) is queue:
            del self._queues[queue.key]

    def put_off(self, queue: Queue) -> None:
        """Take note that nothing of a queue may begin just now."""
        self._ready.appendleft(queue)

    def drop(self) -> list[Work]:
        """Take what has not begun out of hand."""
        queues = {id(queue): queue for queue in (*self._ready, *self._queues.values())}.values()
        dropped = [work for queue in queues for work in queue.works]
        for queue in queues:
            queue.works.clear()
        self._ready.clear()
        self._queues.clear()
        return dropped

    def drop_turns(self) -> list[Work]:
        """Take deliveries that have not begun out of hand."""
        dropped = [work for queue in self._ready if queue.is_turn for work in queue.works]
        self._ready = deque(queue for queue in self._ready if not queue.is_turn)
        return dropped

    @property
    def go_on(self) -> bool:
        """Whether who is at work may take the next."""
        return self.width > 0 and not self.is_stopping

    def let(self, width: int) -> None:
        """Let so many be at work at once, or as many as there may be at the most."""
        self.width, self.is_probing = min(width, self.count_max), False
        self._call_up()

    def probe(self) -> None:
        """Let one be at work until there is an answer; nothing else would go on if it stepped aside."""
        self.let(1)
        self.is_probing = True

    @property
    def _busy(self) -> int:
        return self._counted + self.slow if self._is_bounded else self._counted

    def may_begin(self) -> bool:
        """Whether somebody who is at work may begin a run now; if it is too soon, somebody is called up in time."""
        if self._busy > self.width:
            return False
        return self._pacer is None or self._is_time(self._pacer)

    def _is_time(self, pacer: Pacer) -> bool:
        rest = pacer.rest_seconds()
        if rest > 0 and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(rest, self._in_time)
        return rest <= 0

    def _in_time(self) -> None:
        self._timer = None
        self._call_up()

    def note_begin(self) -> None:
        """Take note that a run begins."""
        if self._pacer is not None:
            self._pacer.begin()

    @property
    def has_turns(self) -> bool:
        """Whether deliveries wait in hand."""
        return any(queue.is_turn for queue in self._ready)

    def _call_up(self) -> None:
        """Call up one worker for the queues that wait; it calls up the next when it begins.

        Where handlers wait for nothing, the first has done all before a second would have begun.
        """
        if not self._ready or self._beginning is not None or self.is_stopping:
            return
        if self._busy >= self.width or not self.may_begin():
            return
        worker = self._beginning = Worker(self)
        self._all.add(worker)
        self._counted += 1
        worker.task = asyncio.get_running_loop().create_task(worker.serve(), context=self.context.copy())
        # Not at the end of the coroutine: one that is cancelled before it begins never gets there.
        worker.task.add_done_callback(lambda _: self._ended(worker))

    def _ended(self, worker: Worker) -> None:
        if self._beginning is worker:
            self._beginning = None
        if worker.task.cancelled() and not self.is_stopping:
            worker.let_go()
        self.uncount(worker)
        self._all.discard(worker)
        self._given_up.discard(worker.task)
        self.changed.set()
        if not worker.task.cancelled():
            self.failure = self.failure or worker.task.exception()
        self._call_up()

    def uncount(self, worker: Worker) -> None:
        """Let another worker begin in the place of one that is aside from now on, or has ended."""
        if not worker.is_aside:
            worker.is_aside = True
            self._counted -= 1

    @property
    def room(self) -> int:
        """How many more slow runs are let in."""
        return self.count_max - self.slow

    @property
    def at_rest(self) -> bool:
        """Whether nobody is at work."""
        return not self._all

    @property
    def running(self) -> list[tuple[Worker, Run]]:
        """Those who are at a work now, slow ones included; asked from the keeper's thread too, so over a copy."""
        return [(worker, run) for worker in tuple(self._all) if (run := worker.run) is not None]

    def free_place(self) -> None:
        """Take note that a slow run, or a thread that was left behind, has ended."""
        self.slow -= 1
        self.changed.set()
        self._call_up()
        self.subscriber.deliveries.look_everywhere()

    def watch(self) -> None:
        """Look at those that run for long; raise what a worker has died of."""
        if self.failure is not None:
            raise self.failure
        watch(self)
        self._call_up()

    def step_aside(self, worker: Worker) -> None:
        """Let the aggregate go on without what is slow."""
        run, work, queue = worker.run, worker.work, worker.queue
        if run is None or run.detached or worker.is_aside or work is None or queue is None:
            return
        if self._steps_aside:
            self._set_aside(worker, run)
            self.subscriber.stepped_aside(work)
            self.left(queue)

    def step_all_aside(self) -> None:
        """Let no batch wait for what is at work: the relay stops."""
        for worker, _ in self.running:
            self.step_aside(worker)

    def _set_aside(self, worker: Worker, run: Run) -> None:
        run.detached = True
        self.slow += 1
        self.uncount(worker)

    def give_up(self, worker: Worker, run: Run) -> None:
        """Decide without it about a run that ignores its cancellation."""
        if worker.work is not None:
            run.doing.given_up(worker, worker.work, run)
            worker.work = None
        if not worker.is_aside:
            self._set_aside(worker, run)
            if worker.queue is not None:
                self.left(worker.queue)
        self._all.discard(worker)
        self._given_up.add(worker.task)
        self.changed.set()

    async def end_all(self, grace_seconds: float) -> None:
        """Cancel what is at work, and wait until it has ended; what does not may commit no more."""
        if self._timer is not None:
            self._timer.cancel()
        for worker in self._all:
            if worker.run is None:
                worker.task.cancel()
            elif worker.run.ended_for is None:
                worker.run.end("stop")
        until = time.monotonic() + grace_seconds
        while self._all and (left := until - time.monotonic()) > 0:
            await asyncio.wait([worker.task for worker in self._all], timeout=left)
        for worker in list(self._all):
            if worker.run is not None:
                worker.run.over = True
            self._all.discard(worker)
            self._given_up.add(worker.task)
