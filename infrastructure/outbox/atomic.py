"""One transaction for all that a handler with atomic=True does: its sessions share a connection (R6).

Each session's transaction is a part of it, with a savepoint of its own. Its commit makes nothing durable: that is done
with the receipt, when the handler returns. Its rollback goes back to the savepoint, if it may have written anything.
Where that would take along what another session has written since, nothing of the run may commit any more.

Each part has a connection object of its own, by which it is known who sends a statement: whoever holds on to one, and
whatever way it is used. Statements take turns.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

import attrs
from sqlalchemy import Connection, Engine
from sqlalchemy.util import await_only, greenlet_spawn

from outbox_kernel.infrastructure.errors import NotOneTransaction
from outbox_kernel.infrastructure.outbox.capture_state import known_state_of
from outbox_kernel.infrastructure.outbox.flush_batches import FlushConnection
from outbox_kernel.infrastructure.outbox.reads import only_reads
from outbox_kernel.infrastructure.outbox.receipts import current_run, database_of, is_in, is_known_in
from outbox_kernel.infrastructure.outbox.room import room_in
from outbox_kernel.infrastructure.outbox.savepoints import Savepoint, Savepoints
from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import (
    connect,
    connecting,
    is_connected,
    parts_without_savepoint,
)
from outbox_kernel.infrastructure.outbox.transaction import CapturedTransaction
from outbox_kernel.infrastructure.outbox.wake_up import wake_relays
from outbox_kernel.infrastructure.telemetry.metrics import written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from sqlalchemy import RootTransaction
    from sqlalchemy.orm import Session, SessionTransaction

    from outbox_kernel.infrastructure.outbox.receipts import HandlerRun


class OneTransaction:
    """`async with OneTransaction(run):` what sessions do inside commits when it ends well, or not at all."""

    def __init__(self, run: HandlerRun, seconds: float) -> None:
        self.run = run
        self._seconds = seconds  # that it may take at the most
        self.broken: NotOneTransaction | None = None
        """Why nothing of it may commit any more."""
        self.rung: set[tuple[Engine, str]] = set()
        """Whose relays are told once it has committed."""
        self.events_written = 0
        """What the parts have left to its commit."""
        self._connection: Connection | None = None
        self._root: RootTransaction | None = None
        self._savepoints: Savepoints | None = None
        self._options: dict[str, Any] = {}
        self._open: list[Part] = []
        self._left_open = False  # a session, when it came to the commit
        # Sessions may be at work in several tasks.
        self._turn = asyncio.Lock()
        self._whose_turn: asyncio.Task[Any] | None = None
        self._room: asyncio.Semaphore | None = None

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
        self._left_open = bool(self._open)
        for part in reversed(tuple(self._open)):
            part.rollback()  # of a session that was left open, and never committed
        self.check_unbroken()
        if self._connection is None or self._root is None or self._savepoints is None:
            return
        self._savepoints.check()  # since the server answers the COMMIT of what has failed with a rollback
        self.run.commit_whole(self._connection, self._root.commit)
        written.add(self.events_written)
        for engine, channel in self.rung:
            wake_relays(engine, channel)

    def _close(self) -> None:
        self.broken = self.broken or NotOneTransaction(
            f"handler {self.run.handler!r} is atomic, and a session of it is used after it has ended"
        )
        connection, self._connection = self._connection, None
        room, self._room = self._room, None
        try:
            if connection is not None:
                # A rollback is only left where something has failed, and that is told, not what this meets.
                with suppress(Exception):
                    self._give_back(connection)
        finally:
            if room is not None:
                room.release()

    def _give_back(self, connection: Connection) -> None:
        # A task that the run has left behind may have a statement under way, or go on fetching rows of one.
        spoilt = self._left_open or bool(self._open) or self._turn.locked()
        try:
            # Before all else: psycopg waits here for a statement that is under way, and must not be closed beneath it.
            if self._root is not None and self._root.is_active:
                self._root.rollback()
        except Exception:  # noqa: BLE001 - whatever it was, the pool would lend it as one that is rolled back
            spoilt = True
        if spoilt:
            connection.invalidate()
        connection.close()

    # --- for the sessions -------------------------------------------------------------------------------

    def takes(self, bind: object) -> bool:
        """Whether a session's transaction by this bind is a part of it."""
        if not (isinstance(bind, Engine) and bind.dialect.is_async):
            return False
        terms = self.run.terms
        if terms.database is not None and is_known_in(bind, terms.database):
            return True
        with bind.connect() as connection:
            if terms.database is None:
                # No relay has said where it is: where it begins.
                terms = self.run.terms = attrs.evolve(terms, database=database_of(connection))
            return is_in(connection, terms.database)

    def begin(self, transaction: AtomicTransaction, engine: Engine, options: Any) -> tuple[Connection, Part]:
        """Begin a session's part, and the whole with the first of them."""
        with self._in_turn():
            # The run may have ended during each wait: a task that it has left behind takes nothing for it any more.
            self.check_unbroken()
            whole = self._connected(engine, dict(options or {}))
        part = Part(self, transaction)
        part.begin_savepoint()
        self._open.append(part)
        return PartConnection(whole, part), part

    def _connected(self, engine: Engine, options: dict[str, Any]) -> Connection:
        if self._connection is None:
            self._enter(engine)
            connection = engine.connect()
            try:
                if options:
                    connection = connection.execution_options(**options)
                self._root = connection.begin()
                # It may wait for something else for longer than its engine lets a transaction be idle.
                patience = f"{self._seconds * 1_000:.0f}"
                connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {patience}")
                self.check_unbroken()
            except BaseException:
                connection.close()
                raise
            self._connection, self._options = connection, options
            self._savepoints = Savepoints(connection)
        elif self._connection.engine is not engine or options != self._options:
            raise NotOneTransaction(
                f"handler {self.run.handler!r} is atomic, so that its sessions share one connection, and they ask for "
                "different engines or options of it; let them all have the same"
            )
        return self._connection

    def _enter(self, engine: Engine) -> None:
        if self._room is None and (room := room_in(engine.pool)) is not None:
            with self.run.waiting():
                await_only(room.acquire())
            if self.broken is not None:
                room.release()
                raise self.broken
            self._room = room

    def check_unbroken(self) -> None:
        """Refuse what would be done for a run that cannot commit it."""
        if self.broken is not None:
            raise self.broken

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        task = asyncio.current_task()
        if self._whose_turn is task:
            yield  # a statement that SQLAlchemy sends for the sake of another one
            return
        await_only(self._turn.acquire())
        self._whose_turn = task
        try:
            yield
        finally:
            self._whose_turn = None
            self._turn.release()

    @property
    def savepoints(self) -> Savepoints:
        """Those of its transaction, which has begun."""
        return cast("Savepoints", self._savepoints)

    def send(self, part: Part, statement: object, send: Callable[[], Any]) -> Any:
        """Send a statement of a part."""
        with self._in_turn():
            self.check_unbroken()
            for savepoint in part.savepoints:
                self.savepoints.stand(savepoint)
            if not only_reads(str(statement)):
                self.savepoints.note_write(part)
            try:
                return send()
            except BaseException:
                self.savepoints.failed_by = part
                raise

    def go_back(self, part: Part, savepoint: Savepoint) -> None:
        """Undo what a session has done since, unless others have been at work."""
        with self._in_turn():
            if not self._is_alive() or self.savepoints.go_back(savepoint, part):
                return
            self.broken = NotOneTransaction(
                f"handler {self.run.handler!r} is atomic, and one of its sessions rolls back what another one has "
                "been at work on top of, in the same transaction, and whose work would go with it: end the one before "
                "the other begins"
            )

    def end(self, savepoint: Savepoint) -> None:
        """Leave what a session has done since to what is around it."""
        with self._in_turn():
            if self._is_alive():
                self.savepoints.check()
                self.savepoints.end(savepoint)

    def let_go(self, part: Part) -> None:
        """Forget a part that has ended."""
        self._open.remove(part)

    def _is_alive(self) -> bool:
        return self._root is not None and self._root.is_active and self.broken is None


