"""Wake-up: tell the relays after the commit, off the commit's path (R10).

NOTIFY inside the writing transaction would make all commits of the server stand in one line. So it is sent after the
commit, on a connection of its own: at once after a quiet moment, together with those that follow in a burst.
What is not told, because the process ends or the database is gone, a relay finds at its next poll.

An engine whose driver awaits has a bell in each event loop that commits by it, any other one for all threads.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from outbox_kernel.infrastructure.outbox.loop_bell import LoopBell
from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import listen_unheard, root_of
from outbox_kernel.infrastructure.outbox.thread_bell import ThreadBell

if TYPE_CHECKING:
    from sqlalchemy import Engine

_log = logging.getLogger("outbox.wake_up")

# By the ids of an engine and a loop, which are theirs alone while a bell holds both. Nothing holds a bell but its task
# or thread: once that has hung up, engine and loop are free to go.
_bells: WeakValueDictionary[tuple[int, int], LoopBell | ThreadBell] = WeakValueDictionary()
# Two threads may commit first at once.
_making = threading.RLock()


def wake_relays(engine: Engine, channel: str) -> None:
    """Ring the bell of this engine, and never raise: what has committed has committed."""
    try:
        _ring(engine, channel)
    except Exception:  # noqa: BLE001 - whatever it is, the commit has happened
        _log.exception(
            "relays are not told of a commit and find it at their next poll",
            extra={"action": "wake_up.failed"},
        )


def _ring(engine: Engine, channel: str) -> None:
    loop: Any = None
    if engine.dialect.is_async:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # the driver has nothing to connect by
    engine = root_of(engine)
    key = (id(engine), id(loop))
    (_bells.get(key) or _made(engine, channel, key)).ring()


def _made(engine: Engine, channel: str, key: tuple[int, int]) -> LoopBell | ThreadBell:
    with _making:
        bell = _bells.get(key)
        if bell is None:
            bell = LoopBell(engine, channel) if engine.dialect.is_async else ThreadBell(engine, channel)
            _bells[key] = bell
            listen_unheard(
                engine, "engine_disposed", _silence
            )  # with the engine, and nothing else of it slowed
        return bell


def _silence(engine: Engine) -> None:
    root = root_of(engine)
    for bell in _present():
        if bell.engine is root:
            bell.silence()


def _present() -> list[LoopBell | ThreadBell]:
    return [bell for known in list(_bells.valuerefs()) if (bell := known()) is not None]


@atexit.register
def _say_farewell() -> None:
    """Have told what a program has committed right before its end; event loops see to their own bells."""
    for bell in _present():
        if isinstance(bell, ThreadBell):
            bell.silence()


def _begin_anew() -> None:
    """Forget in a forked process the bells, since it has none of the threads that ring them, and who was making one."""
    global _making  # noqa: PLW0603 - a lock that a thread held at the fork is held for ever
    _making = threading.RLock()
    _bells.clear()


os.register_at_fork(after_in_child=_begin_anew)
