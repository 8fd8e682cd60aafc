"""Signed bearer tokens (RFC 6750, RFC 7519): the authenticator that ships.

The key decides the algorithm, never the token: a PEM public key is RSA (RS256), P-256 (ES256) or Ed25519
(EdDSA), and anything else is a secret for HS256. So a token cannot ask to be read leniently, with `none`
or with the public key for a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jwt

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.http.authentication import Principal, Unauthenticated
from outbox_kernel.infrastructure.http.limits import (
    LEEWAY_SECONDS,
    SUBJECT_CHARACTERS_MAX,
    TOKEN_CHARACTERS_MAX,
)
from outbox_kernel.infrastructure.http.token_keys import KEY, SYMMETRIC, read_key
from outbox_kernel.kernel.clock import now

if TYPE_CHECKING:
    from collections.abc import Mapping

_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (jwt.ExpiredSignatureError, "has expired: get a new one"),
    (jwt.ImmatureSignatureError, "is not valid yet: look at the clocks"),
    (jwt.InvalidSignatureError, "is signed with another key: get one from who signs for this service"),
    (jwt.InvalidAlgorithmError, "is not signed in the way that this service accepts"),
    (jwt.InvalidAudienceError, "is meant for another service"),
    (jwt.InvalidIssuerError, "is from an issuer that this service does not know"),
    (
        jwt.MissingRequiredClaimError,
        "lacks a claim that this service needs: exp and sub, and aud and iss if set",
    ),
)


class BearerTokens:
    """Reads `Authorization: Bearer …`: signed, with an end (`exp`) and a subject (`sub`), which is the user's id."""

    def __init__(self, key: str, *, issuer: str | None = None, audience: str | None = None) -> None:
        self._key, self._algorithm = read_key(key)
        self._issuer, self._audience = issuer, audience

    async def principal_of(self, headers: Mapping[str, str]) -> Principal:
        """Return the token's subject, or raise Unauthenticated."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthenticated("this needs a token: send `Authorization: Bearer …`")
        claims = self._verified(token.strip())
        return Principal(_subject_of(claims), claims)

    def _verified(self, token: str) -> dict[str, Any]:
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise Unauthenticated(f"the token is longer than {TOKEN_CHARACTERS_MAX:,} characters")
        try:
            return jwt.decode(
                token,
                self._key,
                algorithms=[self._algorithm],
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "sub"]},
            )
        # What is no token at all may nest without end, or be no text: whatever it is, it opens no door.
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError) as error:
            raise Unauthenticated(f"the token {_reason(error)}") from error


def sign(
    key: str,
    subject: str,
    *,
    lasts_seconds: float,
    issuer: str | None = None,
    audience: str | None = None,
) -> str:
    """Make a token with a shared secret, for development and tests; in production an identity provider does."""
    secret, algorithm = read_key(key)
    if algorithm != SYMMETRIC:
        raise BadSetting(
            KEY, "is a public key, which signs nothing: ask whoever has the private one for a token"
        )
    _check_subject(subject)
    issued = now().timestamp()
    claims = {
        "sub": subject,
        "iat": int(issued),
        "exp": int(issued + lasts_seconds),
        "iss": issuer,
        "aud": audience,
    }
    present = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(present, secret, algorithm=algorithm)


def _reason(error: Exception) -> str:
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "is none that can be read")


def _subject_of(claims: Mapping[str, Any]) -> str:
    subject = claims["sub"]
    _check_subject(subject)
    return str(subject)


def _check_subject(subject: object) -> None:
    if not isinstance(subject, str) or not subject.strip() or not subject.isprintable():
        raise Unauthenticated("the token's subject (`sub`) is no user's id: it needs printable characters")
    if len(subject) > SUBJECT_CHARACTERS_MAX:
        raise Unauthenticated(
            f"the token's subject (`sub`) is longer than {SUBJECT_CHARACTERS_MAX} characters: take a shorter id"
        )
