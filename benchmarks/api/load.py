"""The load: some connections that each send a request when the last is answered, and as little else as can be."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Self

from attrs import define, field

from outbox_kernel.infrastructure.errors import InfrastructureError

BODY = json.dumps({"recipient": "Ada Lovelace"}).encode()
_LENGTH = b"content-length: "
_CREATED = b" 201 "


class UnexpectedAnswer(InfrastructureError):
    """The server did not do what it is measured at."""


@define
class Connections:
    """So many connections to one server."""

    host: str
    port: int
    token: str = field(repr=False)
    number: int
    _open: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(factory=list)

    async def __aenter__(self) -> Self:
        """Connect."""
        for _ in range(self.number):
            self._open.append(await asyncio.open_connection(self.host, self.port))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Hang up."""
        for _reader, writer in self._open:
            writer.close()
            await writer.wait_closed()

    async def rate(self, path: str, seconds: float) -> float:
        """Post to this path for a while, and return the answers per second."""
        request = self._request(path)
        start = time.monotonic()

        async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
            answers = 0
            while time.monotonic() - start < seconds:
                writer.write(request)
                await _answered(reader)
                answers += 1
            return answers

        total = sum(await asyncio.gather(*(ask(*each) for each in self._open)))
        return total / (time.monotonic() - start)

    def _request(self, path: str) -> bytes:
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {self.host}:{self.port}\r\nauthorization: Bearer {self.token}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
        )
        return head.encode() + BODY


async def _answered(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    status, _, _ = head.partition(b"\r\n")
    at = head.lower().find(_LENGTH)
    body = await reader.readexactly(int(head[at + len(_LENGTH) : head.index(b"\r\n", at)]))
    if _CREATED not in status:
        raise UnexpectedAnswer(f"the measured server answered {status.decode()}: {body.decode()}")
