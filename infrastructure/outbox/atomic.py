"""One transaction for all that a handler with atomic=True does: its sessions share a connection (R6).

Each session's transaction is a part of it, begun by a savepoint. Its commit makes nothing durable: that is done with
the receipt, when the handler returns. Its rollback goes back to the savepoint, which would take along whatever other
sessions have done since. Where there is such, nothing of the run may commit any more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, cast

import attrs
from sqlalchemy import Engine
from sqlalchemy.orm.session import SessionTransactionState
from sqlalchemy.util import await_only, greenlet_spawn

from outbox_kernel.infrastructure.errors import NotOneTransaction
from outbox_kernel.infrastructure.outbox.capture_state import known_state_of
from outbox_kernel.infrastructure.outbox.receipts import current_run, is_in, is_known_in
from outbox_kernel.infrastructure.outbox.transaction import (
    CapturedTransaction,
    has_written,
    has_written_events,
)
from outbox_kernel.infrastructure.outbox.wake_up import wake_relays

if TYPE_CHECKING:
    from types import TracebackType

    from sqlalchemy import Connection, RootTransaction
    from sqlalchemy.orm import Session, SessionTransaction

    from outbox_kernel.infrastructure.outbox.receipts import HandlerRun


class OneTransaction:
    """`async with OneTransaction(run):` what sessions do inside commits when it ends well, or not at all."""

    def __init__(self, run: HandlerRun) -> None:
        self.run = run
        self.broken: NotOneTransaction | None = None
        """Why nothing of it may commit any more."""
        self.rung: set[tuple[Engine, str]] = set()
        """Whose relays are told once it has committed."""
        self._connection: Connection | None = None
        self._root: RootTransaction | None = None
        self._options: dict[str, Any] = {}
        self._parts: list[Part] = []
        self._moment = 0
        # Sessions may be at work in several tasks.
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Begin, with nothing so far."""
        self.run.whole = self
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit with the receipt, or roll back."""
        try:
            if error is None:
                await greenlet_spawn(self._commit)
        finally:
            # Shielded: a cancellation must not leave the connection to the garbage collector.
            await asyncio.shield(asyncio.create_task(greenlet_spawn(self._close)))

    def _commit(self) -> None:
        for part in reversed(self._parts):
            part.rollback()  # of a session that was left open, and never committed
        if self.broken is not None:
            raise self.broken
        if self._connection is None or self._root is None:
            return
        self.run.commit_whole(self._connection, self._root.commit)
        for engine, channel in self.rung:
            wake_relays(engine, channel)

    def _close(self) -> None:
        self.broken = self.broken or NotOneTransaction(
            f"handler {self.run.handler!r} is atomic, and a session of it is used after it has ended"
        )
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- for the sessions -------------------------------------------------------------------------------

    def takes(self, bind: object) -> bool:
        """Whether a session's transaction by this bind is a part of it."""
        if not (isinstance(bind, Engine) and bind.dialect.is_async):
            return False
        if is_known_in(bind, self.run.database):
            return True
        with bind.connect() as connection:
            return is_in(connection, self.run.database)

    def begin(self, transaction: AtomicTransaction, engine: Engine, options: Any) -> tuple[Connection, Part]:
        """Begin a session's part, and the whole with the first of them."""
        await_only(self._turn.acquire())
        try:
            connection = self._connected(engine, dict(options or {}))
            name = f"outbox_part_{len(self._parts) + 1}"
            connection.dialect.do_savepoint(connection, name)
            part = Part(self, transaction, name, self.moment())
            self._parts.append(part)
        finally:
            self._turn.release()
        return connection, part

    def _connected(self, engine: Engine, options: dict[str, Any]) -> Connection:
        if self._connection is None:
            connection = engine.connect()
            try:
                if options:
                    connection = connection.execution_options(**options)
                self._root = connection.begin()
            except BaseException:
                connection.close()
                raise
            self._connection, self._options = connection, options
        elif self._connection.engine is not engine or options != self._options:
            raise NotOneTransaction(
                f"handler {self.run.handler!r} is atomic, so that its sessions share one connection, and they ask for "
                "different engines or options of it; let them all have the same"
            )
        return self._connection

    def go_back(self, part: Part) -> None:
        """Undo a session's part, unless others have been at work since it began."""
        await_only(self._turn.acquire())
        try:
            others = self._others(part, part.since)
            if others and part.has_written:
                self._break_up()
            connection = self._connection
            if connection is not None and not others and self._is_alive():
                connection.dialect.do_rollback_to_savepoint(connection, part.name)
        finally:
            self._turn.release()

    def go_back_to_savepoint(self, part: Part, since: int) -> None:
        """Let a session undo what it has done since a moment, unless others have been at work since."""
        if self._others(part, since):
            self._break_up()

    def _break_up(self) -> None:
        self.broken = self.broken or NotOneTransaction(
            f"handler {self.run.handler!r} is atomic, and one of its sessions rolls back while another one is at "
            "work in the same transaction, whose work would go with it: end the one before the other begins"
        )

    def _others(self, mine: Part, since: int) -> bool:
        """Whether a rollback to that moment would undo what another session has written."""
        return any(
            part.session is not mine.session and part.has_written and part.may_have_worked(since, mine.task)
            for part in self._parts
        )

    def _is_alive(self) -> bool:
        return self._root is not None and self._root.is_active and self.broken is None

    def moment(self) -> int:
        """Return a number that is above all before."""
        self._moment += 1
        return self._moment


