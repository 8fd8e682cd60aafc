"""Who asks: the port by which the HTTP door learns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from attrs import Factory, frozen

from outbox_kernel.infrastructure.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Mapping


@frozen
class Principal:
    """Whoever asks, as the authenticator has found."""

    user_id: str
    """Stable and unique; every event of the request carries it."""
    claims: Mapping[str, Any] = Factory(dict)
    """What else the authenticator has learned."""

    @property
    def uuid(self) -> UUID:
        """The id of the user as the UUID that it is to be where a context knows its users by one."""
        try:
            return UUID(self.user_id)
        except ValueError:
            raise NotOneOfOurUsers("whoever asks is known by no UUID, as the users of this are") from None


class NotOneOfOurUsers(InfrastructureError):
    """Who asks is known, but has no id of the kind that is asked for; the sentence is fit to show."""


class Unauthenticated(InfrastructureError):
    """Nobody knows who asks; the sentence is fit to show."""


class Authenticator(Protocol):
    """Tells who asks from the headers of the request, whose names are in lower case."""

    async def principal_of(self, headers: Mapping[str, str]) -> Principal:
        """Return who asks, or raise Unauthenticated."""
