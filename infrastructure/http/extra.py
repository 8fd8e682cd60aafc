"""Whether the libraries of the extra `http` are there."""

from __future__ import annotations

from importlib.util import find_spec

from outbox_kernel.infrastructure.errors import MissingExtra

_LIBRARIES = ("fastapi", "jwt", "strawberry", "uvicorn")


def require_http_extra() -> None:
    """Raise the sentence that says what to install."""
    if not all(find_spec(library) for library in _LIBRARIES):
        raise MissingExtra("http", "what serves HTTP")
