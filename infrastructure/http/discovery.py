"""Find what the contexts serve, by name: the `router` and the GraphQL types of each `api` module."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from attrs import frozen
from fastapi import APIRouter

from outbox_kernel.infrastructure.discovery import context_folder
from outbox_kernel.infrastructure.errors import BadContext

if TYPE_CHECKING:
    from collections.abc import Iterable


@frozen
class Api:
    """What one context serves."""

    context: str
    router: APIRouter | None
    query: type[Any] | None
    mutation: type[Any] | None


def apis_of(packages: Iterable[str]) -> list[Api]:
    """Import the `api` module of each context that has one."""
    return [api for package in packages if (api := _api_of(package)) is not None]


def _api_of(package: str) -> Api | None:
    context_folder(package)
    try:
        if find_spec(f"{package}.api") is None:
            return None
        module = import_module(f"{package}.api")
    except Exception as error:
        raise BadContext(
            package, f"has an api module that cannot be imported ({type(error).__name__}: {error}): mend it"
        ) from error
    api = Api(
        package,
        getattr(module, "router", None),
        getattr(module, "Query", None),
        getattr(module, "Mutation", None),
    )
    if not isinstance(api.router, APIRouter | None) or not (api.router or api.query or api.mutation):
        raise BadContext(
            package,
            "has an api module that serves nothing: give it `router`, an APIRouter, or `Query` and `Mutation`, "
            "Strawberry types",
        )
    return api
