"""The API's server: one that keeps room for those who ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.http.connections import Connections
from outbox_kernel.infrastructure.http.limits import ACCEPTED_AT_ONCE_MAX
from outbox_kernel.infrastructure.web import WebServer

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from outbox_kernel.infrastructure.http.settings import HttpSettings


class ApiServer(WebServer):
    """One server on one socket, as the settings have it."""

    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        connections = Connections(settings)
        super().__init__(
            connections.application(app),
            settings.grace_seconds,
            protocol=connections.protocol,
            backlog=ACCEPTED_AT_ONCE_MAX,
        )
