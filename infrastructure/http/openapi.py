"""The OpenAPI document: what every endpoint may answer, said once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi

from outbox_kernel.infrastructure.http.problems import KIND_PREFIX, PROBLEM_TYPE

if TYPE_CHECKING:
    from fastapi import FastAPI

_PROBLEM = {"$ref": "#/components/schemas/Problem"}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "What went wrong (RFC 9457).",
    "required": ["type", "title", "status", "detail", "request_id"],
    "properties": {
        "type": {"type": "string", "description": "What kind of problem, for programs."},
        "title": {"type": "string", "description": "The status in words."},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened and what to do, for people."},
        "request_id": {"type": "string", "description": "Finds the request in the log."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "detail"],
                "properties": {"pointer": {"type": "string"}, "detail": {"type": "string"}},
            },
        },
    },
    "example": {
        "type": f"{KIND_PREFIX}email_taken",
        "title": "Conflict",
        "status": 409,
        "detail": "another account has this e-mail address: sign in with it, or use another address",
        "request_id": "01890a5d-ac96-774b-bcce-b302099a8057",
    },
}
_BEARER = {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
_REFUSALS = {
    400: "The body cannot be read.",
    401: "Nobody knows who asks: the token is missing, or no good.",
    403: "Whoever asks may not do this.",
    404: "There is no such thing.",
    409: "It does not go with what is there, or somebody else changed it at the same moment.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The request is not as described here, or a rule says no.",
    500: "Something went wrong on this side.",
    503: "What this service needs cannot be reached right now, or the answer took too long.",
}
_ALWAYS = (400, 401, 413, 415, 422, 500, 503)


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Document that an endpoint may refuse with these, beside what every endpoint may answer."""
    return {
        status: {"description": _REFUSALS[status], "content": {PROBLEM_TYPE: {"schema": _PROBLEM}}}
        for status in statuses
    }


EVERYWHERE = refusals(*_ALWAYS)


def document(app: FastAPI, public: frozenset[str]) -> dict[str, Any]:
    """Make the document of an application, once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        components = made.setdefault("components", {})
        components.setdefault("schemas", {})["Problem"] = _SCHEMA
        components["securitySchemes"] = {"token": _BEARER}
        made["security"] = [{"token": []}]
        for path, item in made["paths"].items():
            if path in public:
                for operation in item.values():
                    operation["security"] = []
        app.openapi_schema = made
    return app.openapi_schema
