"""The domain kernel: aggregates, domain events, handlers and the unit of work, free of any I/O (K1-K12).

`aggregate` and `events` are what a domain is made of, `applying` how an aggregate is rebuilt from its events.
`handlers` and `bus` say who hears of which event, `retry` when one that failed is tried again. `unit_of_work` is the
port behind which a use case commits. `wire` says how values travel, `serialization` makes payloads by it. `testing`
has what tests of a domain need. `limits` holds what bounds all this.

Its errors are in `errors`; here are those alone that an application raises itself.

Events, domains, use cases and handlers of an application call it, by the door `outbox_kernel`; infrastructure calls
what a use case never sees.

It may import the standard library, attrs and cattrs. Of infrastructure and of contexts it knows nothing.
"""

import os

if __name__ != "outbox_kernel.kernel":
    # In a checkout this folder stands at the top of the path as well, and a second import would make each class twice.
    raise ImportError(
        f"outbox-kernel has no top-level package {__name__!r}: import outbox_kernel.kernel", name=__name__
    )

# In a checkout it is reached through a link: a debugger and a traceback are to show where its files are.
__path__ = [os.path.realpath(folder) for folder in __path__]

from outbox_kernel.kernel.aggregate import AggregateRoot, aggregate
from outbox_kernel.kernel.applying import applies
from outbox_kernel.kernel.bus import EventBus
from outbox_kernel.kernel.context import Delivery, current_delivery, current_headers, event_context
from outbox_kernel.kernel.dispatching import EventDispatcher
from outbox_kernel.kernel.errors import Reject, RetryAfter, Unavailable
from outbox_kernel.kernel.events import DomainEvent, event, sensitive
from outbox_kernel.kernel.handlers import (
    BatchHandler,
    EventHandler,
    HandlerRegistration,
    discover_handlers,
    get_handlers_for,
    handles,
)
from outbox_kernel.kernel.refusals import Conflict, DomainError, Forbidden, NotFound
from outbox_kernel.kernel.retry import EXPONENTIAL, TIERED, RetrySchedule
from outbox_kernel.kernel.serialization import deserialize_event, serialize_event
from outbox_kernel.kernel.stored import StoredEvent
from outbox_kernel.kernel.unit_of_work import Repository, UnitOfWork, retry_on_conflict
from outbox_kernel.kernel.upcasting import check_upcasters, upcasts
from outbox_kernel.kernel.wire.masking import masked_payload

__all__ = [
    "EXPONENTIAL",
    "TIERED",
    "AggregateRoot",
    "BatchHandler",
    "Conflict",
    "Delivery",
    "DomainError",
    "DomainEvent",
    "EventBus",
    "EventDispatcher",
    "EventHandler",
    "Forbidden",
    "HandlerRegistration",
    "NotFound",
    "Reject",
    "Repository",
    "RetryAfter",
    "RetrySchedule",
    "StoredEvent",
    "Unavailable",
    "UnitOfWork",
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
