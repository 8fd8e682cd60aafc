"""What fields are called in a payload, by layout (K8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.wire.records import field_names

if TYPE_CHECKING:
    from collections.abc import Iterable

EVENT_VERSION = "eventVersion"
# Under which a stored payload has its sealed fields: no field can be called so (O6).
SEALED = "$sealed"

_ENVELOPE_NAMES = {"event_id": "eventId", "occurred_at": "occurredOn"}


def names_of(cls: type[Any], layout: str) -> dict[str, str]:
    """Map each field of a record to its key."""
    return {name: _camel(name) if layout == "camel" else name for name in field_names(cls)}


def event_names(cls: type[Any], layout: str) -> dict[str, str]:
    """Map each field of an event to its key in the payload."""
    names = names_of(cls, layout)
    if layout == "camel":
        names.update(_ENVELOPE_NAMES)
    return names


def check_distinct(keys: Iterable[str], where: str) -> None:
    """Raise a DefinitionError unless each key is there once."""
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise DefinitionError(
                f"{where}: two fields would be stored under the key {key!r}; rename one of them"
            )
        seen.add(key)


def _camel(name: str) -> str:
    first, *rest = name.lstrip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)
