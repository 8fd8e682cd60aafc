"""It stands under any prefix of any application, whoever takes the prefix away, and in any schema (D2, O3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount

from outbox_kernel import Outbox as Application
from outbox_kernel import Settings
from outbox_kernel.infrastructure.dashboard import ALL_RIGHTS, Dashboard, Operator
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.errors import ArgumentRefused
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.kernel.errors import KernelError
from tests.integration.dashboard.conftest import SETTINGS
from tests.integration.operations.conftest import HANDLER, Outbox
from tests.visiting import Page, Visitor, visiting

PREFIX = "/ops/outbox"


async def whoever_catches_all(_: Request, error: Exception) -> Response:
    """What an application may have for errors of its own."""
    return PlainTextResponse(f"caught {error}", 418)


def in_starlette(dashboard: Dashboard) -> Any:
    return Starlette(
        routes=[Mount(PREFIX, dashboard)],
        exception_handlers={KernelError: whoever_catches_all, 404: whoever_catches_all},
    )


def in_fastapi(dashboard: Dashboard) -> Any:
    app = FastAPI()
    app.mount(PREFIX, dashboard)
    return app


def in_a_framework_that_strips(dashboard: Dashboard) -> Any:
    """As older ones do: the path that is handed on is without what is told as the root."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await dashboard(
            {**scope, "root_path": PREFIX, "path": scope["path"].removeprefix(PREFIX)}, receive, send
        )

    return app


async def walked(visitor: Visitor) -> None:
    """Go through the pages, load what they name beside themselves, and do something."""
    page = await visitor.get(f"{PREFIX}/")
    waiting, seen = [*page.links], {*page.links}
    while waiting:
        link = waiting.pop()
        if link.startswith("#"):
            continue
        assert link.startswith(f"{PREFIX}/"), link
        response = await visitor.client.get(link, follow_redirects=True)
        assert response.status_code == 200, f"{link}: {response.text}"
        for beside in set(Page(response.text).links) - seen:
            seen.add(beside)
            waiting.append(beside)
    html = (await visitor.client.get(f"{PREFIX}/")).text
    for name in ("dashboard.css", "dashboard.js", "htmx.min.js", "favicon.svg"):
        address = html.partition(f"{PREFIX}/static/{name}")[1] + html.partition(name)[2].partition('"')[0]
        response = await visitor.client.get(address)
        assert response.status_code == 200
        assert "immutable" in response.headers["cache-control"]
        assert response.headers["x-content-type-options"] == "nosniff"
    page = await visitor.get(f"{PREFIX}/subscriptions")
    page = await visitor.did(page.form(f"{PREFIX}/do/pause", name=HANDLER))
    assert f"{HANDLER} is paused." in page.text
    assert {cookie.path for cookie in visitor.client.cookies.jar} == {PREFIX}


@pytest.mark.parametrize("mounted", [in_starlette, in_fastapi, in_a_framework_that_strips])
async def test_it_is_mounted_under_a_prefix(outbox: Outbox, engine: AsyncEngine, mounted: Any) -> None:
    await outbox.subscription()
    await outbox.failed_event()
    async with visiting(mounted(Dashboard(SETTINGS, engine))) as visitor:
        response = await visitor.client.get(PREFIX)
        assert (response.status_code, response.headers["location"].endswith(f"{PREFIX}/")) == (307, True)
        await walked(visitor)
        # Our own page, and not what the application makes of errors.
        assert "There is no such page" in (await visitor.get(f"{PREFIX}/nowhere", 404)).text


@pytest.mark.parametrize("strips", [True, False])
async def test_a_proxy_may_show_it_below_a_prefix_whether_or_not_it_takes_that_away(
    outbox: Outbox, engine: AsyncEngine, *, strips: bool
) -> None:
    await outbox.subscription()
    dashboard = Dashboard(SETTINGS, engine, prefix="ops/outbox/")

    async def proxied(scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"].removeprefix(PREFIX) if strips else scope["path"]
        await dashboard({**scope, "path": path}, receive, send)

    async with visiting(proxied) as visitor:
        await walked(visitor)


@pytest.mark.parametrize("prefix", ["/../x", "/a//b", "/a\nb"])
def test_a_prefix_that_is_no_path_is_refused(engine: AsyncEngine, prefix: str) -> None:
    with pytest.raises(ArgumentRefused, match="which is no path"):
        Dashboard(SETTINGS, engine, prefix=prefix)


async def test_a_prefix_may_be_nothing(outbox: Outbox, engine: AsyncEngine) -> None:
    for prefix in ("", "/"):
        async with visiting(Dashboard(SETTINGS, engine, prefix=prefix)) as visitor:
            await visitor.get("/")


@pytest.fixture
async def application(empty_postgres_url: str) -> AsyncIterator[Application]:
    settings = Settings(database_url=empty_postgres_url, contexts=(), outbox_schema="events")
    made = Application(settings=settings, relay_settings=RelaySettings())
    await made.migrate()
    yield made
    await made.close()


async def test_the_application_gives_it_in_its_own_schema(application: Application) -> None:
    dashboard = application.dashboard(authorize=lambda _: Operator("ada", ALL_RIGHTS), prefix=PREFIX)
    async with visiting(dashboard) as visitor:
        for path in ("", "events", "subscriptions", "dead-letters", "relays", "confirm/purge"):
            await visitor.get(f"{PREFIX}/{path}")
        page = await visitor.get(f"{PREFIX}/confirm/purge")
        assert "0 events older than 7 days purged" in (await visitor.did(page.form("/do/purge"))).text


async def test_by_an_engine_that_was_given_it_looks_too(empty_postgres_url: str) -> None:
    engine = create_engine(empty_postgres_url)
    await migrate(engine, Settings(contexts=()))
    application = Application(engine, contexts="tests", relay_settings=RelaySettings(), settings=Settings())
    async with visiting(application.dashboard()) as visitor:
        await visitor.get("/")
    await engine.dispose()


async def test_a_server_may_ask_it_to_begin_and_to_end(engine: AsyncEngine) -> None:
    dashboard, sent = Dashboard(SETTINGS, engine), []
    asked = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(asked)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await dashboard({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    await dashboard({"type": "websocket"}, receive, send)
    assert sent[2:] == ["websocket.close"]
