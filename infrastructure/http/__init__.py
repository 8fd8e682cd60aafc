"""The HTTP door: what contexts' `api` modules are made of, and the one application that serves them all.

`app` makes the application of what `discovery` finds. `connections` stands before the server, and keeps room for
those who ask. `gate` stands before every request: token, size, time. `tokens` proves a token, `authentication` is
the port behind which an application has its own. `bodies`, `graphql` and `openapi` are for `api` modules; `problems`
turns what was raised into an answer that tells no secret; `health` says whether the process lives and is ready.

The commands `api` and `dev` serve it. It needs what the extra `http` brings, and says so where that is missing;
nothing outside it and the contexts' `api` imports it.

It may import everything below it but the relay's inside.
"""

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
