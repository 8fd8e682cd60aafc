"""What OUTBOX_API_TOKEN_KEY holds: a public key in PEM, or a secret, and nothing that is neither.

Whatever is taken for a secret is what tokens can be made with. So what others may know too, such as a public key that
has lost its frame, the address of a key or the path of its file, is refused with the way to what was meant.
"""

from __future__ import annotations

import math
import re
from base64 import urlsafe_b64decode
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    load_der_private_key,
    load_der_public_key,
    load_pem_public_key,
)
from cryptography.x509 import load_der_x509_certificate

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.http.limits import RSA_BITS_MIN, SECRET_BITS_MIN, SECRET_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "OUTBOX_API_TOKEN_KEY"
SYMMETRIC = "HS256"
_MAKE_ONE = "make one with `openssl rand -hex 32`"
_PEM = "write the public key in PEM, which begins with -----BEGIN PUBLIC KEY-----"

_JSON = re.compile(r'\s*[\[{].*"', re.DOTALL)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//|\S*[:/])")
_PATH = re.compile(
    r"[~.]{0,2}/|[A-Za-z]:\\|.*\.(pem|key|pub|der|crt|cer|json|jwks?|txt|p8|asc)$", re.IGNORECASE
)
# Names between slashes, without a scheme or an ending: no base64, which has no slash beside one of these.
_NAMES = re.compile(r"(?=.*[._~-])[\w.~-]+(/[\w.~-]+)+/?")
_BASE64 = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9+=])[A-Za-z0-9+/]+={0,2}")
_OPENSSH = re.compile(r"(ssh-|ecdsa-|sk-)\S+ AAAA|AAAA[BE]3Nz")
_TOKEN = re.compile(r"eyJ[\w-]*\.[\w-]+\.[\w-]*")
_PLACEHOLDER = re.compile(
    r"[$<{%]+[({]?[\w .:-]*[>)}%]+|\$\w+|([a-z]+:)?[A-Z][A-Z0-9]*(_[A-Z0-9]+)+"
    r"|.*(change|replace)[-_ ]?(me|this).*|.*placeholder.*|.*your[-_ ]([\w]+[-_ ])*(secret|key).*"
)
# Those that are printed where many read how to sign tokens.
_KNOWN = frozenset(
    {
        "a-string-secret-at-least-256-bits-long",
        "09d25e094faa6ca2556c818166b7a9563b93f7099f6f0f4caa6cf63b88e8d3e7",
    }
)
_POINT_BYTES = 65


def read_key(text: str) -> tuple[Any, str]:
    """Return the key and the one algorithm that it is for, or raise BadSetting with the remedy."""
    if "-----BEGIN" in text:
        return _read_public_key(text)
    _check_secret(text)
    return text, SYMMETRIC


def _read_public_key(text: str) -> tuple[Any, str]:
    try:
        # As one line, the way an environment variable is often written.
        key = load_pem_public_key(text.replace("\\n", "\n").encode())
    except (ValueError, UnsupportedAlgorithm):
        raise BadSetting(
            KEY, "is no public key in PEM: write what begins with -----BEGIN PUBLIC KEY-----"
        ) from None
    if isinstance(key, RSAPublicKey) and key.key_size >= RSA_BITS_MIN:
        return key, "RS256"
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return key, "ES256"
    if isinstance(key, Ed25519PublicKey):
        return key, "EdDSA"
    raise BadSetting(
        KEY, f"is of a kind that is not accepted: use RSA of {RSA_BITS_MIN} bits or more, P-256 or Ed25519"
    )


def _check_secret(text: str) -> None:
    # In quotes that nobody took off it is the same.
    bare = text.strip().strip("\"'<>")
    for is_so, sentence in _NO_SECRETS:
        if is_so(text) or is_so(bare):
            raise BadSetting(KEY, sentence)
    if len(text.encode()) < SECRET_BYTES_MIN:
        raise BadSetting(KEY, f"is shorter than {SECRET_BYTES_MIN} bytes, which can be guessed: {_MAKE_ONE}")
    if _bits(text) < SECRET_BITS_MIN:
        raise BadSetting(KEY, f"says the same again and again, which can be guessed: {_MAKE_ONE}")


def _is_path(text: str) -> bool:
    # A secret in base64 may begin with a slash as well, and then it is no file.
    looks_so = _PATH.match(text) is not None or _NAMES.fullmatch(text) is not None
    return _is_there(text) or (looks_so and _BASE64.fullmatch(text) is None)


def _is_there(text: str) -> bool:
    try:
        return Path(text).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False  # too long for a name, or none


def _is_wrapped(text: str) -> bool:
    """Whether it is a key of whichever form in base64 or hex, as tools hand on what has lines."""
    written = "".join(text.split()).replace("\\n", "").rstrip("=")
    for decoded in (_from_base64, bytes.fromhex):
        try:
            content = decoded(written)
        except ValueError:
            continue
        if b"-----BEGIN" in content or (content.lstrip().startswith(b"{") and b'"kty"' in content):
            return True
        if any(_loads(load, content) for load in _LOADERS):
            return True
    return False


def _loads(load: Callable[[bytes], object], content: bytes) -> bool:
    try:
        load(content)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return True


def _load_point(content: bytes) -> object:
    if len(content) != _POINT_BYTES:
        raise ValueError("a point of the curve has another length")
    return EllipticCurvePublicKey.from_encoded_point(SECP256R1(), content)


def _from_base64(text: str) -> bytes:
    return urlsafe_b64decode(text.replace("+", "-").replace("/", "_") + "==")


def _load_private_key(content: bytes) -> object:
    return load_der_private_key(content, None)


_LOADERS = (load_der_public_key, load_der_x509_certificate, _load_private_key, _load_point)


def _bits(text: str) -> float:
    """Say how much there is to guess at most, if each character is drawn as often as it occurs here."""
    # What is repeated is counted once.
    text = text[: next(length for length in range(1, len(text) + 1) if text.startswith(text[length:]))]
    return sum(number * math.log2(len(text) / number) for number in Counter(text).values())


_NO_SECRETS: tuple[tuple[Callable[[str], Any], str], ...] = (
    (
        lambda text: "PUBLIC KEY" in text or "CERTIFICATE" in text or "PRIVATE KEY" in text,
        f"is a key whose frame is damaged: {_PEM}",
    ),
    (
        _JSON.match,
        f"is a JSON Web Key, which is not read here: {_PEM}",
    ),
    (_URL.match, f"is an address, and nothing is fetched from there: {_PEM}, or a secret that you share"),
    (_PLACEHOLDER.fullmatch, "is a placeholder that nothing was put into: write the key itself"),
    (_KNOWN.__contains__, f"is printed in a tutorial, where everybody reads it: {_MAKE_ONE}"),
    (_is_path, "is the path of a file, which is not read: write what is in the file"),
    (_OPENSSH.match, f"is a public key in the form of OpenSSH: {_PEM} (`ssh-keygen -e -m pkcs8`)"),
    (_TOKEN.fullmatch, "is a token, and not the key that tokens are signed with: write that"),
    (_is_wrapped, f"is a key or a certificate without its frame: {_PEM}"),
)
