"""What a sealed field looks like in a stored payload, and how a payload is put together again (O6).

    {"account_id": "…", "role": "member", "$sealed": {"email": {"key": "…", "text": "…", "forgotten": ""}}}

`key` names the subject's key, `text` is the nonce and the encrypted JSON of the value. `forgotten`, where it is not
null, is what stands there once the key is destroyed: whoever reads the row need not know the event's class. A text
opens only at its place, which is the event's type and id and the field's key.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from outbox_kernel.infrastructure.errors import FieldNotOpened
from outbox_kernel.infrastructure.outbox.sealing.ciphers import NotOpened
from outbox_kernel.kernel.wire.names import SEALED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from uuid import UUID

    from outbox_kernel.infrastructure.outbox.sealing.keys import SubjectKey

MARK = f'"{SEALED}"'
"""What is in the text of each payload with sealed fields, and in few others."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
# One text for one value, whatever order its keys come in.
_canonical = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True).encode


def place_of(event_type: str, event_id: UUID, field: str) -> bytes:
    """Return what a sealed text is bound to."""
    return _encode([event_type, str(event_id), field]).encode()


def box_of(value: Any, forgotten: Any, key: SubjectKey, place: bytes) -> dict[str, Any]:
    """Seal one value."""
    box = {"key": str(key.id), "text": key.seal(_canonical(value).encode(), place)}
    return box if forgotten is None else {**box, "forgotten": forgotten}


def boxes_in(payload: str) -> dict[str, dict[str, Any]]:
    """Return the sealed fields of a stored payload by their keys; none where it is no payload of ours."""
    try:
        body = json.loads(payload)
    except (ValueError, RecursionError):
        return {}  # of what nobody can read others say so
    found = body.get(SEALED) if isinstance(body, dict) else None
    return found if isinstance(found, dict) and all(map(_is_box, found.values())) else {}


def key_ids(boxes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Return which keys open these."""
    return (box["key"] for box in boxes.values())


def put_together(
    payload: str, keys: Mapping[str, SubjectKey], event_type: str, event_id: UUID
) -> tuple[str, list[Any]]:
    """Return a stored payload with its sealed fields as they were, and the values that were sealed."""
    body = json.loads(payload)
    values: list[Any] = []
    for field, box in body.pop(SEALED).items():
        body[field] = box.get("forgotten")
        key = keys.get(box["key"])
        if key is None:
            raise FieldNotOpened(
                event_type, event_id, field, "its key is not in outbox_subject_keys any more"
            )
        if not key.is_forgotten:
            body[field] = _opened(key, box["text"], event_type, event_id, field)
            values.append(body[field])
    return _encode(body), values


def _opened(key: SubjectKey, text: str, event_type: str, event_id: UUID, field: str) -> Any:
    try:
        return json.loads(key.open(text, place_of(event_type, event_id, field)))
    except NotOpened as error:
        raise FieldNotOpened(
            event_type, event_id, field, "it was changed, or sealed for another place"
        ) from error


def _is_box(box: Any) -> bool:
    return isinstance(box, dict) and isinstance(box.get("key"), str) and isinstance(box.get("text"), str)
