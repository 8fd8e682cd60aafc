"""JSON of every shape, up to a megabyte, from a seed: what is in order, with a part of it that is not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

BYTES_MAX = 1024 * 1024
ID = "0192f0c1-2d3e-7a4b-8c5d-000000000001"
CREATE = "mutation ($input: CreateFamilyInput!) { createFamily(input: $input) { id } }"
ENDPOINTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("POST", "/accounts", {"email": "ada@example.org"}),
    ("PATCH", f"/accounts/{ID}", {"email": "ada@example.org"}),
    (
        "POST",
        "/group-messages",
        {"channel_id": ID, "contact_group_ids": [ID], "total_recipients": 1, "body": "x"},
    ),
    ("PATCH", f"/group-messages/{ID}", {"status": "queued"}),
    (
        "POST",
        "/scheduled-messages",
        {
            "channel_id": ID,
            "send_type": "group",
            "scheduled_at": "2030-01-01T09:00",
            "timezone": "UTC",
            "recurrence_rule": "FREQ=DAILY",
            "body": "x",
        },
    ),
    ("PATCH", f"/scheduled-messages/{ID}", {"status": "paused", "timezone": "UTC"}),
    (
        "POST",
        "/graphql",
        {
            "query": CREATE,
            "variables": {"input": {"name": "Us", "ownerEmail": "a@example.org"}},
            "operationName": None,
        },
    ),
)
# Ordinary, of several bytes, composing, growing, invisible, and what a terminal obeys.
LETTERS = 'a9 "\\/{[,:\u00e4\u0301\u0323\ufdfa\u200d\ud800\x00\x1b\x9b\U0001f989'


class Shapes:
    """What one seed makes."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def request(self) -> tuple[str, str, bytes]:
        """A method, a path and a body."""
        method, path, example = self._random.choice(ENDPOINTS)
        size = int(2 ** self._random.uniform(0, 20))
        kind = self._random.random()
        if kind < 0.05:
            return method, path, self._random.randbytes(size)
        if kind < 0.15:
            return method, path, _cut(json.dumps(self._monster(size)).encode())
        body = json.loads(json.dumps(example))
        self._spoil(body, size)
        return (
            method,
            path,
            _cut(json.dumps(body, ensure_ascii=self._random.random() < 0.5).encode(errors="replace")),
        )

    def _spoil(self, body: dict[str, Any], size: int) -> None:
        """Put a monster in the place of a value, or beside the others."""
        name = self._random.choice([*body, self._text(self._random.randrange(20))])
        inner = body.get(name)
        if isinstance(inner, dict) and self._random.random() < 0.8:
            self._spoil(inner, size)
        elif isinstance(inner, list) and self._random.random() < 0.8:
            body[name] = [*inner, *self._wide(size)]
        else:
            body[name] = self._monster(size)

    def _monster(self, size: int) -> Any:
        shapes: tuple[Callable[[int], Any], ...] = (
            self._text,
            self._wide,
            self._deep,
            self._members,
            self._number,
        )
        return self._random.choice(shapes)(size)

    def _text(self, size: int) -> str:
        few = "".join(self._random.choices(LETTERS, k=self._random.randint(1, 4)))
        return (few * (size // len(few) + 1))[:size]

    def _wide(self, size: int) -> list[Any]:
        piece: Any = self._random.choice([0, "", [], {}, None, True, ID, {"a": [0]}, self._text(100)])
        return [piece] * (size // (len(json.dumps(piece)) + 2))

    def _deep(self, size: int) -> Any:
        # Python writes no more than so many levels.
        levels, name = min(size // 3, 900), self._text(self._random.choice([1, 1, 1_000]))
        found: Any = self._text(1)
        for _ in range(levels):
            found = {name: found} if self._random.random() < 0.5 else [found]
        return found

    def _members(self, size: int) -> dict[str, Any]:
        name = self._text(self._random.choice([0, 1, 100]))
        return {f"{name}{number}": 0 for number in range(size // (len(name) + 12))}

    def _number(self, size: int) -> Any:
        digits = self._random.choice([10, 300, 4_000])
        return self._random.choice([10**digits, -1, 1.5e300, [10**digits] * (size // digits)])


def _cut(body: bytes) -> bytes:
    return body[:BYTES_MAX]
