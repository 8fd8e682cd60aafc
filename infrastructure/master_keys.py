"""Master keys, which encrypt the keys of subjects where these are stored; each bad value is one sentence (O6, R15)."""

from __future__ import annotations

import binascii
import os
import re
import secrets
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Self

import attrs

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.limits import MASTER_KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "OUTBOX_MASTER_KEYS"
FILE_VARIABLE = "OUTBOX_MASTER_KEYS_FILE"
_ID = re.compile(r"[A-Za-z0-9_.\-]{1,60}")
_FORM = "write ID:BASE64, as `outbox keys new` prints it, with commas between several"


@attrs.frozen
class MasterKeys:
    """Keys by their ids, the first of which encrypts what is new; none of them is ever shown."""

    by_id: Mapping[str, bytes] = attrs.field(repr=lambda keys: str(list(keys)), hash=False)

    @property
    def active(self) -> str:
        """The id of the key that encrypts what is new."""
        return next(iter(self.by_id))

    @staticmethod
    def is_name(name: str) -> bool:
        """Whether a key may be called so."""
        return _ID.fullmatch(name) is not None

    @classmethod
    def parse(cls, text: str, variable: str = VARIABLE) -> Self:
        """Read `ID:BASE64`, one or several with commas or lines between, the active one first."""
        found: dict[str, bytes] = {}
        for number, entry in enumerate(re.split(r"[,\n]", text.strip().strip(",")), start=1):
            name, key = _entry(entry.strip(), number, variable)
            if name in found:
                raise BadSetting(variable, f"has two keys called {name!r}: give each an id of its own")
            found[name] = key
        return cls(found)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self | None:
        """Read OUTBOX_MASTER_KEYS, or the file that OUTBOX_MASTER_KEYS_FILE names; None where neither is set."""
        text = environ.get(VARIABLE, "").strip()
        file = environ.get(FILE_VARIABLE, "").strip()
        if text and file:
            raise BadSetting(FILE_VARIABLE, f"is set beside {VARIABLE}: take one of them out")
        if file:
            return cls.parse(_read(file), FILE_VARIABLE)
        return cls.parse(text) if text else None


def new_master_key(name: str | None = None) -> str:
    """Make a key, as the settings take it."""
    key = b64encode(secrets.token_bytes(MASTER_KEY_BYTES)).decode()
    return f"{name or 'k' + secrets.token_hex(4)}:{key}"


def _entry(entry: str, number: int, variable: str) -> tuple[str, bytes]:
    # Never quoted: what is no key may be one that was cut, or pasted into the wrong place.
    name, colon, encoded = entry.partition(":")
    if not colon or not MasterKeys.is_name(name):
        raise BadSetting(variable, f"has no key in its entry {number}: {_FORM}")
    try:
        key = b64decode(encoded.translate({ord("-"): "+", ord("_"): "/"}), validate=True)
    except (binascii.Error, ValueError):
        raise BadSetting(variable, f"has a key {name!r} that is no base64: {_FORM}") from None
    if len(key) != MASTER_KEY_BYTES:
        raise BadSetting(
            variable, f"has a key {name!r} of {len(key)} bytes, and {MASTER_KEY_BYTES} are needed: {_FORM}"
        )
    if len(set(key)) == 1:
        raise BadSetting(variable, f"has a key {name!r} of one byte repeated, which anybody guesses: {_FORM}")
    return name, key


def _read(file: str) -> str:
    """Return what a file has, without blank lines and comments."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise BadSetting(
            FILE_VARIABLE,
            f"names {file}, which cannot be read ({error.strerror}): correct it, or let this user read it",
        ) from error
    except UnicodeDecodeError:
        raise BadSetting(FILE_VARIABLE, f"names {file}, which is no text: {_FORM}") from None
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("#"))
