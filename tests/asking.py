"""Asking the API as its users do, in this process or over the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from outbox_kernel.infrastructure.http.problems import KIND_PREFIX, PROBLEM_TYPE
from outbox_kernel.infrastructure.http.tokens import sign

KEY = "a secret of the tests, long enough to be one"
USER = "0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3"


def bearer(subject: str = USER, **options: Any) -> dict[str, str]:
    """The header that says who asks."""
    return {"Authorization": f"Bearer {sign(KEY, subject, **{'lasts_seconds': 3600, **options})}"}


@asynccontextmanager
async def asking(app: FastAPI, headers: dict[str, str] | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application, in this process; as USER, unless the headers say otherwise."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://api", headers=bearer() if headers is None else headers
    ) as client:
        yield client


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    """Check that the answer is a problem of this status, as RFC 9457 has it, and return it without its prefix."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM_TYPE
    told: dict[str, Any] = response.json()
    assert told["status"] == status
    assert told["title"]
    assert told["detail"]
    assert told["request_id"] == response.headers["x-request-id"]
    assert "Traceback" not in response.text
    return {**told, "type": told["type"].removeprefix(KIND_PREFIX)}
