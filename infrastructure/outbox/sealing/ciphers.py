"""AES-GCM, and how a nonce is chosen: the one module that encrypts (O6)."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from functools import cache
from typing import TYPE_CHECKING, Any

from outbox_kernel.infrastructure.errors import MissingExtra
from outbox_kernel.infrastructure.outbox.sealing.limits import NONCE_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


class NotOpened(Exception):
    """The text was not sealed with this key, or not for this place."""


class Cipher:
    """Seals texts with one key, each for one place: nowhere else can it be opened.

    The nonce is made of all that is sealed, the place included (a synthetic IV), with a key of its own. So no two texts
    have one nonce, whatever a random generator does. The same text at the same place is sealed the same, which is how
    an event that a queue brings again is known.
    """

    def __init__(self, key: bytes) -> None:
        self._box: AESGCM = _aes_gcm()(hmac.digest(key, b"outbox-kernel: sealing", "sha256"))
        self._nonces = hmac.digest(key, b"outbox-kernel: nonces", "sha256")

    def seal(self, text: bytes, place: bytes) -> str:
        """Encrypt a text for a place."""
        nonce = hmac.digest(self._nonces, len(place).to_bytes(8) + place + text, "sha256")[:NONCE_BYTES]
        return b64encode(nonce + self._box.encrypt(nonce, text, place)).decode()

    def open(self, sealed: str, place: bytes) -> bytes:
        """Return the text, or raise NotOpened."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra brings it

        try:
            raw = b64decode(sealed, validate=True)
            return self._box.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], place)
        except (InvalidTag, ValueError, TypeError) as error:
            raise NotOpened from error


@cache
def _aes_gcm() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra brings it
    except ModuleNotFoundError as error:
        raise MissingExtra("sealed", "what encrypts sensitive fields") from error
    return AESGCM


def check_installed() -> None:
    """Raise MissingExtra where there is nothing to encrypt with."""
    _aes_gcm()
