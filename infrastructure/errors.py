"""Every error of the infrastructure: one sentence that says what happened and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from outbox_kernel.kernel.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID


class InfrastructureError(KernelError):
    """Base of what the database, the outbox and the command line raise for a user to read."""


# --- what the user wrote ----------------------------------------------------------------------------


class BadSetting(InfrastructureError, ValueError):
    """A setting is missing or cannot be what it says; `name` is the environment's name of it."""

    def __init__(self, name: str, sentence: str) -> None:
        self.name = name
        super().__init__(f"{name} {sentence}")


class BadContext(InfrastructureError):
    """A bounded context cannot be imported or wired; `context` is its package."""

    def __init__(self, context: str, sentence: str) -> None:
        self.context = context
        super().__init__(f"context {context!r} {sentence}")


class ProjectElsewhere(InfrastructureError):
    """The contexts are those of a folder above the one that the process runs in; `folder` is that one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(
            f"the packages of the contexts are not found from {Path.cwd()}, but {folder} has a folder "
            "`contexts`: run this there"
        )


class MissingExtra(InfrastructureError, ImportError):
    """The feature needs a part of the distribution that is not installed."""

    def __init__(self, extra: str, feature: str) -> None:
        self.extra = extra
        super().__init__(f"{feature} is not installed: run `pip install 'outbox-kernel[{extra}]'`")


class AlreadyMapped(InfrastructureError):
    """`OutboxRecord` is mapped to the table of another schema; one process serves one outbox."""


# --- what the database answered -----------------------------------------------------------------------


class DatabaseRefusal(InfrastructureError):
    """The database, or the road to it, said no; the driver's error is the `__cause__`."""


class DatabaseUnreachable(DatabaseRefusal):
    """Nothing answers at the address, or the connection was lost."""


class DatabaseMissing(DatabaseRefusal):
    """The server answers but has no such database."""


class LoginRefused(DatabaseRefusal):
    """The server does not let this user in."""


class PermissionDenied(DatabaseRefusal):
    """The role is in, and may not do this."""


class NameTaken(DatabaseRefusal):
    """A table or view of the name is there already, and is none of ours."""


class ServerFull(DatabaseRefusal):
    """The server has no connection left to give."""


class ServerTooOld(DatabaseRefusal):
    """The server is older than the oldest PostgreSQL that is supported."""


class WrongEncoding(DatabaseRefusal):
    """The database cannot hold every character that an event may have; `encoding` is what it is encoded in."""

    def __init__(self, database: str, encoding: str) -> None:
        self.encoding = encoding
        super().__init__(
            f"{database} is encoded in {encoding}, and an event may have any character: make one in UTF-8 (`createdb "
            "--encoding=UTF8 --template=template0 NAME`), move there what is here, and name it in DATABASE_URL"
        )


class TlsRefused(DatabaseRefusal):
    """The server and DATABASE_URL do not agree on how the connection is encrypted."""


class SchemaNotMigrated(DatabaseRefusal):
    """A table or column that this version needs is not in the database."""


# --- migrations -----------------------------------------------------------------------------------------


class BadMigration(InfrastructureError):
    """The files of a branch are no line of migrations; `branch` is its name."""

    def __init__(self, branch: str, sentence: str) -> None:
        self.branch = branch
        super().__init__(f"the migrations of {branch!r} {sentence}")


class MigrationFailed(InfrastructureError):
    """A migration of a context raised; what it had done is undone."""


class TablesMissing(InfrastructureError):
    """The version table says that the outbox is there, and parts of it are not; `names` are those."""

    def __init__(self, database: str, names: Sequence[str]) -> None:
        self.names: tuple[str, ...] = tuple(names)
        super().__init__(
            f"{database} is marked as migrated, but parts of the outbox are missing, dropped by "
            f"somebody: {', '.join(names)}; restore them from a backup, or make them with their statements "
            "from `outbox migrate --sql`"
        )


class ForeignCode(InfrastructureError):
    """The outbox's tables or views would call functions of somebody's own; `names` are those."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names: tuple[str, ...] = tuple(names)
        super().__init__(
            "the outbox would call what is not the server's own, with the rights of whoever reads it: "
            f"{', '.join(names)}; drop that, and REVOKE CREATE on the schemas of the search path from whom you do not "
            "trust; nothing was changed"
        )


class MigrationBlocked(InfrastructureError):
    """Another session holds a lock that the migration needs; nothing was changed."""


class MigrationUnknown(InfrastructureError):
    """A revision, in the database or on the command line, is none of those this installation has."""


# --- the embedded server ----------------------------------------------------------------------------------


class EmbeddedServerFailed(InfrastructureError):
    """The embedded PostgreSQL did not start."""


# --- what the application gave ----------------------------------------------------------------------


class CannotCapture(InfrastructureError, TypeError):
    """`install_capture` was given something that makes no sessions of its own."""


class MappingRefused(InfrastructureError, TypeError):
    """An aggregate is mapped in a way that capture cannot serve; the sentence has the remedy."""


class TopologyInvalid(InfrastructureError):
    """A context declares a topology that cannot be."""


class NamesCollide(InfrastructureError):
    """Two would have one subscription, and each other's deliveries and receipts."""


