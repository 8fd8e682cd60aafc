"""The HTTP door: what contexts' `api` modules are made of, and the one application that serves them all."""

from infrastructure.http.extra import require_http_extra

require_http_extra()

from infrastructure.http.app import create_app
from infrastructure.http.authentication import Authenticator, Principal, Unauthenticated
from infrastructure.http.bodies import JsonBody, Moment, WholeNumber, left_out
from infrastructure.http.openapi import refusals
from infrastructure.http.scope import CurrentPrincipal, Provided
from infrastructure.http.settings import HttpSettings
from infrastructure.http.tokens import BearerTokens

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
