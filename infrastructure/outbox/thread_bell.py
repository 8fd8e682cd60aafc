"""The bell that a thread rings: for engines whose driver waits, psycopg's synchronous half.

The thread is a daemon, so that it keeps no program from its end; what is untold then is told by the farewell, which
has a deadline. Like any connection psycopg's may take longer to be made; that delays nothing but what it is to tell.
"""

from __future__ import annotations

import logging
import selectors
import threading
from typing import TYPE_CHECKING, Any

import attrs
from sqlalchemy.exc import SQLAlchemyError

from outbox_kernel.infrastructure.outbox.limits import ANSWER_SECONDS_MAX, BURST_SECONDS, LINGER_SECONDS
from outbox_kernel.infrastructure.postgres.connections import TROUBLE

if TYPE_CHECKING:
    from sqlalchemy import Engine

_log = logging.getLogger("outbox.wake_up")


@attrs.define(eq=False)
class ThreadBell:
    """Rings the relays of one database from any thread of the process; a burst of rings is one."""

    engine: Engine
    channel: str
    _turn: threading.Condition = attrs.Factory(threading.Condition)
    _thread: threading.Thread | None = None
    _rung: bool = False
    _leaving: bool = False

    def ring(self) -> None:
        """Have the relays told soon."""
        with self._turn:
            self._rung, self._leaving = True, False
            self._turn.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._tell_all, name="outbox-wake-up", daemon=True)
                self._start(self._thread)

    def silence(self) -> None:
        """Have what is untold told, and the connection let go; wait for it, though not long."""
        with self._turn:
            self._leaving = True
            self._turn.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(ANSWER_SECONDS_MAX)

    def _start(self, thread: threading.Thread) -> None:
        try:
            thread.start()
        except RuntimeError as error:  # the process ends, or has no thread left to give
            self._thread = None
            _missed(error)

    def _tell_all(self) -> None:
        connection: Any = None
        while self._is_rung():
            connection = self._tell(connection)
            self._pause()
        _hang_up(connection)

    def _is_rung(self) -> bool:
        with self._turn:
            self._turn.wait_for(lambda: self._rung or self._leaving, LINGER_SECONDS)
            rung, self._rung = self._rung, False
            if not rung:
                self._thread = None  # who rings from now on starts another
            return rung

    def _pause(self) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._leaving, BURST_SECONDS)

    def _tell(self, connection: Any) -> Any:
        """Tell on a connection, or on a new one; return the one to tell on next."""
        trouble = (*TROUBLE, SQLAlchemyError, self.engine.dialect.loaded_dbapi.Error)
        statement = f'NOTIFY "{self.channel}"'
        if connection is not None:
            try:
                _say(connection, statement)
            except trouble:
                _hang_up(connection)  # the server has gone and come back since the last time
            else:
                return connection
        connection = None
        try:
            connection = self._connect()
            _say(connection, statement)
        except trouble as error:
            _hang_up(connection)
            _missed(error)
            return None
        return connection

    def _connect(self) -> Any:
        # By a pool of its own, so that the application's keeps all that it has.
        fairy: Any = self.engine.pool.recreate().connect()
        connection = fairy.driver_connection
        fairy.detach()
        return connection


def _say(connection: Any, statement: str) -> None:
    """Execute with a deadline, for which psycopg has only what libpq has."""
    link = connection.pgconn
    link.send_query(statement.encode())
    link.flush()
    with selectors.DefaultSelector() as selector:
        selector.register(link.socket, selectors.EVENT_READ)
        while link.is_busy():
            if not selector.select(ANSWER_SECONDS_MAX):
                raise TimeoutError("no answer in time")
            link.consume_input()
    while (result := link.get_result()) is not None:
        if result.error_message:
            raise connection.OperationalError(result.error_message.decode(errors="replace"))


def _hang_up(connection: Any) -> None:
    if connection is not None:
        connection.close()


def _missed(error: BaseException) -> None:
    _log.info(
        "relays are not told of a commit and find it at their next poll: %s",
        error,
        extra={"action": "wake_up.missed"},
    )
