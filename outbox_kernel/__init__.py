"""A domain kernel with a transactional outbox: the one name that an application imports.

What is said most often is here. A use-case author takes aggregates, events and the unit of work. The author of a
handler takes `handles` and what a handler may say. Who puts an application together takes engine, sessions and relay.
Errors live in `outbox_kernel.errors`, what a tester takes in `outbox_kernel.testing`, all else in its package below.
Those are `kernel`, which does without a database, and `infrastructure`, which has one.

Applications call it, and so do the contexts of the example; what is below it never does.

Each name is imported when it is first asked for: whoever writes a domain does not load SQLAlchemy. So it may import
the kernel and infrastructure, and at its own import imports neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.application import Outbox
    from outbox_kernel.infrastructure.brokers import Publisher, Queue
    from outbox_kernel.infrastructure.container import build_container
    from outbox_kernel.infrastructure.database import (
        SqlAlchemyRepository,
        SqlAlchemyUnitOfWork,
        create_engine,
        session_factory,
    )
    from outbox_kernel.infrastructure.outbox import (
        MappedAggregate,
        OutboxEventDispatcher,
        OutboxMiddleware,
        OutboxRecord,
        aggregate_columns,
        bus_of,
        install_capture,
        map_aggregate,
        outbox_metadata,
    )
    from outbox_kernel.infrastructure.relay import OutboxRelay
    from outbox_kernel.infrastructure.settings import Settings
    from outbox_kernel.kernel import (
        EXPONENTIAL,
        TIERED,
        AggregateRoot,
        BatchHandler,
        Conflict,
        DomainError,
        DomainEvent,
        EventBus,
        EventDispatcher,
        EventHandler,
        Forbidden,
        NotFound,
        Reject,
        Repository,
        RetryAfter,
        RetrySchedule,
        StoredEvent,
        Unavailable,
        UnitOfWork,
        applies,
        clock,
        current_delivery,
        current_headers,
        deserialize_event,
        discover_handlers,
        event,
        event_context,
        get_handlers_for,
        handles,
        retry_on_conflict,
        sensitive,
        serialize_event,
        upcasts,
    )

    # Of the package, mypy may take this name for the module that is called so.
    from outbox_kernel.kernel.aggregate import aggregate

# The imports above once more, for who runs the code instead of checking it; a test holds the two together.
NAMES_BY_HOME = {
    "outbox_kernel.kernel": (
        "EXPONENTIAL TIERED AggregateRoot BatchHandler Conflict DomainError DomainEvent EventBus EventDispatcher "
        "EventHandler Forbidden NotFound Reject Repository RetryAfter RetrySchedule StoredEvent Unavailable UnitOfWork "
        "applies clock current_delivery current_headers deserialize_event discover_handlers event event_context "
        "get_handlers_for handles retry_on_conflict sensitive serialize_event upcasts"
    ),
    "outbox_kernel.kernel.aggregate": "aggregate",
    "outbox_kernel.infrastructure.application": "Outbox",
    "outbox_kernel.infrastructure.brokers": "Publisher Queue",
    "outbox_kernel.infrastructure.container": "build_container",
    "outbox_kernel.infrastructure.database": "SqlAlchemyRepository SqlAlchemyUnitOfWork create_engine session_factory",
    "outbox_kernel.infrastructure.outbox": (
        "MappedAggregate OutboxEventDispatcher OutboxMiddleware OutboxRecord aggregate_columns bus_of install_capture "
        "map_aggregate outbox_metadata"
    ),
    "outbox_kernel.infrastructure.relay": "OutboxRelay",
    "outbox_kernel.infrastructure.settings": "Settings",
}
HOMES_BY_NAME = {name: home for home, names in NAMES_BY_HOME.items() for name in names.split()}

__all__ = [
    "EXPONENTIAL",
    "TIERED",
    "AggregateRoot",
    "BatchHandler",
    "Conflict",
    "DomainError",
    "DomainEvent",
    "EventBus",
    "EventDispatcher",
    "EventHandler",
    "Forbidden",
    "MappedAggregate",
    "NotFound",
    "Outbox",
    "OutboxEventDispatcher",
    "OutboxMiddleware",
    "OutboxRecord",
    "OutboxRelay",
    "Publisher",
    "Queue",
    "Reject",
    "Repository",
    "RetryAfter",
    "RetrySchedule",
    "Settings",
    "SqlAlchemyRepository",
    "SqlAlchemyUnitOfWork",
    "StoredEvent",
    "Unavailable",
    "UnitOfWork",
    "aggregate",
    "aggregate_columns",
    "applies",
    "build_container",
    "bus_of",
    "clock",
    "create_engine",
    "current_delivery",
    "current_headers",
    "deserialize_event",
    "discover_handlers",
    "event",
    "event_context",
    "get_handlers_for",
    "handles",
    "install_capture",
    "map_aggregate",
    "outbox_metadata",
    "retry_on_conflict",
    "sensitive",
    "serialize_event",
    "session_factory",
    "upcasts",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for."""
    home = HOMES_BY_NAME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    """Tell a prompt what it may complete."""
    return sorted({*globals(), *__all__})
