"""Opening what is read: the keys of a read are asked for with it, and looked at again while anybody has them (O6)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID
from weakref import WeakValueDictionary

import attrs

from outbox_kernel.infrastructure.errors import MasterKeyUnfit
from outbox_kernel.infrastructure.outbox.sealing.boxes import MARK, boxes_in, key_ids
from outbox_kernel.infrastructure.outbox.sealing.keys import StoredKey, SubjectKey
from outbox_kernel.infrastructure.outbox.sql.subject_keys import FORGOTTEN_KEYS, READ_KEYS
from outbox_kernel.kernel.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from outbox_kernel.infrastructure.master_keys import MasterKeys
    from outbox_kernel.infrastructure.outbox.sql.named import Statement


class Openable(Protocol):
    """A row that was read, to which its keys are given."""

    subject_keys: Mapping[str, SubjectKey] | None

    def __getitem__(self, column: str) -> Any: ...


class Asking(Protocol):
    """Who runs a statement by the names of its parameters."""

    async def run(self, statement: Statement, **values: Any) -> list[Any]: ...  # noqa: D102


@attrs.define(eq=False)
class KeysInHand:
    """The keys of what a relay has in hand; nobody remembers one for longer."""

    masters: MasterKeys | None = None
    _known: WeakValueDictionary[str, SubjectKey] = attrs.Factory(WeakValueDictionary)

    async def give(self, rows: Sequence[Openable], asking: Asking) -> None:
        """Give each row with sealed fields the keys that open them, as they are now."""
        marked = [row for row in rows if MARK in row["payload"]]
        sealed = [(row, boxes) for row in marked if (boxes := boxes_in(row["payload"]))]
        if not sealed:
            return
        keys = await self._read({key for _, boxes in sealed for key in key_ids(boxes)}, asking)
        for row, boxes in sealed:
            row.subject_keys = {key: keys[key] for key in key_ids(boxes) if key in keys}

    async def look_again(self, asking: Asking) -> None:
        """Let go of the keys that were destroyed since they were read."""
        living = {name: key for name, key in self._known.items() if not key.is_forgotten}
        if living:
            for row in await asking.run(FORGOTTEN_KEYS, ids=_uuids(living)):
                living[str(row["id"])].forget()

    async def _read(self, names: Iterable[str], asking: Asking) -> dict[str, SubjectKey]:
        found = {}
        for row in await asking.run(READ_KEYS, ids=_uuids(names)):
            name = str(row["id"])
            key = self._known.get(name) or _key_of(row, self.masters)
            if row["forgotten_at"] is not None:
                key.forget()
            found[name] = self._known[name] = key
        return found


@contextmanager
def uncharged() -> Iterator[None]:
    """Say of a master key that is not at hand that it is nobody's failure: who needs it stands still (R7)."""
    try:
        yield
    except MasterKeyUnfit as error:
        raise Unavailable(f"master key {error.name!r}", str(error)) from error


def _key_of(row: Any, masters: MasterKeys | None) -> SubjectKey:
    if row["forgotten_at"] is not None:
        return SubjectKey(row["id"], None)
    return SubjectKey.of(StoredKey(row["id"], row["subject"], row["master_key"], row["wrapped"]), masters)


def _uuids(names: Iterable[str]) -> list[UUID]:
    # What is no id was written past us, and is in no row.
    return [UUID(name) for name in names if _is_uuid(name)]


def _is_uuid(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False
