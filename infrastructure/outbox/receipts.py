"""Receipts: a handler's effect and the note that it happened commit together, or neither does (R3, R6)."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import attrs
from sqlalchemy.exc import DBAPIError

from outbox_kernel.infrastructure.errors import AlreadyHandled, NotOneTransaction, RunOver, SnapshotTooOld
from outbox_kernel.infrastructure.outbox.conflicts import sqlstate
from outbox_kernel.infrastructure.outbox.executing import execute
from outbox_kernel.infrastructure.outbox.sql.named import arguments
from outbox_kernel.infrastructure.outbox.sql.receipts import DATABASE, HAS_WRITTEN, WRITE_RECEIPT
from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import (
    connections_committed_by,
    is_prepared,
    prepare,
)
from outbox_kernel.kernel.context import current_served
from outbox_kernel.kernel.errors import KernelError, SecondCommit

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from uuid import UUID

    from sqlalchemy import Connection, Engine, Pool
    from sqlalchemy.orm import Session, SessionTransaction

    from outbox_kernel.infrastructure.outbox.atomic import OneTransaction
    from outbox_kernel.kernel.context import Delivery

_READ_ONLY = "25006"


@attrs.frozen
class Terms:
    """What all runs of a handler commit under."""

    handler: str
    relay: UUID | None = None
    """Whose lease lets them commit; with no relay they take no receipts."""
    epoch: int = 0
    former: str | None = None
    """The name that the handler was renamed from."""
    schema: str | None = None
    database: str | None = None
    """Where the outbox is, as DATABASE tells it; None: wherever the handler writes."""

    @property
    def names(self) -> list[str]:
        """The names under which it may have handled an event."""
        return sorted({self.handler, self.former or self.handler})


class HandlerRun:
    """One run of one handler, for as long as it may commit."""

    # These are the class's until something happens, which mostly does not: each that is set costs every run.
    others: tuple[UUID, ...] = ()
    """The other events of a batch, of which it has its effect at once."""
    committed: bool = False
    committing: bool = False
    """Its receipt is written, and the commit is under way."""
    unheard: bool = False
    """Its receipt was written, and the commit ended in an error: the receipt is there, or is not."""
    handled: bool = False
    """It met the receipt of an earlier run, whatever the handler made of that."""
    refused: bool = False
    """It was not let commit, its lease lost or its time over, whatever the handler made of that."""
    second: SecondCommit | None = None
    """It would have committed a second effect, whatever the handler made of that."""
    over: bool = False
    """Its time is over, or it is: nothing of it may commit any more."""
    left_behind: Future[Any] | None = None
    """What goes on in a thread although the run was ended, which cannot end it."""
    whole: OneTransaction | None = None
    """The transaction of all that it does, if it is atomic."""
    _waited_seconds: float = 0.0
    _waiting_since: float | None = None

    def __init__(self, delivery: Delivery, terms: Terms) -> None:
        self.terms, self._delivery = terms, delivery

    @property
    def delivery(self) -> Delivery:
        """What the handler may read of its event."""
        return self._delivery

    @property
    def event_id(self) -> UUID:
        """Its event, or the last of a batch."""
        return self.delivery.event_id

    @property
    def handler(self) -> str:
        """Whose run it is."""
        return self.terms.handler

    def secrets(self) -> Sequence[str]:
        """Return what no error of it may tell: it was in sealed fields (O6)."""
        return ()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let nothing inside the block count as the handler's own time."""
        self._waiting_since = time.monotonic()
        try:
            yield
        finally:
            self._waited_seconds, self._waiting_since = self.waited_seconds(time.monotonic()), None

    def waited_seconds(self, now: float) -> float:
        """Return how long it has waited for its turn so far."""
        return self._waited_seconds + (0.0 if self._waiting_since is None else now - self._waiting_since)

    def commit(
        self,
        transaction: SessionTransaction,
        commit: Callable[[], None],
        may_have_effect: Callable[[Session], bool],
    ) -> None:
        """Commit a session's outermost transaction, with the receipt if it has an effect, or raise why it must not."""
        if transaction.session.twophase:
            raise KernelError(
                f"a session with twophase=True commits while handler {self.handler!r} runs, and a prepared transaction "
                "can take no receipt; make the session without it"
            )
        if not is_prepared(transaction):
            prepare(transaction)  # with its last flush, so that all it writes is known
        has_effect = may_have_effect(transaction.session)
        try:
            if has_effect:
                has_effect = self._take_receipt(
                    connections_committed_by(transaction), joined=self.whole is None
                )
        except BaseException:
            transaction.rollback()
            raise
        if not has_effect:
            commit()
            return
        try:
            self._commit(commit)
        finally:
            # What comes after the COMMIT, such as a listener of the application's, may fail too.
            self.committed = not is_prepared(transaction)

    def commit_whole(self, connection: Connection, commit: Callable[[], None]) -> None:
        """Commit all that an atomic run has done together with the receipt, or raise why it must not."""
        if self._take_receipt([connection]):
            self._commit(commit)
        else:
            commit()

    def _commit(self, commit: Callable[[], None]) -> None:
        self.committing = True
        try:
            commit()
            self.committed = True
        except BaseException:
            self.unheard = True
            raise
        finally:
            self.committing = False

    def _take_receipt(self, connections: Iterable[Connection], *, joined: bool = True) -> bool:
        """Write the receipt where the effect is; return whether there is one."""
        terms = self.terms
        if terms.relay is None and joined:
            return False
        places = [each for each in connections if is_in(each, terms.database)]
        if self.over or self.committed or not joined or len(places) > 1:
            places = [each for each in places if execute(each, HAS_WRITTEN, ())]
        if not places:
            return False
        if not joined:
            raise NotOneTransaction(
                f"handler {self.handler!r} is atomic, and commits through a session that is no part of its one "
                "transaction: synchronous, or begun before the handler was; use an AsyncSession made inside, or drop "
                "atomic=True"
            )
        if self.over:
            self.refused = True
            raise self._run_over("the relay has given this run up")
        if self.committed or len(places) > 1:
            raise self._second_commit()
        values = {
            # Sorted, so that runs of one batch, and old and new code, take them in one order.
            "event_ids": sorted((self.event_id, *self.others)),
            "names": terms.names,
            "relay": terms.relay,
            "epoch": terms.epoch,
            "now": None,
        }
        text, names = WRITE_RECEIPT.in_schema(terms.schema)
        try:
            written = execute(places[0], text, tuple(arguments(names, values)))
        except DBAPIError as error:
            if sqlstate(error) != _READ_ONLY:
                raise
            return False  # it can have no effect, so that it is no harm that the server ends it by a rollback
        if written == "no effect":
            return False
        self._check(written)
        return True

    def _check(self, written: str) -> None:
        if self.committed or (self.committing and written == "duplicate"):
            raise self._second_commit()  # of two at once this one has waited for the other
        if written == "duplicate":
            # Of this run, if the answer to its commit was lost: then its effect is no failure that could make it dead.
            self.committed = self.unheard
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
        self.second = SecondCommit(self.handler, self.event_id)
        return self.second

    def _run_over(self, reason: str) -> RunOver:
        return RunOver(
            f"handler {self.handler!r} may not commit its effect of event {self.event_id}: {reason}, "
            "and another run of it is or will be under way"
        )


# By the pool, which engines with other options share.
_databases: WeakKeyDictionary[Pool, str] = WeakKeyDictionary()


def is_in(connection: Connection, database: str | None) -> bool:
    """Whether a connection writes into this database, by whatever engine, driver and address."""
    if is_known_in(connection.engine, database):
        return True
    if connection.dialect.name != "postgresql":
        return False
    # Asked anew, since it may have become the same.
    return database_of(connection) == database


def database_of(connection: Connection) -> str:
    """Return which database a connection leads to, as the server tells it."""
    found: str = execute(connection, DATABASE, ())
    _databases[connection.engine.pool] = found
    return found


def is_known_in(engine: Engine, database: str | None) -> bool:
    """Whether an engine is known to lead to this database; None: whichever it is."""
    return database is None or _databases.get(engine.pool) == database


def current_run() -> HandlerRun | None:
    """Return the run that commits here with a receipt, if one is under way."""
    served = current_served()
    return served if isinstance(served, HandlerRun) else None
