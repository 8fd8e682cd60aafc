"""Every error the kernel raises: a sentence that says what happened and what to do, data as attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uuid import UUID


class KernelError(Exception):
    """Base of every error of this distribution, so that one `except` catches them all."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Let an error be copied and pickled with its sentence and its data, whatever its constructor takes."""
        return _restored, (type(self), self.args), vars(self)


def _restored(cls: type[KernelError], arguments: tuple[Any, ...]) -> KernelError:
    error = cls.__new__(cls)
    # The constructor made the sentence of its data; what Python's own one keeps is the sentence.
    builtin: Any = next(base for base in cls.__mro__ if base.__module__ == "builtins")
    builtin.__init__(error, *arguments)
    return error


# --- definitions: raised at import or start-up, for the programmer -----------------------------------


class DefinitionError(KernelError, TypeError):
    """A class cannot be what its decorator says it is."""


class DuplicateName(DefinitionError):
    """Two definitions claim one stable name; the error names both."""


class MissingUpcaster(DefinitionError):
    """A stored version has no way up to the newest class."""


class DiscoveryError(KernelError):
    """Handler modules failed to import; `failures` maps each module to its error."""

    def __init__(self, failures: dict[str, BaseException]) -> None:
        self.failures = failures
        lines = "; ".join(f"{module}: {type(error).__name__}: {error}" for module, error in failures.items())
        super().__init__(
            f"{len(failures)} handler module(s) cannot be imported, mend them and start again: {lines}"
        )


# --- events and their payloads ----------------------------------------------------------------------


class UnknownEventType(KernelError, ValueError):
    """No class is registered under this wire name."""


class UnknownEventVersion(UnknownEventType):
    """The wire name is known, but the payload is newer than any class here."""


class UnserializableEvent(KernelError, ValueError):
    """A payload that PostgreSQL cannot store, or that would not come back equal."""

    event_type: str
    field: str
    reason: str

    def __init__(self, event_type: str, field: str, reason: str) -> None:
        self.event_type, self.field, self.reason = event_type, field, reason
        super().__init__(f"event {event_type!r} cannot be stored: field {field!r} {reason}")


class MalformedPayload(KernelError, ValueError):
    """A stored payload of a known type and version does not fit its class."""


class InvalidContext(KernelError, ValueError):
    """A header given to `event_context` cannot be stored or would shadow the envelope."""


class NothingDelivered(KernelError):
    """`current_delivery` was called outside a running handler."""


# --- aggregates and the unit of work ------------------------------------------------------------------


class AggregateHasNoId(KernelError):
    """An event was recorded on an aggregate that has no id yet."""


class AlreadyRecorded(KernelError):
    """One event object was recorded twice; an event happens once."""


class StaleAggregate(KernelError):
    """The aggregate's state was rolled back, expired or deleted; load it again. `field` is what was read, if any."""

    def __init__(self, sentence: str, *, field: str | None = None) -> None:
        self.field = field
        super().__init__(sentence)


class VersionMoved(KernelError):
    """An aggregate's version changed without `record`, or its history is not whole: the stream has a gap."""


class IdentityMoved(KernelError):
    """An aggregate's id changed after it recorded, so its events are those of an aggregate that does not exist."""


class UncommittedEvents(KernelError):
    """The operation would silently lose events that are not committed, or keep what a rollback takes back."""


class ConcurrencyError(KernelError):
    """Another transaction wrote the aggregate first; nothing of this one is stored. Load again and retry."""

    aggregate_type: str | None
    aggregate_id: UUID | None
    aggregate_key: str | None

    def __init__(
        self,
        sentence: str,
        *,
        aggregate_type: str | None = None,
        aggregate_id: UUID | None = None,
        aggregate_key: str | None = None,
    ) -> None:
        self.aggregate_type, self.aggregate_id = aggregate_type, aggregate_id
        self.aggregate_key = aggregate_key
        super().__init__(sentence)


class AggregateIdTaken(ConcurrencyError):
    """A new aggregate's id has events already: another writer made it, or it lived before and was deleted."""


class UnitOfWorkNotOpen(KernelError):
    """The unit of work is used outside `async with uow:`."""


class UncommittedWork(UserWarning):
    """A unit of work was left with events that nobody has committed or given up; the sentence says which."""


# --- what a handler may say -----------------------------------------------------------------------------


class Reject(KernelError):
    """Raised by a handler: this event will never succeed here, make it dead at once."""


class RetryAfter(KernelError):
    """Raised by a handler: try again after this many seconds."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        if not seconds >= 0 or seconds == float("inf"):
            raise ValueError(f"RetryAfter takes a finite number of seconds, zero or more, not {seconds!r}")
        self.seconds = seconds
        super().__init__(reason or f"retry after {seconds:g} s")


class Unavailable(KernelError):
    """Raised by a handler: what it needs is away, which is nobody's fault. It stands still until that is back."""

    what: str
    reason: str

    def __init__(self, what: str, reason: str = "") -> None:
        self.what, self.reason = what, reason
        super().__init__(f"{what} is unavailable: {reason}" if reason else f"{what} is unavailable")


class SecondCommit(KernelError):
    """A handler commits a second effect in one run, but only one of the two could have the receipt."""

    handler: str
    event_id: UUID

    def __init__(self, handler: str, event_id: UUID) -> None:
        self.handler, self.event_id = handler, event_id
        super().__init__(
            f"handler {handler!r} commits a second time while it handles event {event_id}: the first effect stays, "
            "the second is not stored; give it atomic=True, so that all it does is one transaction, or make two "
            "handlers of it"
        )
