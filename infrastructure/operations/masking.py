"""What an event says, for people to read: without its secrets, and however odd it is (K11)."""

from __future__ import annotations

import contextlib
import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

from outbox_kernel.infrastructure.discovery import context_packages
from outbox_kernel.infrastructure.operations.limits import DIGITS_MAX
from outbox_kernel.kernel import masked_payload
from outbox_kernel.kernel.errors import UnknownEventType
from outbox_kernel.kernel.wire.masking import without_seals
from outbox_kernel.kernel.wire.records import MASK
from outbox_kernel.kernel.wire.sensitive import PLAIN_KEYS

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.settings import Settings

UNREADABLE = f"{MASK} (no object of fields, so it is masked as a whole)"


def know_events(settings: Settings) -> None:
    """Define the contexts' events as far as their modules can be imported, so that payloads can be masked by field."""
    for package in context_packages(settings):
        for room in ("events", "handlers", "wiring"):
            # What does not import here costs only detail: its payloads are masked as a whole.
            with contextlib.suppress(Exception):
                import_module(f"{package}.{room}")


def presentable(event_type: str, payload: object) -> tuple[dict[str, Any] | str, bool]:
    """Return the payload without its secrets, and whether its class is known; if not, every value may be one."""
    if not isinstance(payload, dict):
        return UNREADABLE, True
    try:
        return masked_payload(event_type, payload), True
    except UnknownEventType:
        shown = without_seals(payload)
        return {key: value if key in PLAIN_KEYS else MASK for key, value in shown.items()}, False


def read(text: str) -> Any:
    """Read JSON as PostgreSQL stores it, which bounds neither numbers nor depth as Python does."""
    try:
        return json.loads(text, parse_int=_number)
    except RecursionError:
        return UNREADABLE


def _number(digits: str) -> int | str:
    return int(digits) if len(digits) <= DIGITS_MAX else digits
