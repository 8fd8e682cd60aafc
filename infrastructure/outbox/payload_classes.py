"""Payloads into objects: the struct that msgspec reads for a class, and what makes an object of that class of it.

Both are put together once per class. What makes the objects is written as Python and compiled, as attrs and cattrs
do: a loop over fields would cost as much as the decoding.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import msgspec
from msgspec import UNSET

from outbox_kernel.kernel.wire.types import fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Make = Callable[[Any], Any]


class Part(NamedTuple):
    """How a value comes out of a payload: what msgspec reads it as, and what is made of that, if anything."""

    read: Any
    make: Make | None = None


@attrs.frozen(eq=False)
class Slot:
    """A field of a class, as a struct holds it."""

    place: str
    key: str
    name: str
    keyword: str
    part: Part
    is_required: bool

    @property
    def value(self) -> str:
        """The expression for its value, of the struct that was got."""
        return f"got.{self.place}" if self.part.make is None else f"make_{self.place}(got.{self.place})"


def struct_of(slots: Iterable[Slot], *, beside: Sequence[str] = ()) -> type[Any]:
    """Make the struct that msgspec reads; `beside` are the keys of integers that nobody wants.

    It refuses a key that it does not know: what the kernel ignores is for the kernel to ignore.
    """
    found = [(slot.place, slot.key, slot.part.read, slot.is_required) for slot in slots]
    found += [(f"beside_{number}", key, int, False) for number, key in enumerate(beside)]
    # As jsonb sorts keys, since msgspec looks for each where the last one stood.
    found.sort(key=lambda each: (len(each[1].encode()), each[1].encode()))
    return msgspec.defstruct(
        "Stored",
        [(place, read) if required else (place, read, UNSET) for place, _, read, required in found],
        rename={place: key for place, key, *_ in found},
        forbid_unknown_fields=True,
        kw_only=True,
        gc=False,
    )


def construction(cls: type[Any], slots: Sequence[Slot]) -> Make:
    """Return what calls the constructor with what a struct holds."""
    given = [f"{slot.keyword!r}: {slot.value}" for slot in slots if slot.is_required]
    given += [
        f"**({{}} if got.{slot.place} is UNSET else {{{slot.keyword!r}: {slot.value}}})"
        for slot in slots
        if not slot.is_required
    ]
    return _compiled(f"cls(**{{{', '.join(given)}}})", slots, cls=cls)


def holding(slots: Sequence[Slot]) -> Make:
    """Return what gives the `__dict__` of an object for what a struct holds; None where a default is called for."""
    held = f"{{{', '.join(f'{slot.name!r}: {slot.value}' for slot in slots)}}}"
    missing = [f"got.{slot.place} is UNSET" for slot in slots if not slot.is_required]
    return _compiled(f"None if {' or '.join(missing)} else {held}" if missing else held, slots)


def _compiled(expression: str, slots: Iterable[Slot], **known: Any) -> Make:
    makers = {f"make_{slot.place}": slot.part.make for slot in slots}
    # All names in it are from here; those of fields stand in it as literals only.
    compiled: Make = eval(f"lambda got: {expression}", {**known, **makers, "UNSET": UNSET})  # noqa: S307
    return compiled


def takes_by_keyword(cls: type[Any], keywords: Sequence[str]) -> bool:
    """Tell whether a constructor takes just these, in this order: cattrs gives it some by their place."""
    new: Any = cls.__new__
    if new is not object.__new__ or type(cls).__call__ is not type.__call__:
        return False
    _, *taken = inspect.signature(cls.__init__).parameters.values()
    placed = [each.name for each in taken if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    named = [each.name for each in taken if each.kind is inspect.Parameter.KEYWORD_ONLY]
    in_place = [keyword for keyword in keywords if keyword not in named]
    return len(placed) + len(named) == len(taken) == len(keywords) and placed == in_place


def is_merely_filled(cls: type[Any]) -> bool:
    """Tell whether the constructor of an attrs class does nothing but put each argument into the `__dict__`.

    Converters are not asked about here.
    """
    written = getattr(vars(cls).get("__init__"), "__code__", None)
    return (
        # The one trace of a constructor that attrs has written, and nobody has wrapped or replaced.
        written is not None
        and written.co_filename.startswith("<attrs generated")
        and not issubclass(cls, BaseException)
        and not hasattr(cls, "__attrs_pre_init__")
        and not hasattr(cls, "__attrs_post_init__")
        # A slot, or whatever else of that name stands in the class, might be set instead.
        and all(
            field.init and not field.validator and not hasattr(cls, field.name) for field in fields_of(cls)
        )
    )
