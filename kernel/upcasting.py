"""Stored payloads of old versions, lifted step by step to the newest class (K9)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.errors import (
    DefinitionError,
    DuplicateName,
    MalformedPayload,
    MissingUpcaster,
    UnknownEventVersion,
)
from outbox_kernel.kernel.handlers import check_versions_handled

if TYPE_CHECKING:
    from collections.abc import Callable

    from outbox_kernel.kernel.catalogue import EventType, Payload


def upcasts(
    name: str, *, from_version: int
) -> Callable[[Callable[[Payload], Payload]], Callable[[Payload], Payload]]:
    """Register a function that lifts a stored payload of `name` from `from_version` to the next version."""

    def register(lift: Callable[[Payload], Payload]) -> Callable[[Payload], Payload]:
        upcasters = catalogue.definitions.upcasters
        if from_version < 1:
            raise DefinitionError(
                f"an upcaster of event {name!r} starts at version {from_version}; versions count from 1"
            )
        taken = upcasters.get((name, from_version))
        if taken and not catalogue.is_redefined(taken, lift):
            raise DuplicateName(
                f"event {name!r} version {from_version} is lifted by {catalogue.full_name(taken)} and by "
                f"{catalogue.full_name(lift)}; remove one"
            )
        upcasters[name, from_version] = lift
        return lift

    return register


def check_upcasters() -> None:
    """Raise MissingUpcaster unless every older version of each event can be lifted; for start-up.

    A handler that stayed with an older class, and so would never get an event, is a DefinitionError.
    """
    for name, versions in catalogue.definitions.event_by_name.items():
        known = {start for other, start in catalogue.definitions.upcasters if other == name}
        newest, oldest = versions[max(versions)], min(known | versions.keys())
        for step in range(min(newest.first_version, oldest), newest.version):
            if step not in known:
                raise _missing(name, step, oldest)
    for name, start in catalogue.definitions.upcasters:
        if start >= max(catalogue.definitions.event_by_name.get(name, {0: None})):
            raise MissingUpcaster(
                f"an upcaster lifts event {name!r} from version {start}, but no class of a later version "
                "is defined"
            )
    check_versions_handled()


def _missing(name: str, step: int, oldest: int = 1) -> MissingUpcaster:
    remedy = f"write a function under @upcasts({name!r}, from_version={step})"
    if step < oldest:
        remedy += (
            f", or, if nothing older than version {oldest} is stored, give @event first_version={oldest}"
        )
    return MissingUpcaster(f"event {name!r} has no way from version {step} to {step + 1}; {remedy}")


def lifted(newest: EventType, body: Payload, stored: int) -> Payload:
    """Return the payload as the newest version would have written it; the given one stays as it is."""
    if stored == newest.version:
        return body
    if stored > newest.version or stored < 1:
        raise UnknownEventVersion(
            f"event {newest.name!r} is stored in version {stored}, and this process knows versions "
            f"{newest.first_version} to {newest.version}; deploy the code that knows it"
        )
    body = copy.deepcopy(body)
    for step in range(stored, newest.version):
        lift = catalogue.definitions.upcasters.get((newest.name, step))
        if lift is None:
            raise _missing(newest.name, step)
        body = _step(lift, newest.name, step, body)
    return body


def _step(lift: Callable[[Payload], Payload], name: str, step: int, body: Payload) -> Payload:
    where = f"{catalogue.full_name(lift)}, which lifts event {name!r} from version {step},"
    try:
        result = lift(body)
    except Exception as error:  # noqa: BLE001 - all of it is raised again, as a sentence
        # Not above: only an error needs it, and it brings cattrs along.
        from outbox_kernel.kernel.wire.blame import cause_of, said_of  # noqa: PLC0415

        raise MalformedPayload(f"{where} failed on a payload: {said_of(name, error)}") from cause_of(
            name, error
        )
    if not isinstance(result, dict):
        raise MalformedPayload(f"{where} returned {type(result).__name__}; return the lifted payload")
    return result
