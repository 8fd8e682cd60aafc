"""What sealed fields need of a process: a master key, and the library that encrypts (O6, R14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.master_keys import VARIABLE, MasterKeys
from outbox_kernel.infrastructure.outbox.sealing.ciphers import check_installed
from outbox_kernel.kernel.catalogue import event_types

if TYPE_CHECKING:
    from outbox_kernel.kernel.catalogue import EventType


def in_force(masters: MasterKeys | None) -> MasterKeys | None:
    """Return the given master keys, else those of the environment."""
    return masters or MasterKeys.from_environment()


def required(masters: MasterKeys | None) -> MasterKeys:
    """Return the master keys, or raise the sentence that asks for them, or for the library."""
    check_installed()
    if masters is None:
        asking = _first_asking()
        fields = ", ".join(repr(field.name) for field in asking.sealed) if asking else "its fields"
        who = (
            f"event {asking.name!r} keeps {fields} encrypted" if asking else "an event keeps fields encrypted"
        )
        raise BadSetting(
            VARIABLE,
            f"is not set, and {who}: make a key with `outbox keys new`, and give it to every process of this outbox",
        )
    return masters


def require_master_keys(masters: MasterKeys | None) -> None:
    """Raise what a commit would raise, where an event that is defined by now has sealed fields; for start-up."""
    if _first_asking() is not None:
        required(masters)


def _first_asking() -> EventType | None:
    return next((each for each in event_types() if each.sealed), None)
