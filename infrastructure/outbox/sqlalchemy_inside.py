"""What the outbox uses of SQLAlchemy's inside, which that promises nobody: all of it is named here.

Capture has to know at each moment what a session is about to write and what a rollback would undo, and SQLAlchemy's
events tell only a part of that. Every other module calls a function of this one, or overrides a method that is listed
here; a test of the house sees to it. `tests/unit/insides` tries each name on the version installed: where a new one
fails there, this is the module to mend.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import QueuePool, RootTransaction, event
from sqlalchemy.orm.loading import _new_runid
from sqlalchemy.orm.session import SessionTransactionState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from sqlalchemy import Connection, Dialect, Engine, Pool
    from sqlalchemy.orm import InstanceState, Session, SessionTransaction

KNOWN_FROM = "2.0.40"
KNOWN_UP_TO = "2.1"
"""The versions that this holds for, the last one whatever its third number."""

USED = {
    "Session._autobegin_t": "`begin()` refuses where a transaction is open, and returns no savepoint's",
    "Session._transaction": "`get_transaction()` gives the outermost one, and nothing gives that of a flush",
    "Session._new": "`new` makes a set of all objects at each call, of which a flush has several",
    "Session._deleted": "`deleted` has the objects, of which some may be collected; their states are needed",
    "Session._flushing": "no event tells of a flush that has nothing to write",
    "Session._is_clean": "`new`, `dirty` and `deleted` make a set each, and every query asks",
    "SessionTransaction._begin": "only a flush begins a part of a transaction, and fails with all of it",
    "SessionTransaction._state": "`is_active` does not tell one that is prepared from one that has ended",
    "SessionTransaction._prepare_impl": "`prepare()` is for two phases only; the last flush comes before the receipt",
    "SessionTransaction._connections": "`connection()` opens those that it is asked for, and lists none",
    "SessionTransaction._new": "no event tells, after the fact, what a savepoint has stored first",
    "SessionTransaction._dirty": "the same of what it has changed, and this is what its rollback loads anew",
    "SessionTransaction._deleted": "the same of what it has deleted",
    "Connection._has_events": "whether anybody listens has no public name",
    "Connection._echo": "whether statements are logged has none either",
    "Connection._cursor_execute": "every public way makes a context for each statement, a fiftieth of a commit",
    "Connection._nested_transaction": "the savepoint of a connection can be asked for, and not taken away",
    "Engine._has_events": "whether anybody listens has no public name",
    "Engine._proxied": "an engine does not tell whose `execution_options()` has made it",
    "Dialect._has_events": "whether anybody listens has no public name",
    "Dialect._on_connect_isolation_level": "what `create_engine(isolation_level=…)` was told is told nowhere else",
    "QueuePool._max_overflow": "`overflow()` tells how many there are above the size, not how many there may be",
    "InstanceState._expire": "`Session.expire` takes children along, and refuses what is not stored",
    "InstanceState._deleted": "a rollback that makes an object new again leaves it marked as deleted",
    "ClauseElement._is_lambda_element": "lambdas are of two classes, which share no base of their own",
    "IdentityMap._modified": "what is expired is to be no longer changed, and nothing else takes it out",
    "loading._new_runid": "the numbers of loads are given out here alone",
    "execution_options._sa_orm_load_options": "only `do_orm_execute` tells it, and that event costs every statement",
    "load_options._lazy_loaded_from": "the same",
    "AsyncAdapt_asyncpg_cursor._connection": "the driver's own `executemany` tells no count",
    "ClassManager._sa_class_manager": "`inspect` is SQLAlchemy's, which the kernel does not import",
    "instance._sa_instance_state": "the same",
    "QueryableAttribute._is_internal_proxy": "the same of what tells a composite's part from a column",
}
"""What is read or called, by its owner's name, and why there is no public way.

