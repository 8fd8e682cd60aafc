"""A relay within a program: its engine, what the log says of its start, and how it begins and ends there (R11, D2)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.cancelling import CancelledByOthers
from outbox_kernel.infrastructure.limits import POOL_SIZE_MAX
from outbox_kernel.infrastructure.postgres.engine import create_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
    from outbox_kernel.infrastructure.settings import Settings

_log = logging.getLogger("outbox.relay")


def relay_engine(settings: Settings, relay_settings: RelaySettings) -> AsyncEngine:
    """Make the engine of a relay and of the handlers that it runs.

    A relay that is stopped within a transaction must not hold others up for longer than its lease: the server
    ends such a session by itself.
    """
    patience = f"{relay_settings.lease_seconds * 1_000:.0f}ms"
    return create_engine(
        settings.required_database_url,
        session_defaults={
            "application_name": "outbox-kernel relay",
            "idle_in_transaction_session_timeout": patience,
        },
        pool_size=min(relay_settings.concurrency, POOL_SIZE_MAX),
        max_overflow=0,
    )


def about_relay(settings: RelaySettings) -> dict[str, object]:
    """Say what a relay that starts is, for the log."""
    try:
        ours = version("outbox-kernel")
    except PackageNotFoundError:
        ours = "a checkout"
    return {
        "outbox_kernel": ours,
        "code_version": settings.code_version,
        "concurrency": settings.concurrency,
        "poll_interval_seconds": settings.poll_interval_seconds,
        "lease_seconds": settings.lease_seconds,
    }


class Hosted:
    """One life of a relay; `on_end` is called with the reason should it end before its host does."""

    def __init__(self, relay: OutboxRelay, on_end: Callable[[BaseException], object] | None = None) -> None:
        self._relay = relay
        self._on_end = on_end
        self._task: asyncio.Task[None] | None = None
        self.ended: BaseException | None = None
        """Why it has ended by itself: only a restart of the process mends that."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Deliver while the block runs."""
        await self.begin()
        try:
            yield
        finally:
            await self.end()

    async def begin(self) -> None:
        """Return once it delivers, or raise why it cannot."""
        task = self._task = asyncio.create_task(self._relay.run(), name="outbox-relay")
        subscribed = asyncio.create_task(self._relay.subscribed.wait())
        try:
            await asyncio.wait([task, subscribed], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.end()
            raise
        finally:
            subscribed.cancel()
        if task.done():
            raise _reason(task)
        task.add_done_callback(self._tell_end)

    async def end(self) -> None:
        """Give back what is in hand; cancelled while it waits for that, have it ended at once."""
        task = self._task
        if task is None or task.done():
            return
        task.remove_done_callback(self._tell_end)
        task.add_done_callback(_tell_trouble)
        task.cancel()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise

    def _tell_end(self, task: asyncio.Task[None]) -> None:
        self.ended = _reason(task)
        _log.critical(
            "the relay in this process has ended: start the process again",
            exc_info=self.ended,
            extra={"action": "relay.ended"},
        )
        if self._on_end is not None:
            self._on_end(self.ended)


def _tell_trouble(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error(
            "the relay in this process has not ended well: others take over its work",
            exc_info=error,
            extra={"action": "relay.ended_badly"},
        )


def _reason(task: asyncio.Task[None]) -> BaseException:
    # It ends without a word where other code has cancelled or stopped it.
    error = None if task.cancelled() else task.exception()
    return error or CancelledByOthers("the relay")