@attrs.define(eq=False)
class Part:
    """A session's transaction within an atomic run's, where SQLAlchemy expects a transaction of its own."""

    whole: OneTransaction
    transaction: AtomicTransaction
    name: str
    since: int
    until: int | None = None
    last: int = attrs.field(default=attrs.Factory(lambda part: part.since, takes_self=True))
    """When it last asked for its connection, to send a statement."""
    task: asyncio.Task[Any] | None = attrs.field(factory=asyncio.current_task)
    """Which task has sent them all."""

    @property
    def session(self) -> Session:
        """Whose part it is."""
        return self.transaction.session

    @property
    def is_active(self) -> bool:
        """Whether it has neither committed nor rolled back."""
        return self.until is None

    @property
    def has_written(self) -> bool:
        """Whether it may have anything to undo."""
        root = self.transaction
        wrote = root.may_have_written or root.wrote_events or root.wrote_before_load is not None
        return wrote or has_written(self.session) or has_written_events(self.session)

    def note_use(self) -> None:
        """Note that it is about to send a statement."""
        self.last = self.whole.moment()
        if self.task is not asyncio.current_task():
            self.task = None

    def may_have_worked(self, since: int, task: asyncio.Task[Any] | None) -> bool:
        """Whether a statement of it may have been sent after a moment of somebody who is at work in a task."""
        if self.task is None or self.task is not task:
            return self.until is None or self.until > since  # one may be on its way right now
        return self.last > since

    def commit(self) -> None:
        """Leave it to the run's commit."""
        state = known_state_of(self.session)
        capture: Any = getattr(self.session, "_outbox_capture", None)
        if state is not None and state.wrote_by is not None and capture.channel is not None:
            self.whole.rung.add((state.wrote_by, capture.channel))
            state.wrote_by = None  # nothing is there yet for the relays to see
        self.until = self.whole.moment()

    def rollback(self) -> None:
        """Undo it, as far as it stands alone."""
        if self.is_active:
            try:
                self.whole.go_back(self)
            finally:
                self.until = self.whole.moment()

    close = rollback


class AtomicTransaction(CapturedTransaction):
    """A transaction or savepoint of a captured session in an atomic run."""

    whole: OneTransaction
    since: int
    part: Part | None = None
    """Of the outermost alone, once it has sent a statement."""

    @property
    def _root(self) -> AtomicTransaction:
        transaction: Any = self
        while transaction.parent is not None:
            transaction = transaction.parent
        return cast("AtomicTransaction", transaction)

    def _connection_for_bind(self, bind: Any, execution_options: Any) -> Connection:
        if self.whole.broken is not None:
            raise self.whole.broken
        if self._parent is not None or bind in self._connections or not self.whole.takes(bind):
            connection = super()._connection_for_bind(bind, execution_options)
            if (part := self._root.part) is not None:
                part.note_use()
            return connection
        self._state = SessionTransactionState.PROVISIONING_CONNECTION  # as SQLAlchemy says it meanwhile
        try:
            connection, self.part = self.whole.begin(self, bind, execution_options)
            # Who it is, its transaction, whether that ends with this one, and the connection too.
            entry: Any = (connection, self.part, True, False)
            self._connections[connection] = self._connections[connection.engine] = entry
            self.session.dispatch.after_begin(self.session, self, connection)
        finally:
            self._state = SessionTransactionState.ACTIVE
        return connection

    def rollback(self, _capture_exception: bool = False, _to_root: bool = False) -> None:  # noqa: FBT001, FBT002
        """Roll back; that of a savepoint must take nothing of other sessions along either."""
        undone: Any = self
        while not undone.nested and undone.parent is not None:
            undone = undone.parent  # a flush that fails takes back what is around it
        part = self._root.part
        if undone.nested and part is not None:
            self.whole.go_back_to_savepoint(part, undone.since)
        super().rollback(_capture_exception, _to_root)


def after_transaction_create(_session: Session, transaction: SessionTransaction) -> None:
    """Make a transaction one of ours: a session has no hook for the class of its transactions."""
    run = current_run()
    if run is None or run.whole is None:
        transaction.__class__ = CapturedTransaction
        return
    transaction.__class__ = AtomicTransaction
    transaction.whole, transaction.since = run.whole, run.whole.moment()  # type: ignore[attr-defined]