The last three are in `kernel/mapped.py`.
"""

OVERRIDDEN = {
    "Session._execute_internal": "where every statement comes through, those that load an attribute included",
    "Session._get_impl": "where `get` and `get_one` meet, here and in an AsyncSession",
    "Session._bulk_save_mappings": "where the bulk methods meet, which call no listener",
    "Session._expire_state": "where `expire` and `refresh` meet, after the latter's flush",
    "SessionTransaction._connection_for_bind": "where a session gets its connection; an atomic run has one for all",
    "SessionTransaction._restore_snapshot": "where a rollback loads anew what was changed",
    "SessionTransaction._remove_snapshot": "where a savepoint hands over what it has changed",
    "Connection._execute_context": "where a statement is sent, and an atomic run lets one at a time",
    "Connection._cursor_execute": "where it is sent without a context",
    "Connection._exec_single_context": "where a row is sent, and can take its event along",
    "Connection._exec_insertmany_context": "where many rows are sent, before which a waiting event goes",
    "Connection._savepoint_impl": "where a savepoint is begun, and an atomic run names it",
    "Connection._rollback_to_savepoint_impl": "where one is undone",
    "Connection._release_savepoint_impl": "where one is released",
}
"""What a class of ours puts something in front of, and why no event does for it."""


# --- sessions -----------------------------------------------------------------------------------------


def begun_transaction(session: Session) -> SessionTransaction:
    """Return the innermost transaction, that of a flush included; begin one if there is none."""
    return session._autobegin_t()


def innermost_transaction(session: Session) -> SessionTransaction | None:
    """Return the innermost transaction, if there is one."""
    return session._transaction


def new_objects(session: Session) -> Collection[object]:
    """Return the objects that the next flush inserts, in the order in which they were added."""
    return session._new.values()


def is_new(session: Session, state: InstanceState[Any]) -> bool:
    """Whether the next flush inserts this object."""
    return state in session._new


def has_deleted(session: Session) -> bool:
    """Whether the next flush deletes anything."""
    return bool(session._deleted)


def is_flushing(session: Session) -> bool:
    """Whether a flush is under way."""
    return session._flushing


def has_nothing_to_flush(session: Session) -> bool:
    """Whether a flush, if none is under way, would do nothing and ask no listener."""
    return not session._flushing and session._is_clean()


@contextmanager
def flushing(session: Session) -> Iterator[None]:
    """Let the session take what is inside the block for part of a flush."""
    session._flushing = True
    try:
        yield
    finally:
        session._flushing = False


def fail_flush(session: Session) -> None:
    """Undo all of the innermost transaction, as a flush does that has failed."""
    session._autobegin_t()._begin().rollback(_capture_exception=True)


def filled_by(options: dict[str, Any]) -> InstanceState[Any] | None:
    """Return the object that a query fills an attribute of, such as a collection, if it is made for that."""
    load = (options.get("execution_options") or {}).get("_sa_orm_load_options")
    return None if load is None else load._lazy_loaded_from


# --- their transactions -------------------------------------------------------------------------------


def is_prepared(transaction: SessionTransaction) -> bool:
    """Whether it has flushed all, and only the COMMIT is left."""
    return transaction._state is SessionTransactionState.PREPARED


def prepare(transaction: SessionTransaction) -> None:
    """Flush all that is left to flush, as a commit does first."""
    transaction._prepare_impl()


@contextmanager
def connecting(transaction: SessionTransaction) -> Iterator[None]:
    """Say inside the block, as SQLAlchemy does, that a connection is being made, and the transaction not to be used."""
    transaction._state = SessionTransactionState.PROVISIONING_CONNECTION
    try:
        yield
    finally:
        transaction._state = SessionTransactionState.ACTIVE


def is_connected(transaction: SessionTransaction, bind: Any) -> bool:
    """Whether it has a connection by this bind already."""
    return bind in transaction._connections


def connect(transaction: SessionTransaction, connection: Connection, own: Any) -> None:
    """Let it write through a connection whose transaction, `own`, ends with this one, and which it does not close."""
    entry: Any = (connection, own, True, False)
    transaction._connections[connection] = transaction._connections[connection.engine] = entry


def connections_committed_by(transaction: SessionTransaction) -> set[Connection]:
    """Return the connections whose transactions end with this one; what it has merely joined is another's to commit."""
    return {
        connection
        for connection, own, should_commit, _ in transaction._connections.values()
        if should_commit and isinstance(own, RootTransaction)
    }


