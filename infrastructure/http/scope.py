"""What an endpoint asks for: parts of the application, from the container of its request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from fastapi import Depends, Request

from outbox_kernel.infrastructure.http.authentication import Principal

if TYPE_CHECKING:
    from lagom import Container
    from starlette.types import Scope

T = TypeVar("T")

_KEY = "outbox.container"


def put_container(scope: Scope, container: Container) -> None:
    """Leave the request's container where its endpoint will find it."""
    scope[_KEY] = container


def container_of(scope: Scope) -> Container:
    """Return the request's container."""
    return cast("Container", scope[_KEY])


def Provided(kind: type[T]) -> Any:  # noqa: N802 - read as a type, like FastAPI's own
    """Say that the request's container makes an endpoint's parameter, annotated with the type that it is to make."""

    # A coroutine, since FastAPI runs a plain function in a thread.
    async def provide(request: Request) -> T:
        return container_of(request.scope)[kind]

    return Depends(provide)


CurrentPrincipal = Annotated[Principal, Provided(Principal)]
"""The type of an endpoint's parameter that is to be whoever asks."""