@attrs.define(eq=False)
class Part:
    """A session's transaction within an atomic run's, where SQLAlchemy expects a transaction of its own."""

    whole: OneTransaction
    transaction: AtomicTransaction | None
    savepoints: list[Savepoint] = attrs.Factory(list)
    """Its own, and those that the session has begun inside it."""

    @property
    def is_active(self) -> bool:
        """Whether it has neither committed nor rolled back."""
        return self.transaction is not None

    def begin_savepoint(self) -> Savepoint:
        """Begin one inside those that it has."""
        self.savepoints.append(savepoint := self.whole.savepoints.new())
        return savepoint

    def release(self, name: str) -> None:
        """End one, and leave what was done since to what is around it."""
        self._end(name, self.whole.end)

    def go_back(self, name: str) -> None:
        """End one, and undo what was done since."""
        self._end(name, partial(self.whole.go_back, self))

    def _end(self, name: str, end: Callable[[Savepoint], None]) -> None:
        # Those inside it go with it, the youngest first.
        while any(each.name == name for each in self.savepoints):
            end(self.savepoints[-1])
            self.savepoints.pop()

    # --- what SQLAlchemy asks of a transaction ----------------------------------------------------------

    def commit(self) -> None:
        """Leave it to the run's commit."""
        transaction = cast("AtomicTransaction", self.transaction)
        session = transaction.session
        state = known_state_of(session)
        self.whole.events_written += transaction.events_written
        transaction.events_written = 0
        capture: Any = getattr(session, "_outbox_capture", None)
        if state is not None and state.wrote_by is not None and capture.channel is not None:
            self.whole.rung.add((state.wrote_by, capture.channel))
            state.wrote_by = None  # nothing is there yet for the relays to see
        self.release(self.savepoints[0].name)
        self._let_go()

    def rollback(self) -> None:
        """Undo it, as far as it stands alone."""
        if self.is_active:
            try:
                self.go_back(self.savepoints[0].name)
            finally:
                self._let_go()

    close = rollback

    def _let_go(self) -> None:
        self.savepoints.clear()
        self.transaction = None
        self.whole.let_go(self)


