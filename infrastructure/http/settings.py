"""The settings of the HTTP door; each bad value is one sentence that names it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.number_settings import between, number, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")


@frozen(kw_only=True)
class HttpSettings:
    """How the API is served; every field has the default that ships."""

    host: str = "127.0.0.1"
    port: int = field(default=8000, validator=between("OUTBOX_API_PORT", 0, 65_535))
    """0: any that is free."""
    relay: bool = False
    """Deliver in this process too, while it serves."""
    docs: bool = True
    """Show `/docs` and `/openapi.json` to everybody."""
    token_key: str | None = field(default=None, repr=False)
    token_issuer: str | None = None
    token_audience: str | None = None
    body_bytes_max: int = field(
        default=1024 * 1024, validator=between("OUTBOX_API_BODY_BYTES_MAX", 1, 1024**3)
    )
    body_values_max: int = field(
        default=10_000, validator=between("OUTBOX_API_BODY_VALUES_MAX", 64, 1_000_000)
    )
    """How many values of JSON a body may hold, lists and objects among them."""
    graphql_bytes_max: int = field(
        default=128 * 1024, validator=between("OUTBOX_API_GRAPHQL_BYTES_MAX", 1, 1024**3)
    )
    """How large the body of a GraphQL request may be: what is wrong with one takes longer to find out."""
    connections_max: int = field(
        default=1_000, validator=between("OUTBOX_API_CONNECTIONS_MAX", 16, 1_000_000)
    )
    """Of more that are open at once, the oldest that have not sent a whole request make room."""
    head_seconds: float = field(default=10.0, validator=between("OUTBOX_API_HEAD_SECONDS", 0.01, 3600))
    """How long a connection may take for a request's head, from its beginning or from the last answer on."""
    request_seconds_max: float = field(
        default=30.0, validator=between("OUTBOX_API_REQUEST_SECONDS", 0.01, 3600)
    )
    grace_seconds: int = field(default=10, validator=between("OUTBOX_API_GRACE_SECONDS", 0, 3600))
    """How long requests under way have when the process is told to stop."""
    pool_size: int = field(default=20, validator=between("OUTBOX_API_POOL_SIZE", 1, 1000))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> HttpSettings:
        """Read the settings; an empty variable counts as one that is not set."""
        found: dict[str, Any] = {}
        for name, variable, read in (
            ("host", "OUTBOX_API_HOST", _text),
            ("port", "OUTBOX_API_PORT", whole),
            ("relay", "OUTBOX_API_RELAY", _yes_or_no),
            ("docs", "OUTBOX_API_DOCS", _yes_or_no),
            ("token_key", "OUTBOX_API_TOKEN_KEY", _text),
            ("token_issuer", "OUTBOX_API_TOKEN_ISSUER", _text),
            ("token_audience", "OUTBOX_API_TOKEN_AUDIENCE", _text),
            ("body_bytes_max", "OUTBOX_API_BODY_BYTES_MAX", whole),
            ("body_values_max", "OUTBOX_API_BODY_VALUES_MAX", whole),
            ("graphql_bytes_max", "OUTBOX_API_GRAPHQL_BYTES_MAX", whole),
            ("connections_max", "OUTBOX_API_CONNECTIONS_MAX", whole),
            ("head_seconds", "OUTBOX_API_HEAD_SECONDS", number),
            ("request_seconds_max", "OUTBOX_API_REQUEST_SECONDS", number),
            ("grace_seconds", "OUTBOX_API_GRACE_SECONDS", whole),
            ("pool_size", "OUTBOX_API_POOL_SIZE", whole),
        ):
            text = environ.get(variable, "").strip()
            if text:
                found[name] = read(variable, text)
        return cls(**found)

    @property
    def required_token_key(self) -> str:
        """The key, or the sentence that asks for it."""
        if self.token_key is None:
            raise BadSetting(
                "OUTBOX_API_TOKEN_KEY",
                "is not set: write the public key (PEM) of whoever signs your tokens, or a secret that you share",
            )
        return self.token_key


def _text(_variable: str, text: str) -> str:
    return text


def _yes_or_no(variable: str, text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise BadSetting(variable, f"is {text!r}: write yes or no")
    return text.lower() in _YES
