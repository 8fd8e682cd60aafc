"""The stream by which a browser hears that something is new."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, Response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from outbox_kernel.infrastructure.dashboard.live import Live
    from outbox_kernel.infrastructure.dashboard.visit import Visit

# A proxy that gathers a stream before it hands it on would hold back each word.
_HEADERS = {"x-accel-buffering": "no"}


async def live(visit: Visit) -> Response:
    """Send a word whenever something has happened."""
    if visit.board.live.is_full:
        return PlainTextResponse("too many listen: load the page again now and then", 503)
    return Stream(visit.board.live)


class Stream(Response):
    """Ticks until the browser leaves, or it is time to ask anew who it is."""

    def __init__(self, source: Live) -> None:
        super().__init__(headers=_HEADERS, media_type="text/event-stream")
        del self.headers["content-length"]
        self._source = source

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send until it ends."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        sending = asyncio.create_task(self._send(send), name="outbox-dashboard-stream")
        leaving = asyncio.create_task(_left(receive), name="outbox-dashboard-leaving")
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        async with aclosing(self._source.listen()) as words:
            async for word in words:
                await send({"type": "http.response.body", "body": word.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