class SourceChanged(InfrastructureError):
    """A handler is for another queue than its subscription: what the former one brought would be lost to it."""


class HandlerNotBuilt(InfrastructureError):
    """The container cannot make a handler."""


class NoStoreToWaitIn(InfrastructureError, ValueError):
    """An event for later was given to what handles events at once; `event_type` and `not_before` are its own."""

    event_type: str
    not_before: datetime

    def __init__(self, event_type: str, not_before: datetime) -> None:
        self.event_type, self.not_before = event_type, not_before
        super().__init__(
            f"event {event_type!r} is to be handled from {not_before:%Y-%m-%d %H:%M:%S} UTC on, and the in-process "
            "dispatcher handles at once, with no store for it to wait in: commit it through the outbox, or dispatch it "
            "without not_before"
        )


class EngineRefused(InfrastructureError, TypeError):
    """`Outbox` was given an engine over another driver than the relay's; `driver` is its name."""

    def __init__(self, driver: str) -> None:
        self.driver = driver
        super().__init__(
            f"the engine is one of {driver}, and the relay speaks asyncpg: give Outbox the URL instead, as "
            "postgresql://user:password@host:5432/database, and let `attach` have the maker of your own sessions"
        )


class ArgumentRefused(InfrastructureError, TypeError):
    """`Outbox`, or its `lifespan`, was given what can be nothing of what it asks for; `name` is the parameter's."""

    def __init__(self, name: str, sentence: str) -> None:
        self.name = name
        super().__init__(f"{name} {sentence}")


class NotBound(InfrastructureError):
    """Something asks the container for sessions of which nobody has said to which database they speak."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"nobody has said what {key} is bound to: let a wiring module define it, or ask for "
            "async_sessionmaker, whose sessions capture"
        )


class DefinedTwice(InfrastructureError):
    """Two wirings define one key of the container; `contexts` are whose, None being the application itself."""

    key: str
    contexts: tuple[str | None, str | None]

    def __init__(self, key: str, first: str | None, second: str | None) -> None:
        self.key, self.contexts = key, (first, second)
        who = [f"context {each!r}" if each else "the application itself" for each in self.contexts]
        super().__init__(
            f"the container's {key} is defined by {who[0]} and by {who[1]}: let each define a class of its own, such "
            f"as `class OrdersUnitOfWork(UnitOfWork, Protocol)`, and its use cases ask for that"
        )


class NothingToDeliverTo(InfrastructureError):
    """Neither a handler nor a publisher has been found."""


# --- sealed fields ------------------------------------------------------------------------------------


class MasterKeyUnfit(InfrastructureError):
    """A subject's key is encrypted by a master key that is not at hand; `name` is its id."""

    name: str
    remedy: str

    def __init__(self, name: str, remedy: str) -> None:
        self.name, self.remedy = name, remedy
        super().__init__(f"sealed fields need master key {name!r}, which {remedy}")


class FieldNotOpened(InfrastructureError):
    """What stands in a sealed field is nothing that was sealed for it, or its key was lost."""

    event_type: str
    event_id: UUID
    field: str

    def __init__(self, event_type: str, event_id: UUID, field: str, reason: str) -> None:
        self.event_type, self.event_id, self.field = event_type, event_id, field
        super().__init__(
            f"field {field!r} of event {event_type} {event_id} cannot be opened, since {reason}: restore its row, and "
            "outbox_subject_keys, from a backup"
        )


# --- a handler's run --------------------------------------------------------------------------------


class AlreadyHandled(InfrastructureError):
    """An earlier run of this handler has committed its effect of this event; this one's is rolled back."""


class NotOneTransaction(InfrastructureError):
    """A handler with atomic=True does what cannot be a part of its one transaction."""


class SnapshotTooOld(InfrastructureError):
    """A transaction under REPEATABLE READ or SERIALIZABLE has taken longer than a relay's lease."""


class RunOver(InfrastructureError):
    """The relay lost its lease, or has given this run up: others may be at it, so nothing is committed."""
