"""What is wrong with a class, said early: its decorator is missing, or a base's, or a part of its state."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from outbox_kernel.kernel.errors import DefinitionError, StaleAggregate
from outbox_kernel.kernel.wire.types import fields_of

if TYPE_CHECKING:
    from collections.abc import Callable

_STANDS_IN = "__stands_in__"


def stand_in(cls: type[Any], check: Callable[[type[Any]], object]) -> None:
    """Give a class that is not decorated yet a constructor which raises what `check` says of it.

    Without one the constructor of its base would complain of the arguments, and not of what is missing.
    """
    if "__init__" in vars(cls) and not hasattr(vars(cls)["__init__"], _STANDS_IN):
        return

    def __init__(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807 - it becomes one
        if "__attrs_init__" in vars(cls):  # its author has made it an attrs class, and nothing else
            vars(cls)["__attrs_init__"](self, *arguments, **options)
            return
        check(type(self))
        # A decorated subclass, whose own constructor calls that of this base.
        super(cls, self).__init__(*arguments, **options)

    setattr(__init__, _STANDS_IN, True)
    cls.__init__ = __init__  # until the decorator writes the real one


def drop_stand_in(cls: type[Any]) -> None:
    """Make room for the real constructor."""
    if hasattr(vars(cls).get("__init__"), _STANDS_IN):
        del cls.__init__


def check_bases(cls: type[Any], root: type[Any], decorator: str) -> None:
    """Raise a DefinitionError if a base declares a field that is none, since nothing has made it one."""
    fields = {field.name for field in fields_of(cls)}
    for base in cls.__mro__[1:]:
        if base in root.__mro__ or "__attrs_attrs__" in vars(base) or vars(base).get("_is_protocol"):
            continue
        for name, annotation in inspect.get_annotations(base).items():
            if name not in fields and "ClassVar" not in str(annotation):
                raise DefinitionError(
                    f"{cls.__name__} is derived from {base.__name__}, whose `{name}` would not be a field of it; "
                    f"put {decorator} on {base.__name__}, or declare `{name}` in {cls.__name__}"
                )


def expect_version(cls: type[Any]) -> None:
    """Let a constructor that was written by hand say so when it leaves the aggregate without a version."""
    written: Callable[..., None] = cls.__init__

    @functools.wraps(written)
    def __init__(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807 - it becomes one
        try:
            written(self, *arguments, **options)
        except StaleAggregate as error:
            if "version" in self.__dict__:
                raise
            raise _without_version(cls) from error
        if type(self) is cls and "version" not in self.__dict__:
            raise _without_version(cls)

    cls.__init__ = __init__


def _without_version(cls: type[Any]) -> DefinitionError:
    return DefinitionError(
        f"{cls.__name__}.__init__ does not set `version`, which numbers the events; let it call "
        "self.__attrs_init__(…) with the fields' values first, or leave it out: @aggregate writes one"
    )
