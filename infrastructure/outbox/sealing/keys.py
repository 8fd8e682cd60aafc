"""The key of a subject: 32 random bytes, stored encrypted by a master key, for this subject and no other (O6)."""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import attrs

from outbox_kernel.infrastructure.errors import MasterKeyUnfit
from outbox_kernel.infrastructure.outbox.sealing.ciphers import Cipher, NotOpened
from outbox_kernel.infrastructure.outbox.sealing.limits import KEY_BYTES

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.master_keys import MasterKeys


@attrs.frozen
class StoredKey:
    """A key as its row has it."""

    id: UUID
    subject: str
    master_key: str
    wrapped: str

    def unwrapped(self, masters: MasterKeys | None) -> bytes:
        """Return the key itself, or raise MasterKeyUnfit."""
        master = None if masters is None else masters.by_id.get(self.master_key)
        if master is None:
            raise MasterKeyUnfit(
                self.master_key, "is not in OUTBOX_MASTER_KEYS: add it behind the active one"
            )
        try:
            return _master(master).open(self.wrapped, _place(self.id, self.subject))
        except NotOpened as error:
            raise MasterKeyUnfit(
                self.master_key,
                "has other bytes in OUTBOX_MASTER_KEYS, or a subject's key was changed: restore the right one",
            ) from error

    def rewrapped(self, masters: MasterKeys) -> str:
        """Return the key encrypted by the active master key."""
        return wrapped(self.unwrapped(masters), self.id, self.subject, masters)


@attrs.define(eq=False)
class SubjectKey:
    """A key at hand, until it is found to be destroyed."""

    id: UUID
    cipher: Cipher | None
    unfit: MasterKeyUnfit | None = None
    """Why it cannot be used here, though it is there."""

    @classmethod
    def of(cls, stored: StoredKey, masters: MasterKeys | None) -> SubjectKey:
        """Return a key to use, which says why it cannot be when it is asked to."""
        try:
            return cls(stored.id, Cipher(stored.unwrapped(masters)))
        except MasterKeyUnfit as error:
            return cls(stored.id, None, error)

    @property
    def is_forgotten(self) -> bool:
        """Whether it is destroyed."""
        return self.cipher is None and self.unfit is None

    def forget(self) -> None:
        """Let go of it: it is destroyed where it was stored."""
        self.cipher = self.unfit = None

    def seal(self, text: bytes, place: bytes) -> str:
        """Encrypt a text for a place."""
        return self._usable().seal(text, place)

    def open(self, sealed: str, place: bytes) -> bytes:
        """Decrypt what was encrypted for a place."""
        return self._usable().open(sealed, place)

    def _usable(self) -> Cipher:
        if self.unfit is not None:
            raise MasterKeyUnfit(self.unfit.name, self.unfit.remedy)
        if self.cipher is None:
            raise LookupError("the key is destroyed")
        return self.cipher


def new_key(subject: str, masters: MasterKeys) -> StoredKey:
    """Make a key for a subject."""
    key_id = uuid4()
    made = wrapped(secrets.token_bytes(KEY_BYTES), key_id, subject, masters)
    return StoredKey(key_id, subject, masters.active, made)


def wrapped(key: bytes, key_id: UUID, subject: str, masters: MasterKeys) -> str:
    """Encrypt a key by the active master key, for one row."""
    return _master(masters.by_id[masters.active]).seal(key, _place(key_id, subject))


# There are few, and each flush asks twice.
@lru_cache(maxsize=16)
def _master(key: bytes) -> Cipher:
    return Cipher(key)


def _place(key_id: UUID, subject: str) -> bytes:
    return f"{key_id} {subject}".encode()
