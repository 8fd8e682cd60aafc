"""Sealing what is about to be written: one question to the database, in the transaction of the write (O6)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar
from uuid import UUID

from outbox_kernel.infrastructure.outbox.executing import execute
from outbox_kernel.infrastructure.outbox.sealing.boxes import box_of, place_of
from outbox_kernel.infrastructure.outbox.sealing.keys import StoredKey, SubjectKey, new_key
from outbox_kernel.infrastructure.outbox.sealing.limits import ROUNDS_MAX
from outbox_kernel.infrastructure.outbox.sealing.requiring import required
from outbox_kernel.infrastructure.outbox.sql.named import arguments
from outbox_kernel.infrastructure.outbox.sql.subject_keys import TAKE_KEYS
from outbox_kernel.kernel.catalogue import sealed_fields_of
from outbox_kernel.kernel.errors import ConcurrencyError, UnserializableEvent
from outbox_kernel.kernel.wire.names import SEALED
from outbox_kernel.kernel.wire.subjects import subject_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from outbox_kernel.infrastructure.master_keys import MasterKeys
    from outbox_kernel.kernel.catalogue import Payload
    from outbox_kernel.kernel.wire.subjects import SealedField


class Row(Protocol):
    """An event on its way to the table, its payload clear."""

    @property
    def event_id(self) -> UUID: ...  # noqa: D102 - the columns
    @property
    def event_type(self) -> str: ...  # noqa: D102
    @property
    def event_version(self) -> int: ...  # noqa: D102
    @property
    def payload(self) -> str: ...  # noqa: D102

    def _replace(self, *, payload: str) -> Self: ...


R = TypeVar("R", bound=Row)


def asks(row: Row) -> bool:
    """Whether an event has a field that is to be sealed, as far as its class is known here."""
    return bool(sealed_fields_of(row.event_type, row.event_version))


def sealed_rows(
    rows: list[R], connection: Connection, schema: str | None, masters: MasterKeys | None
) -> list[R]:
    """Return what is to be written with its sensitive fields sealed, or raise why it cannot be."""
    if not any(map(asks, rows)):
        return rows
    sealing = Sealing(rows, required(masters))
    text, names = TAKE_KEYS.in_schema(schema)
    for _ in range(ROUNDS_MAX):
        if not sealing.lacking:
            break
        sealing.take(execute(connection, text, tuple(arguments(names, sealing.asked()))))
    return sealing.sealed()


class Sealing(Generic[R]):
    """Seals the fields of some events: it says what to ask the database, and makes of the answer what to write."""

    def __init__(self, rows: Sequence[R], masters: MasterKeys) -> None:
        self._rows, self._masters = rows, masters
        self._payloads = [_asked_of(row) for row in rows]
        fields = (each for payload in self._payloads if payload for each in payload[1])
        self._keys: dict[str, SubjectKey | None] = dict.fromkeys(subject for _, subject in fields)

    @property
    def lacking(self) -> list[str]:
        """The subjects whose keys are yet to be taken."""
        return [subject for subject, key in self._keys.items() if key is None]

    def asked(self) -> dict[str, Any]:
        """Return the values of TAKE_KEYS: a key for each of these, should there be none."""
        proposed = [new_key(subject, self._masters) for subject in self.lacking]
        return {
            "subjects": [each.subject for each in proposed],
            "ids": [each.id for each in proposed],
            "wrapped": [each.wrapped for each in proposed],
            "master_key": self._masters.active,
        }

    def take(self, answer: str | None) -> None:
        """Take the keys that TAKE_KEYS has returned."""
        for each in json.loads(answer or "[]"):
            stored = StoredKey(UUID(each["id"]), each["subject"], each["master_key"], each["wrapped"])
            key = SubjectKey.of(stored, self._masters)
            if key.unfit is not None:
                raise key.unfit
            self._keys[stored.subject] = key

    def sealed(self) -> list[R]:
        """Return the rows as they are to be written."""
        if self.lacking:
            raise ConcurrencyError(
                "others make and destroy the keys of the same subjects, again and again; nothing was stored, load "
                "again and retry"
            )
        return [self._sealed(*each) for each in zip(self._rows, self._payloads, strict=True)]

    def _sealed(self, row: R, asked: tuple[Payload, list[tuple[SealedField, str]]] | None) -> R:
        if asked is None:
            return row
        payload, fields = asked
        boxes = {}
        for field, subject in fields:
            key = self._keys[subject]
            assert key is not None  # noqa: S101 - none is lacking
            place = place_of(row.event_type, row.event_id, field.key)
            boxes[field.key] = box_of(payload[field.key], field.forgotten, key, place)
        clear = {key: value for key, value in payload.items() if key not in boxes}
        return row._replace(payload=_encode({**clear, SEALED: boxes}))


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _asked_of(row: Row) -> tuple[Payload, list[tuple[SealedField, str]]] | None:
    """Return a payload and which of its fields are to be sealed for whom, if any is; there is nothing in a null."""
    fields = sealed_fields_of(row.event_type, row.event_version)
    if not fields:
        return None
    payload: Payload = json.loads(row.payload)
    there = [each for each in fields if payload.get(each.key) is not None]
    return (payload, [(each, _subject_of(row, payload, each)) for each in there]) if there else None


def _subject_of(row: Row, payload: Payload, field: SealedField) -> str:
    try:
        return subject_in(payload, field)
    except ValueError as error:
        raise UnserializableEvent(row.event_type, field.name, str(error)) from None
