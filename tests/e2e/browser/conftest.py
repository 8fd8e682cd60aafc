"""The dashboard as it is served, over the sample, before a real browser that notices whatever goes wrong."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import attrs
from playwright.sync_api import Browser, BrowserContext, Page
from starlette.applications import Starlette
from starlette.routing import Mount

from outbox_kernel.infrastructure.addresses import listen, url_of
from outbox_kernel.infrastructure.dashboard import ALL_RIGHTS, Dashboard, Operator
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.infrastructure.sample import fill
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.infrastructure.web import WebServer
from tests import servers
from tests.integration.operations.conftest import fresh_outbox

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[3]
SCREENSHOTS = ROOT / "build" / "screenshots"
# Its wheel carries axe itself, which is all that is taken of it.
_AXE_HOME = find_spec("axe_playwright_python")
assert _AXE_HOME is not None
AXE = (Path(str(_AXE_HOME.origin)).parent / "axe.min.js").read_text()
PREFIX = "/ops/outbox"
SECONDS_MAX = 45
# What a page itself cannot tell: the browser's word that its policy was broken.
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`);
});
"""


@attrs.define
class Site:
    """A dashboard that is served; `wrong` is what a browser has complained about on its pages."""

    url: str
    database_url: str
    wrong: list[str] = attrs.Factory(list)

    def execute(self, statement: str) -> None:
        """Change something in its database."""
        self.value(statement)

    def value(self, query: str) -> Any:
        """Ask its database."""

        async def run() -> Any:
            connection = await asyncpg.connect(self.database_url)
            try:
                return await connection.fetchval(query)
            finally:
                await connection.close()

        return in_a_thread(lambda: asyncio.run(run()))


def in_a_thread(work: Callable[[], T]) -> T:
    """Do it in another thread: this one has the browser's loop, and no other can run beside that."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()


@contextmanager
def sample_outbox(server: servers.Server) -> Iterator[str]:
    """An outbox of its own with the sample in it."""
    with empty_outbox(server) as url:
        in_a_thread(lambda: servers.run(filled(url)))
        yield url


@contextmanager
def empty_outbox(server: servers.Server) -> Iterator[str]:
    """An outbox of its own with nothing in it."""
    made = fresh_outbox(server)
    url = in_a_thread(made.__enter__)
    try:
        yield url
    finally:
        in_a_thread(lambda: made.__exit__(None, None, None))


async def filled(url: str) -> None:
    connection = await asyncpg.connect(url)
    await fill(Desk(connection))
    await connection.execute(
        "UPDATE outbox_relays SET expires_at = now() + interval '1 day' WHERE expires_at > now()"
    )
    await connection.close()


@contextmanager
def served(database_url: str, *, mounted: bool) -> Iterator[Site]:
    """Serve it in a thread: at the root for this machine, or under a prefix for whom `authorize` lets in."""
    ready = threading.Event()
    serving: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run(listening: Any) -> None:
        stop = asyncio.Event()
        serving.append((asyncio.get_running_loop(), stop))
        engine = create_engine(database_url)
        authorize = (lambda _: Operator("ada@example.org", ALL_RIGHTS)) if mounted else None
        dashboard = Dashboard(Settings(contexts=()), engine, authorize=authorize)
        app = Starlette(routes=[Mount(PREFIX, dashboard)]) if mounted else dashboard
        server = WebServer(app, 1)
        task = asyncio.create_task(server.serve(listening, ready.set))
        await stop.wait()
        dashboard.close()
        server.stop()
        await task
        await engine.dispose()

    with closing(listen("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: asyncio.run(run(listening)))
        thread.start()
        assert ready.wait(SECONDS_MAX)
        try:
            yield Site(url_of(listening) + (PREFIX if mounted else ""), database_url)
        finally:
            [(loop, stop)] = serving
            loop.call_soon_threadsafe(stop.set)
            thread.join()


@contextmanager
def context_of(browser: Browser, site: Site, **options: Any) -> Iterator[BrowserContext]:
    """A browser's window that notes whatever goes wrong in it."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-GB", **options)
    context.set_default_timeout(SECONDS_MAX * 1_000)
    if options.get("java_script_enabled", True):
        context.add_init_script(WATCH)
    try:
        context.on("page", lambda page: watch(page, site))
        yield context
    finally:
        context.close()


def watch(page: Page, site: Site) -> None:
    page.on(
        "console", lambda said: site.wrong.append(f"{said.type}: {said.text}") if said.type != "log" else None
    )
    page.on("pageerror", lambda error: site.wrong.append(f"script: {error}"))
    page.on(
        "response",
        lambda response: (
            site.wrong.append(f"{response.status}: {response.url}") if response.status >= 500 else None
        ),
    )
    page.on("requestfailed", lambda request: _note_failed(request, site))


def _note_failed(request: Any, site: Site) -> None:
    # A stream is ended by whoever leaves the page, and so is what was being fetched.
    if "ERR_ABORTED" not in str(request.failure):
        site.wrong.append(f"failed: {request.url}: {request.failure}")


def axe(page: Page) -> list[str]:
    """Return what axe finds, rule by rule, with where."""
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:160] for node in each['nodes'][:3]]}"
        for each in found["violations"]
    ]


# What of a box is wider than it, and so stands over its edge.
SPILT = """
[...document.querySelectorAll('.card, .figures > div, .notice, .table, td')]
  .filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.textContent.trim().slice(0, 60))
"""
WIDTHS = (1440, 1280, 1100, 1024, 390)


def looked_at(page: Page, site: Site, name: str) -> None:
    """See a page at each width, in light and in dark colours, and have axe see the widest and the narrowest."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider <= 0, f"{name} is {wider} px wider than a window of {width}"
        assert page.evaluate(SPILT) == [], f"{name} in a window of {width}"
        page.screenshot(path=SCREENSHOTS / f"{name}-{width}.png", full_page=True)
    page.emulate_media(color_scheme="dark")
    assert axe(page) == [], f"{name}, narrow and dark"
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    page.screenshot(path=SCREENSHOTS / f"{name}-dark.png", full_page=True)
    page.emulate_media(color_scheme="light")
    assert axe(page) == [], f"{name}, wide and light"
    assert violations(page) == []
    # A page that there is none of is said in the console, too.
    assert [each for each in site.wrong if "404" not in each] == []


def violations(page: Page) -> list[str]:
    """Return how the policy was broken."""
    told: list[str] = page.evaluate("window.violations")
    return told
