"""Expected and found events, compared field by field, and the differences as lines for a person."""

from __future__ import annotations

import reprlib
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.kernel.events import DomainEvent
from outbox_kernel.kernel.wire.records import MASK, RecordField, is_record, record_fields, shows_secrets
from outbox_kernel.kernel.wire.types import is_subclass

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


def check_expected(expected: Sequence[object]) -> None:
    """Refuse to expect what no event could ever be."""
    for each in expected:
        if not (isinstance(each, DomainEvent | Exactly) or is_subclass(each, DomainEvent)):
            raise TypeError(
                "an expected event is an event, an event class for any event of it, or exactly(event), and "
                f"{_repr.repr(each)} is none of them (ANY stands for the value of a field)"
            )


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
        for field in record_fields(type(event))
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
    for field in record_fields(type(found)):
        if field.name in skipped or getattr(wanted, field.name) == getattr(found, field.name):
            continue
        where = f"event {number}, {type(found).__name__}.{field.name}"
        if _is_hidden(field):
            yield f"{where}: differs (masked)"
        else:
            yield where + _difference(getattr(wanted, field.name), getattr(found, field.name))


def _difference(wanted: Any, got: Any) -> str:
    """Say how two values differ, and where, if they are too long for it to be seen."""
    shown, other = _repr.repr(wanted), _repr.repr(got)
    if shown != other:
        return f": expected {shown}, found {other}"
    for where, one, another in _parts(wanted, got):
        if one is not another and one != another:
            return where + _difference(one, another)
    return f": differs, and both are shown as {shown}"


def _parts(wanted: Any, got: Any) -> Iterator[tuple[str, Any, Any]]:
    """Pair what two values of one type hold, with where it is."""
    if type(wanted) is not type(got):
        return
    if isinstance(wanted, str):
        start = next((at for at, pair in enumerate(zip(wanted, got, strict=False)) if pair[0] != pair[1]), 0)
        start = start or min(len(wanted), len(got))
        yield f"[{start}:]", wanted[start:], got[start:]
    elif isinstance(wanted, list | tuple):
        pairs = enumerate(zip(wanted, got, strict=False))
        yield from ((f"[{index}]", *pair) for index, pair in pairs)
        end = min(len(wanted), len(got))
        yield f"[{end}:]", wanted[end:], got[end:]
    elif isinstance(wanted, dict) and wanted.keys() == got.keys():
        yield from ((f"[{_repr.repr(key)}]", value, got[key]) for key, value in wanted.items())
    elif isinstance(wanted, dict):
        yield (
            ".keys()",
            sorted(wanted.keys() - got.keys(), key=repr),
            sorted(got.keys() - wanted.keys(), key=repr),
        )
    elif isinstance(wanted, set | frozenset):
        yield " alone", wanted - got, got - wanted
    elif is_record(type(wanted)):
        for field in record_fields(type(wanted)):
            one, another = getattr(wanted, field.name), getattr(got, field.name)
            yield (
                f".{field.name}",
                *((_Masked(one), _Masked(another)) if _is_hidden(field) else (one, another)),
            )


class _Masked:
    """Stands for a secret: it can be compared, and looked into no further."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Masked) and bool(self._value == other._value)

    __hash__ = None  # type: ignore[assignment]  # nothing holds one

    def __repr__(self) -> str:
        return MASK


def _is_hidden(field: RecordField) -> bool:
    return field.is_sensitive or shows_secrets(field.type)


def _shown(event: DomainEvent, field: RecordField) -> str:
    return MASK if _is_hidden(field) else _repr.repr(getattr(event, field.name))


def _class_of(expected: Expected) -> type[DomainEvent]:
    return expected if isinstance(expected, type) else type(_bare(expected))


def _bare(expected: DomainEvent | Exactly) -> DomainEvent:
    return expected.event if isinstance(expected, Exactly) else expected


def _skipped(expected: DomainEvent | Exactly) -> frozenset[str]:
    return frozenset() if isinstance(expected, Exactly) else _OWN_FIELDS