class PartConnection(Connection):
    """The connection of an atomic run, as one part of it holds it."""

    # As in what shares its dictionary: a flush's kind of connection.
    __slots__ = ()

    def __init__(self, whole: Connection, part: Part) -> None:
        self.__dict__ = parts_without_savepoint(whole) | {"_outbox_part": part}

    def _execute_context(
        self, dialect: Any, constructor: Any, statement: Any, *args: Any, **options: Any
    ) -> Any:
        part: Part = self.__dict__["_outbox_part"]
        send = partial(super()._execute_context, dialect, constructor, statement, *args, **options)
        return part.whole.send(part, statement, send)

    def _cursor_execute(self, cursor: Any, statement: Any, parameters: Any, context: Any = None) -> None:
        part: Part = self.__dict__["_outbox_part"]
        part.whole.send(
            part, statement, partial(super()._cursor_execute, cursor, statement, parameters, context)
        )

    def _savepoint_impl(self, name: str | None = None) -> str:  # noqa: ARG002 - one that no other part has
        return cast("Part", self.__dict__["_outbox_part"]).begin_savepoint().name

    def _rollback_to_savepoint_impl(self, name: str) -> None:
        cast("Part", self.__dict__["_outbox_part"]).go_back(name)

    def _release_savepoint_impl(self, name: str) -> None:
        cast("Part", self.__dict__["_outbox_part"]).release(name)

    def close(self) -> None:
        """Leave it open: it is the run's."""


class PartFlushConnection(FlushConnection, PartConnection):
    """That connection, as one step of a flush writes through it."""

    __slots__ = ()


class AtomicTransaction(CapturedTransaction):
    """A transaction or savepoint of a captured session in an atomic run."""

    whole: OneTransaction
    part: Part | None = None
    """Of the outermost alone, once it has sent a statement."""

    def _connection_for_bind(self, bind: Any, execution_options: Any) -> Connection:
        self.whole.check_unbroken()
        if self.parent is not None or is_connected(self, bind) or not self.whole.takes(bind):
            return super()._connection_for_bind(bind, execution_options)
        with connecting(self):
            connection, self.part = self.whole.begin(self, bind, execution_options)
            connect(self, connection, self.part)
            self.session.dispatch.after_begin(self.session, self, connection)
        return connection

    def _flush_connection(self, connection: Connection) -> FlushConnection:
        kind = PartFlushConnection if isinstance(connection, PartConnection) else FlushConnection
        return kind(connection, known_state_of(self.session))


def after_transaction_create(_session: Session, transaction: SessionTransaction) -> None:
    """Make a transaction one of ours: a session has no hook for the class of its transactions."""
    run = current_run()
    if run is None or run.whole is None:
        transaction.__class__ = CapturedTransaction
        return
    transaction.__class__ = AtomicTransaction
    transaction.whole = run.whole  # type: ignore[attr-defined]
