"""Receipts: a handler's effect and the note that it happened commit together, or neither does (R3, R6)."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.errors import (
    AlreadyHandled,
    RunOver,
    SecondCommit,
    SnapshotTooOld,
)
from outbox_kernel.infrastructure.outbox.executing import execute
from outbox_kernel.infrastructure.outbox.sql import in_schema
from outbox_kernel.infrastructure.outbox.sql.outcomes import WRITE_RECEIPT

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session


@attrs.define(eq=False)
class HandlerRun:
    """One run of one handler, for as long as it may commit."""

    event_id: UUID
    handler: str
    relay: UUID
    epoch: int
    schema: str | None = None
    former: str | None = None
    """The name that the handler was renamed from."""
    committed: bool = False
    committing: bool = False
    """Its receipt is written, and what came of the commit is not known here yet."""
    handled: bool = False
    """It met the receipt of an earlier run, whatever the handler made of that."""
    refused: bool = False
    """It was not let commit, since the lease was lost, whatever the handler made of that."""
    over: bool = False

    async def commit(self, session: AsyncSession) -> None:
        """Commit a session's transaction together with the receipt, or raise why it must not."""
        await session.run_sync(self._write_receipt)
        self.committing = True
        try:
            await session.commit()
        except Exception:
            self.committing = False
            raise
        self.committed = True

    def _write_receipt(self, session: Session) -> None:
        if self.over:
            raise self._run_over("the relay has given this run up")
        if self.committed:
            raise self._second_commit()
        # Sorted, so that old and new code take the two in one order.
        names = sorted({self.handler, self.former or self.handler})
        written = execute(
            session.connection(),
            in_schema(WRITE_RECEIPT, self.schema),
            (self.event_id, names, self.relay, self.epoch, None),
        )
        if self.committing and written == "duplicate":
            # Only what is durable stands in the way: of two at once this one has waited for the other, or the answer
            # to an earlier one was lost.
            self.committed = True
        if self.committed:
            raise self._second_commit()
        if written == "duplicate":
            self.handled = True
            raise AlreadyHandled(f"handler {self.handler!r} has handled event {self.event_id} already")
        if written == "old snapshot":
            raise SnapshotTooOld(
                f"handler {self.handler!r} may not commit its effect of event {self.event_id}: its transaction cannot "
                "see whether its relay still holds its lease; end it sooner, or use the isolation level READ COMMITTED"
            )
        if written != "written":
            self.refused = True
            raise self._run_over("the relay has lost its lease")

    def _second_commit(self) -> SecondCommit:
        return SecondCommit(
            f"handler {self.handler!r} commits a second time while it handles event {self.event_id}; "
            "put all of its effects into one commit, or let its first one emit an event for the rest"
        )

    def _run_over(self, reason: str) -> RunOver:
        return RunOver(
            f"handler {self.handler!r} may not commit its effect of event {self.event_id}: {reason}, "
            "and another run of it is or will be under way"
        )


_run: ContextVar[HandlerRun | None] = ContextVar("outbox_handler_run", default=None)


def current_run() -> HandlerRun | None:
    """Return the run that a relay has under way here, if one has."""
    return _run.get()


class running:  # noqa: N801 - read as a verb
    """Let units of work inside the block write this run's receipt, or none."""

    # A class, as `outbox_kernel.kernel.context.handling` is: both stand around every run.
    __slots__ = ("_run", "_token")

    def __init__(self, run: HandlerRun | None) -> None:
        self._run = run

    def __enter__(self) -> None:
        """Begin."""
        self._token = _run.set(self._run)

    def __exit__(self, *_: object) -> None:
        """End."""
        _run.reset(self._token)
