"""The lease under which a relay works: it fences all that the relay writes, and a keeper renews it (R3).

The keeper works outside the handlers' event loop, and ends a process whose loop stands still.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import attrs

from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.outbox.sql import leases
from outbox_kernel.infrastructure.relay.limits import LEASE_RENEWALS, STEP_SECONDS_MAX
from outbox_kernel.infrastructure.relay.timeouts import patience_seconds
from outbox_kernel.infrastructure.waiting import Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from outbox_kernel.infrastructure.relay.log import Log

_log = logging.getLogger("outbox.relay")

EXIT_STANDSTILL = 70


@attrs.frozen
class Lease:
    """Who writes: a relay, and how many leases it has had."""

    relay: UUID = attrs.field(factory=uuid4)
    epoch: int = 1


class LeaseLost(InfrastructureError):
    """Another relay has taken over, or may have: nothing in hand is ours any more."""


def check_held(held: object) -> None:
    """Raise LeaseLost where a statement tells that the lease does not hold."""
    if not held:
        raise LeaseLost("the relay's lease has run out")


@attrs.define(eq=False)
class LeaseKeeper:
    """A thread with a connection of its own.

    A handler that blocks the loop for a while costs nobody the lease. One that blocks it for longer than it may
    run at all costs the process: nothing else can end it, and its work must move.
    """

    log: Log
    lease_seconds: float
    on_renewed: Callable[[float, float], None]
    patience_seconds: Callable[[asyncio.Task[Any] | None], float] = lambda task: patience_seconds((), task)
    """For how long the loop may stand in a task."""
    on_lost: Callable[[], None] = lambda: None
    _watched: int = attrs.Factory(threading.get_ident)
    _loop: asyncio.AbstractEventLoop = attrs.Factory(asyncio.get_running_loop)
    _moved_at: float = attrs.Factory(time.monotonic)
    _looked_at: float = attrs.Factory(time.monotonic)
    _seen_in: asyncio.Task[Any] | None = None
    _stop: threading.Event = attrs.Factory(threading.Event)
    _ended: asyncio.Event = attrs.Factory(asyncio.Event)
    _halt: Callable[[], object] = lambda: None

    def start(self) -> None:
        """Begin to renew, and to watch the loop."""
        self._beat()
        threading.Thread(target=self._run, name="outbox-lease-keeper", daemon=True).start()

    async def stop(self) -> None:
        """Renew no more."""
        self._stop.set()
        self._halt()
        # Not by a join in the loop's executor: handlers may have filled that with calls that do not end.
        await self._ended.wait()

    def _beat(self) -> None:
        # No task: whoever cancels all tasks, as some do at the end, must not make the loop look dead.
        self._moved_at = time.monotonic()
        if not self._stop.is_set():
            self._loop.call_later(STEP_SECONDS_MAX, self._beat)

    def _run(self) -> None:
        try:
            asyncio.run(self._keep())
        finally:
            if not self._is_over():
                _tell(self._loop, self.on_lost)  # whatever it has died of: it is not renewed any more
            _tell(self._loop, self._ended.set)

    async def _keep(self) -> None:
        every = self.lease_seconds / LEASE_RENEWALS
        due = time.monotonic() + every
        halted = Signal()
        self._halt = partial(_tell, asyncio.get_running_loop(), halted.set)
        try:
            while not self._is_over():
                self._check_standstill()
                if time.monotonic() >= due:
                    due = time.monotonic() + every
                    await self._renew()
                await halted.wait(min(STEP_SECONDS_MAX, every / 2))
        finally:
            await self.log.line.close()

    async def _renew(self) -> None:
        asked = time.monotonic()
        try:
            held = await self.log.run(leases.RENEW, lease_seconds=self.lease_seconds)
        except Exception as error:  # noqa: BLE001 - whatever it is: a keeper that ends loses the lease for good
            _log.warning(
                "the lease could not be renewed: %s", error, extra={"action": "relay.lease.not_renewed"}
            )
            return
        if held:
            self.on_renewed(asked, held[0]["shown"])
        elif not self._is_over():
            _tell(self._loop, self.on_lost)

    def _is_over(self) -> bool:
        # A loop that was closed over a relay that still served has not come to a standstill: it has ended.
        return self._stop.is_set() or self._loop.is_closed()

    def _check_standstill(self) -> None:
        task = asyncio.current_task(self._loop)
        patience = self.patience_seconds(task)
        now = time.monotonic()
        # It has moved since it stood in another task. Or this thread did not run either: the process was stopped, or
        # its machine was.
        if task is not self._seen_in or now - self._looked_at > patience / 2:
            self._moved_at = now
        self._seen_in, self._looked_at = task, now
        stood = now - self._moved_at
        if stood <= patience:
            return
        frame = sys._current_frames().get(self._watched)  # noqa: SLF001 - the interpreter's only way to ask
        where = "".join(traceback.format_stack(frame)) if frame else "unknown"
        _log.critical(
            "the event loop has not moved for %.0f s, so this process ends and others take over; it stands at:\n%s",
            stood,
            where,
            extra={"action": "relay.loop.stood_still"},
        )
        logging.shutdown()
        os._exit(EXIT_STANDSTILL)


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], object]) -> None:
    """Call it in the loop of another thread, if that has not ended this moment."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(what)
