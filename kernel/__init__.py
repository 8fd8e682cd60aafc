"""The domain kernel: aggregates, domain events, handlers and the unit of work, free of any I/O."""

from kernel.aggregate import AggregateRoot, aggregate
from kernel.applying import applies
from kernel.bus import EventBus
from kernel.context import Delivery, current_delivery, current_headers, event_context
from kernel.dispatching import EventDispatcher
from kernel.errors import (
    AggregateHasNoId,
    AggregateIdTaken,
    AlreadyRecorded,
    ConcurrencyError,
    DefinitionError,
    DiscoveryError,
    DuplicateName,
    IdentityMoved,
    InvalidContext,
    KernelError,
    MalformedPayload,
    MissingUpcaster,
    NothingDelivered,
    Reject,
    RetryAfter,
    StaleAggregate,
    UncommittedEvents,
    UnitOfWorkNotOpen,
    UnknownEventType,
    UnknownEventVersion,
    UnserializableEvent,
    VersionMoved,
)
from kernel.events import DomainEvent, event, sensitive
from kernel.handlers import EventHandler, HandlerRegistration, discover_handlers, get_handlers_for, handles
from kernel.refusals import Conflict, DomainError, Forbidden, NotFound
from kernel.retry import EXPONENTIAL, TIERED, RetrySchedule
from kernel.serialization import deserialize_event, serialize_event
from kernel.unit_of_work import Repository, UnitOfWork, retry_on_conflict
from kernel.upcasting import check_upcasters, upcasts
from kernel.wire.masking import masked_payload

__all__ = [
    "EXPONENTIAL",
    "TIERED",
    "AggregateHasNoId",
    "AggregateIdTaken",
    "AggregateRoot",
    "AlreadyRecorded",
    "ConcurrencyError",
    "Conflict",
    "DefinitionError",
    "Delivery",
    "DiscoveryError",
    "DomainError",
    "DomainEvent",
    "DuplicateName",
    "EventBus",
    "EventDispatcher",
    "EventHandler",
    "Forbidden",
    "HandlerRegistration",
    "IdentityMoved",
    "InvalidContext",
    "KernelError",
    "MalformedPayload",
    "MissingUpcaster",
    "NotFound",
    "NothingDelivered",
    "Reject",
    "Repository",
    "RetryAfter",
    "RetrySchedule",
    "StaleAggregate",
    "UncommittedEvents",
    "UnitOfWork",
    "UnitOfWorkNotOpen",
    "UnknownEventType",
    "UnknownEventVersion",
    "UnserializableEvent",
    "VersionMoved",
    "aggregate",
    "applies",
    "check_upcasters",
    "current_delivery",
    "current_headers",
    "deserialize_event",
    "discover_handlers",
    "event",
    "event_context",
    "get_handlers_for",
    "handles",
    "masked_payload",
    "retry_on_conflict",
    "sensitive",
    "serialize_event",
    "upcasts",
]
