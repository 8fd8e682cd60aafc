"""Who asks: the port by which the HTTP door learns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from attrs import Factory, frozen

from infrastructure.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Mapping


@frozen
class Principal:
    """Whoever asks, as the authenticator has found."""

    user_id: str
    """Stable and unique; every event of the request carries it."""
    claims: Mapping[str, Any] = Factory(dict)
    """What else the authenticator has learned."""


class Unauthenticated(InfrastructureError):
    """Nobody knows who asks; the sentence is fit to show."""


class Authenticator(Protocol):
    """Tells who asks from the headers of the request, whose names are in lower case."""

    async def principal_of(self, headers: Mapping[str, str]) -> Principal:
        """Return who asks, or raise Unauthenticated."""
