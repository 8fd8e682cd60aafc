"""Which fields of a payload nobody is to be shown, for stores that are read without the event's class (K11)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.errors import UnknownEventType
from outbox_kernel.kernel.wire.masking import is_secret
from outbox_kernel.kernel.wire.names import EVENT_VERSION, event_names
from outbox_kernel.kernel.wire.records import record_fields

if TYPE_CHECKING:
    from outbox_kernel.kernel.catalogue import EventType, Payload

# What an outbox says of an event whose class was not known where it was stored: each of its fields may be a secret.
EVERY_FIELD = "*"
# In every payload, and secret in none.
PLAIN_KEYS = ("event_id", "occurred_at", "eventId", "occurredOn", "eventVersion")


@lru_cache(maxsize=1024)
def sensitive_keys(known: EventType) -> tuple[str, ...]:
    """Return the keys of a payload whose value is declared `sensitive()`, or has at any depth what is."""
    names = event_names(known.cls, known.layout)
    return tuple(names[field.name] for field in record_fields(known.cls) if is_secret(field))


def sensitive_in(event_type: str, payload: Payload) -> tuple[str, ...]:
    """Return the keys of a payload that came from elsewhere; what its newest class does not know may be secret, too."""
    try:
        newest = catalogue.newest_event_type(event_type)
    except UnknownEventType:
        return (EVERY_FIELD,)
    known = {*event_names(newest.cls, newest.layout).values(), EVENT_VERSION}
    return (*sensitive_keys(newest), *(key for key in payload if key not in known))
