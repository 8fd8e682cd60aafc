"""A stored event as the message that tells others of it (T1, X5)."""

from __future__ import annotations

import json
from datetime import UTC
from typing import TYPE_CHECKING, Protocol

from outbox_kernel.infrastructure.brokers.port import HeaderValue, Message
from outbox_kernel.kernel.errors import UnknownEventType
from outbox_kernel.kernel.published import published_body
from outbox_kernel.kernel.wire.masking import reduced_payload

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.infrastructure.brokers.topology import Sensitive
    from outbox_kernel.kernel.catalogue import Payload
    from outbox_kernel.kernel.context import Header

ENVELOPE_HEADERS = frozenset(
    {
        "event_type",
        "event_version",
        "aggregate_type",
        "aggregate_id",
        "aggregate_key",
        "aggregate_version",
        "created_at",
    }
)
"""What every message says of its event; its other headers are the event's context."""

encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""Writes a body, or a part of one: JSON with nothing that only Python reads."""


class StoredEvent(Protocol):
    """A row of the outbox, with its payload as text."""

    @property
    def event_id(self) -> UUID: ...  # noqa: D102 - the columns
    @property
    def event_type(self) -> str: ...  # noqa: D102
    @property
    def event_version(self) -> int: ...  # noqa: D102
    @property
    def aggregate_type(self) -> str | None: ...  # noqa: D102
    @property
    def aggregate_id(self) -> UUID | None: ...  # noqa: D102
    @property
    def aggregate_key(self) -> str | None: ...  # noqa: D102
    @property
    def aggregate_version(self) -> int | None: ...  # noqa: D102
    @property
    def payload(self) -> str: ...  # noqa: D102
    @property
    def headers(self) -> Mapping[str, Header]: ...  # noqa: D102
    @property
    def occurred_at(self) -> datetime: ...  # noqa: D102
    @property
    def created_at(self) -> datetime: ...  # noqa: D102


def message_of(event: StoredEvent, sensitive: Sensitive = "clear") -> Message:
    """Write the message of a stored event; its class is not needed, unless its secrets are to stay here."""
    payload, context = json.loads(event.payload), event.headers
    if sensitive != "clear":
        payload = _reduced(payload, event, sensitive)
    body = published_body(
        payload,
        context,
        event_type=event.event_type,
        aggregate_type=event.aggregate_type,
        aggregate_id=event.aggregate_id,
        occurred_at=event.occurred_at,
    )
    headers: dict[str, HeaderValue] = {
        "event_type": event.event_type,
        "event_version": event.event_version,
        "created_at": event.created_at.astimezone(UTC).isoformat(),
    }
    if event.aggregate_type is not None:
        headers["aggregate_type"] = event.aggregate_type
    if event.aggregate_id is not None:
        headers["aggregate_id"] = str(event.aggregate_id)
    if event.aggregate_key is not None:
        headers["aggregate_key"] = event.aggregate_key
    if event.aggregate_version is not None:
        headers["aggregate_version"] = event.aggregate_version
    # A field of the event that hides a key of the context in the body hides it here too: whoever stores the
    # message takes out of the body what the headers say is context.
    hidden = payload if len(body) > len(payload) else ()
    headers.update((key, value) for key, value in context.items() if key not in hidden)
    return Message(str(event.event_id), event.event_type, encode(body).encode(), headers)


def _reduced(payload: Payload, event: StoredEvent, sensitive: Sensitive) -> Payload:
    try:
        return reduced_payload(event.event_type, event.event_version, payload, omit=sensitive == "omit")
    except UnknownEventType as error:
        # Nobody here could tell which of its fields are secrets, and what was sent is sent.
        raise UnknownEventType(
            f"its publisher has sensitive={sensitive!r}, and no class here says what is sensitive in it ({error})"
        ) from error
