"""The lease's keeper: renews it outside the handlers' event loop, and ends a process whose loop stands still (R3)."""

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
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.outbox.sql import leases
from outbox_kernel.infrastructure.relay.line import Line
from outbox_kernel.infrastructure.relay.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.relay.lease import Lease

_log = logging.getLogger("outbox.relay")

RENEWALS_PER_LEASE = 3
EXIT_STANDSTILL = 70
_STEP_SECONDS_MAX = 0.5


class LeaseKeeper:
    """A thread with a connection of its own.

    A handler that blocks the loop for a while costs nobody the lease. One that blocks it for longer than it may
    run at all costs the process: nothing else can end it, and its work must move.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        lease: Lease,
        *,
        schema: str | None,
        now: datetime | None,
        lease_seconds: float,
        patience_seconds: Callable[[], float],
        on_lost: Callable[[], None],
        on_renewed: Callable[[float, float], None],
    ) -> None:
        self._engine = engine
        self._schema, self._now = schema, now
        self._lease_seconds = lease_seconds
        self._lease = lease
        self._patience_seconds = patience_seconds
        self._on_lost = on_lost
        self._on_renewed = on_renewed
        self._watched = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._moved_at = self._looked_at = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outbox-lease-keeper", daemon=True)
        self._ended = asyncio.Event()
        self._halt: Callable[[], object] = lambda: None

    def start(self) -> None:
        """Begin to renew, and to watch the loop."""
        self._beat()
        self._thread.start()

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
            self._loop.call_later(_STEP_SECONDS_MAX / 5, self._beat)

    def _run(self) -> None:
        try:
            asyncio.run(self._keep())
        finally:
            _tell(self._loop, self._ended.set)

    async def _keep(self) -> None:
        every = self._lease_seconds / RENEWALS_PER_LEASE
        line = Line(self._engine, deadline_seconds=max(every, 1.0))
        due = time.monotonic() + every
        halted = asyncio.Event()
        self._halt = partial(_tell, asyncio.get_running_loop(), halted.set)
        try:
            while not self._is_over():
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(_STEP_SECONDS_MAX, every / 2)):
                        await halted.wait()
                if self._is_over():
                    break
                self._check_standstill()
                if time.monotonic() >= due:
                    due = time.monotonic() + every
                    await self._renew(line)
        finally:
            await line.close()

    async def _renew(self, line: Line) -> None:
        log, asked = Log(line, self._lease, self._schema, self._now), time.monotonic()
        try:
            held = await log.run(leases.RENEW, lease_seconds=self._lease_seconds)
        except Exception as error:  # noqa: BLE001 - whatever it is: a keeper that ends loses the lease for good
            _log.warning(
                "the lease could not be renewed: %s", error, extra={"action": "relay.lease.not_renewed"}
            )
            return
        if held:
            self._on_renewed(asked, held[0]["shown"])
        elif not self._is_over():
            _tell(self._loop, self._on_lost)

    def _is_over(self) -> bool:
        # A loop that was closed over a relay that still served has not come to a standstill: it has ended.
        return self._stop.is_set() or self._loop.is_closed()

    def _check_standstill(self) -> None:
        patience = self._patience_seconds()
        now = time.monotonic()
        if now - self._looked_at > patience / 2:
            # This thread did not run either: the process was stopped, or its machine was.
            self._moved_at = now
        self._looked_at = now
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
