"""Pages of somebody else's, in the same real browser, can do nothing here and read nothing (O3)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests import servers
from tests.e2e.browser.conftest import Site, context_of, sample_outbox, served

PAUSED = "SELECT count(*) FROM outbox_subscriptions WHERE paused_at IS NOT NULL AND name = 'mail.SendReceipt'"


@pytest.fixture(scope="module")
def site(postgres_server: servers.Server) -> Iterator[Site]:
    with sample_outbox(postgres_server) as url, served(url, mounted=False) as found:
        yield found


@pytest.fixture
def window(site: Site, browser: Browser) -> Iterator[BrowserContext]:
    with context_of(browser, site) as context:
        yield context


@contextmanager
def page_of_somebody_else(html: str) -> Iterator[str]:
    """Serve it at this machine, at another port: to a browser that is the same site, and another origin."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_page_of_another_origin_presses_no_button(window: BrowserContext, site: Site) -> None:
    """Though the browser has our cookies, and it has somehow learnt the token of the form."""
    page = window.new_page()
    page.goto(f"{site.url}/subscriptions")
    token = page.locator("input[name=form_token]").first.get_attribute("value")
    assert token
    form = (
        f'<form method="post" action="{escape(site.url)}/do/pause"><input name="name" value="mail.SendReceipt">'
        f'<input name="form_token" value="{escape(token)}"><button>Win a prize</button></form>'
    )
    with page_of_somebody_else(form) as url:
        page.goto(url)
        with page.expect_navigation() as navigated:
            page.get_by_role("button", name="Win a prize").click()
    assert navigated.value is not None
    assert navigated.value.status == 403
    assert "This did not come from a page of the dashboard" in (page.locator("main").text_content() or "")
    assert site.value(PAUSED) == 0
    # The same form of our own page is taken.
    page.goto(f"{site.url}/subscriptions")
    page.get_by_role("button", name="Pause mail.SendReceipt").click()
    assert page.get_by_role("status").text_content() == "mail.SendReceipt is paused."
    assert site.value(PAUSED) == 1
    page.close()


def test_a_name_that_only_leads_here_is_shown_nothing(window: BrowserContext, site: Site) -> None:
    """As DNS rebinding has it: whatever ends with `.localhost` leads a browser to this machine."""
    page = window.new_page()
    answer = page.goto(site.url.replace("127.0.0.1", "evil.localhost"))
    assert answer is not None
    assert answer.status == 403
    text = page.locator("main").text_content() or ""
    assert "'evil.localhost' is no name of this machine's own" in text
    assert "billing.ChargeCard" not in page.content()
    page.close()


def test_it_is_framed_and_read_by_no_page_of_another_origin(window: BrowserContext, site: Site) -> None:
    """Neither is a button put under somebody's pointer, nor does a script hear what a page says."""
    page = window.new_page()
    with page_of_somebody_else(f'<iframe src="{escape(site.url)}/" title="frame"></iframe>') as url:
        page.goto(url)
        frame = page.frames[1]
        frame.wait_for_load_state()
        assert "things need a look" not in frame.content()
        heard = page.evaluate(
            "url => fetch(url, {credentials: 'include'}).then(() => 'an answer', () => 'nothing')",
            site.url + "/",
        )
    assert heard == "nothing"
    page.close()
