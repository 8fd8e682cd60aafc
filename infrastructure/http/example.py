"""A request to try, made from the examples in the OpenAPI document."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def curl_line(document: Mapping[str, Any], url: str, token: str) -> str:
    """Write a line to paste into a shell: the first POST whose examples suffice, else a look at the document."""
    authorization = f"Authorization: Bearer {token}"
    for path, item in document["paths"].items():
        body = _example_body(document, item.get("post"))
        if body is not None and "{" not in path:
            words = ["curl", "-i", url + path, "-H", authorization, "-H", "Content-Type: application/json"]
            return shlex.join([*words, "-d", json.dumps(body, ensure_ascii=False)])
    return shlex.join(["curl", "-i", f"{url}/openapi.json", "-H", authorization])


def _example_body(document: Mapping[str, Any], operation: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if operation is None or "requestBody" not in operation:
        return None
    reference = (
        operation["requestBody"]["content"].get("application/json", {}).get("schema", {}).get("$ref", "")
    )
    schema = document["components"]["schemas"].get(reference.rpartition("/")[2])
    if schema is None:
        return None
    found = {
        name: part["examples"][0]
        for name, part in schema.get("properties", {}).items()
        if part.get("examples")
    }
    return found if set(schema.get("required", ())) <= found.keys() else None
