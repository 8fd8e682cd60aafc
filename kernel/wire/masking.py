"""Payloads for people to look at, with what is sensitive masked (K11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kernel import catalogue
from kernel.events import MASK, is_sensitive
from kernel.wire.converter import wire_names

if TYPE_CHECKING:
    from kernel.catalogue import Payload


def masked_payload(event_type: str, payload: Payload) -> Payload:
    """Return a copy of a stored payload in which the fields declared `sensitive()` are masked."""
    newest = catalogue.newest_event_type(event_type)
    names = wire_names(newest)
    hidden = {names[field.name] for field in attrs.fields(newest.cls) if is_sensitive(field)}
    return {key: MASK if key in hidden else value for key, value in payload.items()}
