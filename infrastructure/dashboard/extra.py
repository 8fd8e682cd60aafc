"""Whether the libraries of the extra `dashboard` are there."""

from __future__ import annotations

from importlib.util import find_spec

from outbox_kernel.infrastructure.errors import MissingExtra

_LIBRARIES = ("jinja2", "starlette")


def require_dashboard_extra() -> None:
    """Raise the sentence that says what to install."""
    if not all(find_spec(library) for library in _LIBRARIES):
        raise MissingExtra("dashboard", "the dashboard")
