"""The metrics of a process as an ASGI application, for one that serves anyway (O4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outbox_kernel.infrastructure.telemetry.prometheus import CONTENT_TYPE, rendered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from outbox_kernel.infrastructure.telemetry.metrics import Metrics, Sample


class MetricsApp:
    """Answers each request with the metrics: `app.mount("/metrics", outbox.metrics())`, behind what protects it."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def text(self) -> str:
        """Return the metrics as Prometheus reads them."""
        return rendered(await self.samples())

    async def samples(self) -> list[Sample]:
        """Return each number as it is now."""
        return await self._metrics.samples()

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        _receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer."""
        if scope["type"] != "http":
            raise NotImplementedError(f"metrics are served by HTTP, not by {scope['type']}")
        body = (await self.text()).encode()
        headers = [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
