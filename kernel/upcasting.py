"""Stored payloads of old versions, lifted step by step to the newest class (K9)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from kernel import catalogue
from kernel.errors import (
    DefinitionError,
    DuplicateName,
    MalformedPayload,
    MissingUpcaster,
    UnknownEventVersion,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.catalogue import EventType, Payload


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
        if taken := upcasters.get((name, from_version)):
            raise DuplicateName(
                f"event {name!r} version {from_version} is lifted by {catalogue.full_name(taken)} and by "
                f"{catalogue.full_name(lift)}; remove one"
            )
        upcasters[name, from_version] = lift
        return lift

    return register


def check_upcasters() -> None:
    """Raise MissingUpcaster unless every older version of each event can be lifted; for start-up."""
    for name, versions in catalogue.definitions.event_by_name.items():
        known = {start for other, start in catalogue.definitions.upcasters if other == name}
        oldest = min(known | versions.keys())
        for step in range(oldest, max(versions)):
            if step not in known:
                raise _missing(name, step)
    for name, start in catalogue.definitions.upcasters:
        if start >= max(catalogue.definitions.event_by_name.get(name, {0: None})):
            raise MissingUpcaster(
                f"an upcaster lifts event {name!r} from version {start}, but no class of a later version "
                "is defined"
            )


def _missing(name: str, step: int) -> MissingUpcaster:
    return MissingUpcaster(
        f"event {name!r} has no way from version {step} to {step + 1}; "
        f"write a function under @upcasts({name!r}, from_version={step})"
    )


def lifted(newest: EventType, body: Payload, stored: int) -> Payload:
    """Return the payload as the newest version would have written it; the given one stays as it is."""
    if stored == newest.version:
        return body
    if stored > newest.version or stored < 1:
        raise UnknownEventVersion(
            f"event {newest.name!r} is stored in version {stored}, and this process knows versions 1 to "
            f"{newest.version}; deploy the code that knows it"
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
    except Exception as error:
        raise MalformedPayload(f"{where} failed on a payload: {type(error).__name__}: {error}") from error
    if not isinstance(result, dict):
        raise MalformedPayload(f"{where} returned {type(result).__name__}; return the lifted payload")
    return result
