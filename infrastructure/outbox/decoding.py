"""Stored payloads into events, at a fraction of what the kernel's own way costs (K8).

The kernel's way is the truth. The fast one serves the newest version of an event, and gives what the kernel would
give: msgspec reads the JSON and its plain values, and all else is made by the kernel's own functions and the classes'
own constructors. Where it fails, for whatever reason, the kernel's way decides, and its error is the one that is told.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, get_args
from uuid import UUID

import attrs
import msgspec

from outbox_kernel.infrastructure.outbox.payload_classes import (
    Part,
    Slot,
    construction,
    holding,
    is_merely_filled,
    struct_of,
    takes_by_keyword,
)
from outbox_kernel.infrastructure.outbox.payload_types import part_of
from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.serialization import deserialize_event
from outbox_kernel.kernel.wire.converter import event_in
from outbox_kernel.kernel.wire.names import EVENT_VERSION, event_names
from outbox_kernel.kernel.wire.owning import copier_of, is_only_copied
from outbox_kernel.kernel.wire.records import argument_fields, is_record
from outbox_kernel.kernel.wire.types import fields_of, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from outbox_kernel.kernel.catalogue import EventType
    from outbox_kernel.kernel.events import DomainEvent

    Decode = Callable[[str], DomainEvent]


def _moment_in_utc(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not UTC:
        raise ValueError(text)
    return moment


# What every event has by itself. Read so, it is as the kernel's converters of these two fields would leave it.
_HEAD = {"event_id": Part(UUID), "occurred_at": Part(str, _moment_in_utc)}


def decoder_for(event_type: str, version: int) -> Decode:
    """Return what restores an event from its payload, as the text of a `jsonb` that was stored in this version.

    It belongs to the definitions as they are now; ask again where they may have changed.
    """
    versions = catalogue.definitions.event_by_name.get(event_type)
    if versions and version == max(versions):
        return _decoder(versions[version])
    return _slow(event_type, version)


def _slow(event_type: str, version: int) -> Decode:
    return lambda payload: deserialize_event(event_type, payload, version)


@cache
def _decoder(event_type: EventType) -> Decode:
    slowly = _slow(event_type.name, event_type.version)
    try:
        event_in(event_type)  # what the kernel cannot restore, nobody here does
        return _fast(event_type, slowly)
    except Exception:  # noqa: BLE001 - of a type that one of the libraries does not know the kernel says so
        return slowly


def _fast(event_type: EventType, slowly: Decode) -> Decode:
    cls, slots = event_type.cls, _slots(event_type)
    if not takes_by_keyword(cls, [slot.keyword for slot in slots]):
        return slowly
    beside = [EVENT_VERSION] if event_type.layout == "camel" else []
    read = msgspec.json.Decoder(struct_of(slots, beside=beside)).decode
    construct = construction(cls, slots)
    if not is_merely_filled(cls) or not all(map(_is_taken_as_given, fields_of(cls))):
        return _constructing(read, construct, slowly)
    return _filling(cls, read, holding([_owned(cls, slot) for slot in slots]), construct, slowly)


# The kernel says what is wrong, and nothing of the first error, which may quote a secret: so not inside the `except`.


def _constructing(
    read: Callable[[str], Any], construct: Callable[[Any], DomainEvent], slowly: Decode
) -> Decode:
    def decode(payload: str) -> DomainEvent:
        try:
            return construct(read(payload))
        except Exception:  # noqa: BLE001, S110 - as said above
            pass
        return slowly(payload)

    return decode


def _filling(
    cls: type[DomainEvent],
    read: Callable[[str], Any],
    hold: Callable[[Any], dict[str, Any] | None],
    construct: Callable[[Any], DomainEvent],
    slowly: Decode,
) -> Decode:
    """Fill events as their constructor would, which takes as long as all the rest."""
    new: Callable[[type[DomainEvent]], DomainEvent] = object.__new__
    put = object.__setattr__  # past the guard of a frozen class

    def decode(payload: str) -> DomainEvent:
        try:
            got = read(payload)
            held = hold(got)
            if held is None:
                return construct(got)
            event = new(cls)
            put(event, "__dict__", held)
            return event
        except Exception:  # noqa: BLE001, S110 - as said above
            pass
        return slowly(payload)

    return decode


def _slots(event_type: EventType) -> list[Slot]:
    keys = event_names(event_type.cls, event_type.layout)
    return [
        Slot(
            *(f"f{number}", keys[field.name], field.name, field.keyword),
            _HEAD.get(field.name) or part_of(field.type, event_type.layout),
            # An event without its id or moment would get new ones: that is for the kernel to do.
            field.is_required or field.name in _HEAD,
        )
        for number, field in enumerate(argument_fields(event_type.cls))
    ]


def _is_taken_as_given(field: attrs.Attribute[Any]) -> bool:
    return field.name in _HEAD or is_only_copied(field)


def _owned(cls: type[Any], slot: Slot) -> Slot:
    """Let a field take its copy as the constructor would, where classes of somebody else's could notice."""
    declared = next(field.type for field in fields_of(cls) if field.name == slot.name)
    copier, make = copier_of(declared), slot.part.make
    if copier is None or make is None or not _holds_record(declared):
        return slot
    return attrs.evolve(slot, part=Part(slot.part.read, lambda got: copier(make(got))))


def _holds_record(declared: Any) -> bool:
    declared = unwrapped(declared)
    return is_record(declared) or any(map(_holds_record, get_args(declared)))
