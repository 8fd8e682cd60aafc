"""Expected and found events, compared field by field, and the differences as lines for a person."""

from __future__ import annotations

import reprlib
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

import attrs

from kernel.events import MASK, DomainEvent, is_sensitive
from kernel.wire.types import fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# An id and a time are new for each event object, so that two of them say nothing about each other.
_OWN_FIELDS = frozenset({"event_id", "occurred_at"})

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 120


@attrs.frozen(eq=False)
class Exactly:
    """An expected event whose id and time count too."""

    event: DomainEvent


Expected = DomainEvent | type[DomainEvent] | Exactly


def exactly(event: DomainEvent) -> Exactly:
    """Expect an event with this very `event_id` and `occurred_at`, which are otherwise not compared."""
    return Exactly(event)


def differences(expected: Sequence[Expected], found: Sequence[DomainEvent]) -> list[str]:
    """Return one line per difference, none if the events are as expected."""
    return [*_differences(expected, found)]


def described(event: Expected) -> str:
    """Show an event by the fields that are compared, with secrets masked."""
    if isinstance(event, type):
        return f"{event.__name__}(…)"
    skipped, event = _skipped(event), _bare(event)
    shown = (
        f"{field.name}={_shown(event, field)}"
        for field in fields_of(type(event))
        if field.name not in skipped
    )
    return f"{type(event).__name__}({', '.join(shown)})"


def _differences(expected: Sequence[Expected], found: Sequence[DomainEvent]) -> Iterator[str]:
    wanted, got = [_class_of(each) for each in expected], [type(each) for each in found]
    # Aligned by class, so that one missing event does not make all that follow it look wrong.
    for tag, i, i_end, j, j_end in SequenceMatcher(None, wanted, got, autojunk=False).get_opcodes():
        if tag == "equal":
            for offset in range(i_end - i):
                yield from _field_differences(j + offset + 1, expected[i + offset], found[j + offset])
            continue
        for position in range(i, i_end):
            yield f"missing: {described(expected[position])}, expected as event {position + 1}"
        for position in range(j, j_end):
            yield f"not expected: event {position + 1}, {described(found[position])}"


def _field_differences(number: int, expected: Expected, found: DomainEvent) -> Iterator[str]:
    if isinstance(expected, type):
        return
    skipped, wanted = _skipped(expected), _bare(expected)
    for field in fields_of(type(found)):
        if field.name in skipped or getattr(wanted, field.name) == getattr(found, field.name):
            continue
        yield (
            f"event {number}, {type(found).__name__}.{field.name}: "
            f"expected {_shown(wanted, field)}, found {_shown(found, field)}"
        )


def _shown(event: DomainEvent, field: Any) -> str:
    return MASK if is_sensitive(field) else _repr.repr(getattr(event, field.name))


def _class_of(expected: Expected) -> type[DomainEvent]:
    return expected if isinstance(expected, type) else type(_bare(expected))


def _bare(expected: DomainEvent | Exactly) -> DomainEvent:
    return expected.event if isinstance(expected, Exactly) else expected


def _skipped(expected: DomainEvent | Exactly) -> frozenset[str]:
    return frozenset() if isinstance(expected, Exactly) else _OWN_FIELDS
