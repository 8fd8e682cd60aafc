"""The HTTP door: what contexts' `api` modules are made of, and the one application that serves them all."""

from outbox_kernel.infrastructure.http.extra import require_http_extra

require_http_extra()

from outbox_kernel.infrastructure.http.app import create_app
from outbox_kernel.infrastructure.http.authentication import Authenticator, Principal, Unauthenticated
from outbox_kernel.infrastructure.http.bodies import JsonBody, Moment, WholeNumber, left_out
from outbox_kernel.infrastructure.http.openapi import refusals
from outbox_kernel.infrastructure.http.scope import CurrentPrincipal, Provided
from outbox_kernel.infrastructure.http.settings import HttpSettings
from outbox_kernel.infrastructure.http.tokens import BearerTokens

__all__ = [
    "Authenticator",
    "BearerTokens",
    "CurrentPrincipal",
    "HttpSettings",
    "JsonBody",
    "Moment",
    "Principal",
    "Provided",
    "Unauthenticated",
    "WholeNumber",
    "create_app",
    "left_out",
    "refusals",
]
