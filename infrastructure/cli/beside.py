"""What `outbox dev` serves beside the API: the dashboard, and if so asked the sample that it shows (O2, O3)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.operations.desk import desk

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from starlette.types import ASGIApp, Receive, Scope, Send

    from outbox_kernel.infrastructure.application import Outbox
    from outbox_kernel.infrastructure.dashboard import Dashboard
    from outbox_kernel.infrastructure.settings import Settings

DASHBOARD = "/dashboard"


@attrs.frozen
class Beside:
    """A dashboard beside an API."""

    dashboard: Dashboard
    settings: Settings
    sample: bool

    def begin(self, ending: AsyncExitStack, app: ASGIApp) -> ASGIApp:
        """Return what is served in place of the API alone."""
        if self.sample:
            playing = asyncio.create_task(_played(self.settings), name="outbox-sample")
            ending.push_async_callback(_ended, playing)
        return Mounted(self.dashboard, DASHBOARD, app)

    def stop(self) -> None:
        """End what is streamed: the server stops."""
        self.dashboard.close()


async def beside_api(outbox: Outbox, *, sample: bool) -> Beside | None:
    """Return what stands beside an API; None: what it needs is not installed."""
    if sample:
        await _filled(outbox.settings)
    if find_spec("jinja2") is None:
        return None
    return Beside(outbox.dashboard(), outbox.settings, sample)


class Mounted:
    """One application below a path of another's, whose gate it need not pass."""

    def __init__(self, mounted: ASGIApp, path: str, app: ASGIApp) -> None:
        self._mounted = mounted
        self._path = path
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the one or the other answer."""
        path = scope.get("path", "")
        if path == self._path or path.startswith(f"{self._path}/"):
            await self._mounted(
                {**scope, "root_path": scope.get("root_path", "") + self._path}, receive, send
            )
        else:
            await self._app(scope, receive, send)


async def _filled(settings: Settings) -> None:
    """Fill the outbox with the sample, unless an earlier run has."""
    from outbox_kernel.infrastructure.sample import fill, is_filled

    async with desk(settings) as opened:
        if not await is_filled(opened):
            await fill(opened)


async def _played(settings: Settings) -> None:
    from outbox_kernel.infrastructure.sample import play

    async with desk(settings) as opened:
        await play(opened)


async def _ended(playing: asyncio.Task[None]) -> None:
    playing.cancel()
    with suppress(asyncio.CancelledError):
        await playing