def has_stored(transaction: SessionTransaction, state: InstanceState[Any]) -> bool:
    """Whether it has inserted or changed the object's row."""
    return state in transaction._new or state in transaction._dirty


def states_within(transaction: SessionTransaction) -> Iterator[InstanceState[Any]]:
    """Return all objects at hand, and those that the transaction and the next flush have deleted."""
    session = transaction.session
    return chain(session.identity_map.all_states(), transaction._deleted, session._deleted)


def take_for_changed(transaction: SessionTransaction, states: Iterable[InstanceState[Any]]) -> None:
    """Let a savepoint's rollback load these objects anew, as it does with what it knows to be changed."""
    transaction._dirty.update(dict.fromkeys(states, True))


def restore_objects(transaction: SessionTransaction) -> None:
    """Take from the objects what the transaction has brought them, as its rollback does."""
    transaction._restore_snapshot()


def hand_objects_over(savepoint: SessionTransaction) -> None:
    """Leave what a savepoint has changed to the transaction around it, as its release does."""
    savepoint._remove_snapshot()


# --- objects and statements ---------------------------------------------------------------------------


def next_load() -> int:
    """Return a number above that of every load so far; the number of the last one stands on each object."""
    return _new_runid()


def expire_alone(state: InstanceState[Any], session: Session | None = None) -> None:
    """Expire one object and none of its children; in a session it counts as changed no longer."""
    state._expire(state.dict, set() if session is None else session.identity_map._modified)


def forget_deletion(state: InstanceState[Any]) -> None:
    """Let an object that a rollback has made new again count as deleted no longer."""
    if state._deleted:
        del state._deleted


def is_lambda(element: Any) -> bool:
    """Whether a part of a statement is a function that makes it, whose outcome does not show."""
    return bool(getattr(element, "_is_lambda_element", False))


# --- connections, engines, pools ----------------------------------------------------------------------


def is_watched(connection: Connection) -> bool:
    """Whether somebody hears of what is executed, and would see a difference."""
    return (
        connection._has_events
        or connection.engine._has_events
        or connection.dialect._has_events
        or connection._echo
    )


def execute_bare(connection: Connection, cursor: Any, statement: str, parameters: Any) -> None:
    """Execute on a cursor, with the driver's errors told as SQLAlchemy's, and with no context."""
    connection._cursor_execute(cursor, statement, parameters)


def parts_without_savepoint(connection: Connection) -> dict[str, Any]:
    """Return all that a connection is made of, for another object of its class that begins savepoints of its own."""
    return {**connection.__dict__, "_nested_transaction": None}


def stand_before_driver(cursor: Any, stand_in: Any) -> Any:
    """Let a cursor of asyncpg's dialect call something else in place of its driver's connection; return that."""
    driver, cursor._connection = cursor._connection, stand_in
    return driver


def root_of(engine: Engine) -> Engine:
    """Return the engine whose pool it is: `execution_options` makes another one at each call."""
    while (root := getattr(engine, "_proxied", None)) is not None:
        engine = root
    return engine


def listen_unheard(engine: Engine, name: str, listener: Callable[..., None]) -> None:
    """Listen to an event of an engine's that is told whether anybody listens or not, and slow no statement.

    Any listener of an engine makes SQLAlchemy ask at each statement who listens, which is a thirtieth of a commit.
    """
    heard = vars(engine).get("_has_events", False)
    event.listen(engine, name, listener)
    if not heard:
        vars(engine).pop(
            "_has_events", None
        )  # what the engine's class says of all engines has to show through


def isolation_level_on_connect(dialect: Dialect) -> str | None:
    """Return the isolation level that an engine was created with, if it was told one."""
    level: str | None = getattr(dialect, "_on_connect_isolation_level", None)
    return level


def connections_max(pool: Pool) -> int | None:
    """Return how many connections a pool may have; None: any number."""
    if not isinstance(pool, QueuePool) or pool._max_overflow < 0:  # -1 is any number
        return None
    return pool.size() + pool._max_overflow
