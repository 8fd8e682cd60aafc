"""An operator does everything in a real browser, with scripts and without, at the root and under a prefix (O3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page

from tests import servers
from tests.e2e.browser.conftest import Site, context_of, sample_outbox, served

HANDLER = "billing.ChargeCard"


@pytest.fixture
def mounted() -> bool:
    """Whether it stands under a prefix, and not at the root."""
    return False


@pytest.fixture
def site(postgres_server: servers.Server, *, mounted: bool) -> Iterator[Site]:
    with sample_outbox(postgres_server) as url, served(url, mounted=mounted) as found:
        yield found


@pytest.mark.parametrize(
    ("mounted", "scripts", "colours"),
    [
        pytest.param(False, False, "dark", id="at the root, without scripts, in the dark"),
        pytest.param(True, True, "light", id="under a prefix, with scripts, in the light"),
    ],
)
def test_an_operator_does_everything(
    site: Site, browser: Browser, *, scripts: bool, colours: Literal["dark", "light"]
) -> None:
    with context_of(browser, site, java_script_enabled=scripts, color_scheme=colours) as context:
        page = context.new_page()
        page.goto(f"{site.url}/")
        for name in ("Events", "Subscriptions", "Dead letters", "Relays", "Overview"):
            page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()
            page.wait_for_load_state()
            assert page.locator("nav a[aria-current=page]").text_content() == name
        mends(page, site)
        changes_subscriptions(page, site)
        purges(page, site)
        searches(page)
    assert site.wrong == []


def told(page: Page) -> str:
    """What the page says of what was just done."""
    return page.locator(".notice[role=status]").text_content() or ""


def left(site: Site, handler: str) -> int:
    found: int = site.value(
        f"SELECT count(*) FROM outbox_deliveries WHERE handler = '{handler}' AND status = 'dead'"
    )
    return found


def go(page: Page, name: str) -> None:
    page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()
    page.wait_for_load_state()


def mends(page: Page, site: Site) -> None:
    """Retry and skip: one, those that are chosen, a group, all that a filter means."""
    go(page, "Dead letters")
    page.get_by_role("link", name=re.compile("PaymentRefused")).first.click()
    page.wait_for_url(re.compile("/dead-letters/of"))
    assert left(site, HANDLER) == 21
    page.locator("td .id a").first.click()
    page.get_by_role("button", name=f"Retry {HANDLER}").click()
    assert told(page) == "1 delivery retried: a relay runs it at its turn."
    page.get_by_role("link", name=f"Skip {HANDLER}").click()
    page.get_by_role("button", name="Skip 1 delivery").click()
    assert told(page) == "1 delivery skipped."
    go(page, "Dead letters")
    page.get_by_role("link", name=re.compile("PaymentRefused")).first.click()
    for box in page.locator("input[name=event]").all()[:2]:
        box.check()
    page.get_by_role("button", name="Retry chosen…").click()
    page.get_by_role("button", name="Retry 2 deliveries").click()
    assert told(page) == "2 deliveries retried: a relay runs each at its turn."
    page.locator("input[name=event]").first.check()
    page.get_by_role("button", name="Skip chosen…").click()
    page.get_by_role("button", name="Skip 1 delivery").click()
    assert told(page) == "1 delivery skipped."
    assert left(site, HANDLER) == 17
    go(page, "Dead letters")
    page.get_by_role("link", name=re.compile(f"Skip all of {HANDLER}, TimeoutError")).click()
    page.get_by_role("button", name="Skip 5 deliveries").click()
    assert told(page) == "5 deliveries skipped."
    go(page, "Dead letters")
    page.get_by_role("link", name=re.compile(f"Retry all of {HANDLER}, SecondCommit")).click()
    page.get_by_label("Also run what stopped halfway, 1 of these").check()
    page.get_by_role("button", name="Retry 1 delivery").click()
    assert told(page) == "1 delivery retried: a relay runs it at its turn."
    page.goto(f"{site.url}/dead-letters/of?handler=stock.Reserve")
    page.get_by_label("Type").fill("webshop.order.*")
    page.get_by_role("button", name="Narrow").click()
    page.get_by_role("link", name="Retry all that match…").click()
    page.get_by_role("button", name="Retry 6 deliveries").click()
    assert told(page) == "6 deliveries retried: a relay runs each at its turn."
    assert left(site, "stock.Reserve") == 0


def changes_subscriptions(page: Page, site: Site) -> None:
    """Pause, resume, rewind, retire."""
    go(page, "Subscriptions")
    page.get_by_role("button", name="Pause mail.SendReceipt").click()
    assert told(page) == "mail.SendReceipt is paused."
    page.get_by_role("link", name="mail.SendReceipt", exact=True).click()
    page.get_by_role("button", name="Resume").click()
    assert told(page) == "mail.SendReceipt goes on."
    page.get_by_role("link", name="Rewind…").click()
    page.get_by_label("All that was stored since").fill("2d")
    page.get_by_role("button", name="Look how much that is").click()
    page.get_by_role("button", name=re.compile("Rewind to position")).click()
    assert told(page).startswith("mail.SendReceipt goes on from position ")
    assert site.value("SELECT count(*) FROM outbox_cursors WHERE rewind_to IS NOT NULL") == 32
    go(page, "Subscriptions")
    page.get_by_role("link", name="fraud.Score", exact=True).click()
    page.get_by_role("link", name="Retire…").click()
    page.get_by_role("button", name="Retire fraud.Score").click()
    assert told(page) == "fraud.Score is retired, 0 deliveries skipped."
    assert site.value("SELECT retired_at FROM outbox_subscriptions WHERE name = 'fraud.Score'") is not None


def purges(page: Page, site: Site) -> None:
    """Delete what was delivered long ago."""
    site.execute("UPDATE outbox_events SET created_at = created_at - interval '30 days' WHERE position < 50")
    go(page, "Relays")
    page.get_by_label("Older than, in days").fill("20")
    page.get_by_role("button", name="Purge…").click()
    page.get_by_role("button", name="Purge", exact=True).click()
    assert re.match(r"\d+ events older than 20 days purged", told(page))


def searches(page: Page) -> None:
    """Look for events, and find one by the field for all of it."""
    go(page, "Events")
    page.get_by_label("Type").fill("webshop.payment.*")
    page.get_by_label("Text of the payload").fill("teapot")
    page.get_by_label("Since").fill("1h")
    page.get_by_role("button", name="Search").click()
    page.wait_for_url(re.compile("since=1h"))
    assert "There is no such event" in (page.locator("main").text_content() or "")
    page.get_by_label("Text of the payload").fill("10042")
    page.get_by_label("Since").fill("")
    page.get_by_role("button", name="Search").click()
    page.locator("td a.name").first.click()
    assert "webshop.payment.charged" in (page.locator("h1").text_content() or "")
    page.get_by_label("Find an event, an aggregate or a handler").fill("order:10042")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/aggregate"))
    assert "10042" in (page.locator("h1").text_content() or "")
