"""Adopting capture: one call for an application's own session class or sessionmaker (C6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from outbox_kernel.infrastructure.errors import CannotCapture
from outbox_kernel.infrastructure.outbox.atomic import after_transaction_create
from outbox_kernel.infrastructure.outbox.capture import Capture, after_transaction_end
from outbox_kernel.infrastructure.outbox.drivers import check_bind
from outbox_kernel.infrastructure.outbox.instrument import instrument_aggregates
from outbox_kernel.infrastructure.outbox.row_keys import take_key_back
from outbox_kernel.infrastructure.outbox.session import CapturedSession
from outbox_kernel.infrastructure.outbox.transaction import after_savepoint, after_unbirth
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.master_keys import MasterKeys

Target = TypeVar(
    "Target",
    bound="async_sessionmaker[Any] | sessionmaker[Any] | async_scoped_session[Any] | scoped_session[Any]"
    "| type[AsyncSession | Session]",
)
C = TypeVar("C")

_CAPTURE = "_outbox_capture"


def install_capture(
    target: Target,
    *,
    schema: str | None = None,
    channel: str | None = None,
    wake_up: bool = True,
    master_keys: MasterKeys | None = None,
) -> Target:
    """Make every session of `target` write its aggregates' events to the outbox; return `target`.

    `target` is a sessionmaker, an async_sessionmaker, a scoped_session or async_scoped_session of one, or a subclass
    of Session or AsyncSession, over asyncpg or psycopg 3; another driver is refused here, or at the first use.
    `schema` is the outbox's (default: OUTBOX_SCHEMA of the environment, else the search path). A
    `schema_translate_map` that names it moves the outbox too, None for the search path included.
    `channel` is where commits are told of (default: OUTBOX_CHANNEL).
    `wake_up=False` leaves it to the relays' polls to find what was committed. `master_keys` are for events with
    sealed fields (default: OUTBOX_MASTER_KEYS).
    """
    if isinstance(target, scoped_session | async_scoped_session):
        maker: Any = target.session_factory
        install_capture(maker, schema=schema, channel=channel, wake_up=wake_up, master_keys=master_keys)
        return target
    capture = _of_settings(schema, channel, wake_up=wake_up, master_keys=master_keys)
    if isinstance(target, async_sessionmaker | sessionmaker) and (bind := target.kw.get("bind")) is not None:
        check_bind(bind)
    if isinstance(target, async_sessionmaker):
        _capture_async_maker(target, capture)
    elif isinstance(target, sessionmaker):
        target.class_ = _captured(target.class_, capture)
    elif _is_own_class(target, AsyncSession):
        target.sync_session_class = _captured(target.sync_session_class, capture)
    elif _is_own_class(target, Session):
        _capture_in_place(target, capture)
    else:
        raise CannotCapture(
            "install_capture takes a sessionmaker or your own subclass of Session or AsyncSession, "
            f"not {target!r}; SQLAlchemy's own classes serve the whole process and stay as they are"
        )
    instrument_aggregates()
    return target


def _of_settings(
    schema: str | None, channel: str | None, *, wake_up: bool, master_keys: MasterKeys | None
) -> Capture:
    settings = Settings.from_environment()
    return Capture(
        Settings(outbox_schema=schema).outbox_schema or settings.outbox_schema,
        (channel or settings.channel) if wake_up else None,
        master_keys or settings.master_keys,
    )


def _is_own_class(target: Any, library_class: type[C]) -> TypeGuard[type[C]]:
    return isinstance(target, type) and issubclass(target, library_class) and target is not library_class


def _capture_async_maker(maker: async_sessionmaker[Any], capture: Capture) -> None:
    # In its own arguments: the class that it makes may be AsyncSession, which serves the whole process.
    chosen = maker.kw.get("sync_session_class") or maker.class_.sync_session_class
    maker.kw["sync_session_class"] = _captured(chosen, capture)


def _captured(cls: type[Session], capture: Capture) -> type[Session]:
    """Return a session class that captures and is a `cls`."""
    if _captures_already(cls, capture):
        return cls
    bases = (CapturedSession,) if cls is Session else (CapturedSession, cls)
    captured = type(cls.__name__, bases, {})
    _listen(captured, capture)
    return captured


def _capture_in_place(cls: type[Session], capture: Capture) -> None:
    # The application makes its sessions by calling this very class, so it has to be changed itself.
    if not _captures_already(cls, capture):
        bases = (CapturedSession, *(base for base in cls.__bases__ if base is not Session))
        try:
            cls.__bases__ = bases
        except TypeError as error:
            raise CannotCapture(
                f"a maker of {cls.__name__} captures already, so the class cannot any more; "
                "call install_capture on the class first, or only on its makers"
            ) from error
        _listen(cls, capture)


def _captures_already(cls: type[Session], capture: Capture) -> bool:
    present: Capture | None = getattr(cls, _CAPTURE, None)
    if present is not None and present.schema != capture.schema:
        raise CannotCapture(
            f"{cls.__name__} captures into schema {present.schema or 'of the search path'!r} already; "
            "use a session class of its own for another schema"
        )
    return present is not None


def _listen(cls: type[Session], capture: Capture) -> None:
    setattr(cls, _CAPTURE, capture)
    event.listen(cls, "before_flush", capture.before_flush)
    event.listen(cls, "after_flush", capture.after_flush)
    # Before those of others, who may record again: the next flush will see it.
    event.listen(cls, "after_flush_postexec", capture.after_flush_postexec, insert=True)
    event.listen(cls, "after_commit", capture.after_commit)
    event.listen(cls, "after_transaction_create", after_transaction_create)
    event.listen(cls, "after_transaction_create", after_savepoint)
    event.listen(cls, "after_transaction_end", after_transaction_end)
    event.listen(cls, "persistent_to_transient", after_unbirth)
    event.listen(cls, "deleted_to_detached", after_unbirth)
    event.listen(cls, "persistent_to_transient", take_key_back)
    event.listen(cls, "pending_to_transient", take_key_back)
    event.listen(cls, "deleted_to_detached", take_key_back)
