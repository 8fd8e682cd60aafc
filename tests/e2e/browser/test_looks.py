"""In a real browser every page fits its window, is legible to everybody, and breaks no policy (O3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests import servers
from tests.e2e.browser.conftest import (
    WIDTHS,
    Site,
    context_of,
    looked_at,
    sample_outbox,
    served,
    violations,
)

LONG = quote("product:a-product-whose-key-is-so-long-that-no-column-has-room-for-all-of-it-0123456789")
PAGES = {
    "overview": "/",
    "overview-week": "/?window=7d",
    "events": "/events",
    "events-searched": "/events?type=webshop.order.*&state=dead&since=7d",
    "events-wrong": "/events?since=yesterday&aggregate=%3A",
    "events-none": "/events?type=nothing&since=1h",
    "aggregate": f"/aggregate?key={LONG}",
    "subscriptions": "/subscriptions",
    "subscription": "/subscription?name=billing.ChargeCard",
    "subscription-away": "/subscription?name=warehouse",
    "dead-letters": "/dead-letters",
    "letters": "/dead-letters/of?handler=billing.ChargeCard",
    "letters-of-a-kind": f"/dead-letters/of?handler=billing.ChargeCard&kind={quote('OSError: a long story ' * 9)}",
    "relays": "/relays",
    "retry": "/confirm/retry?handler=billing.ChargeCard",
    "rewind": "/confirm/rewind?name=stock.Reserve&since=24h&again=yes",
    "retire": "/confirm/retire?name=fraud.Score",
    "purge": "/confirm/purge?days=3",
    "words": "/words",
    "nowhere": "/nowhere",
}


@pytest.fixture(scope="module")
def site(postgres_server: servers.Server) -> Iterator[Site]:
    with sample_outbox(postgres_server) as url, served(url, mounted=False) as found:
        yield found


@pytest.fixture(scope="module")
def window(site: Site, browser: Browser) -> Iterator[BrowserContext]:
    with context_of(browser, site) as context:
        yield context


@pytest.mark.parametrize("name", PAGES)
def test_a_page_looks_as_it_should(window: BrowserContext, site: Site, name: str) -> None:
    page = window.new_page()
    page.goto(site.url + PAGES[name])
    looked_at(page, site, name)
    page.close()


def test_one_events_story_looks_as_it_should(window: BrowserContext, site: Site) -> None:
    page = window.new_page()
    page.goto(site.url + "/events?type=webshop.order.placed&state=dead")
    page.locator("td a.name").first.click()
    page.wait_for_url(re.compile("/events/[0-9a-f-]{36}$"))
    looked_at(page, site, "event")
    page.close()


def test_nothing_moves_when_a_page_begins_to_hear_or_is_lost(window: BrowserContext, site: Site) -> None:
    """No button goes from under a hand that is on its way to it, and a phone has its room for what is below."""
    page = window.new_page()
    page.goto(site.url + "/subscriptions")
    page.wait_for_selector("#live-state:not([hidden])")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        tops = page.evaluate(
            """() => ["hidden", "heard", "lost"].map((how) => {
              const live = document.getElementById("live-state");
              live.hidden = how === "hidden";
              live.classList.toggle("lost", how === "lost");
              return document.querySelector("h1").getBoundingClientRect().top;
            })"""
        )
        assert tops == [tops[0]] * 3, f"in a window of {width}"
    assert page.evaluate("document.querySelector('header').getBoundingClientRect().height") < 90
    page.close()


def test_an_axis_is_written_at_its_lines(window: BrowserContext, site: Site) -> None:
    page = window.new_page()
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(site.url + "/")
    lines, words = page.evaluate(
        """() => {
          const middles = (chosen) => [...document.querySelector(".plot").querySelectorAll(chosen)]
            .map((each) => each.getBoundingClientRect()).map((box) => (box.top + box.bottom) / 2);
          return [middles(".grid"), middles(":scope > span")];
        }"""
    )
    assert len(lines) == 3
    assert words == pytest.approx(lines, abs=2)
    page.close()


def test_what_is_pressed_on_a_phone_is_as_high_as_a_finger(window: BrowserContext, site: Site) -> None:
    page = window.new_page()
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(site.url + "/events?type=webshop.order.placed&state=dead")
    page.locator("td a.name").first.click()
    for button in (page.locator("td.acts button"), page.locator("td.acts a")):
        box = button.first.bounding_box()
        assert box is not None
        assert box["height"] >= 40
    page.close()


@pytest.mark.parametrize("path", ["/", "/subscriptions"])
def test_a_badge_is_one_line_on_a_phone(window: BrowserContext, site: Site, path: str) -> None:
    page = window.new_page()
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(site.url + path)
    heights = page.evaluate(
        "[...document.querySelectorAll('td .badge')].map((each) => [each.textContent, each.offsetHeight])"
    )
    assert {words: height for words, height in heights if height > 24} == {}
    assert "dead letters" in dict(heights)
    page.close()


def test_the_policy_holds(window: BrowserContext, site: Site) -> None:
    """Whatever got into a page would not be run, and would be noticed."""
    page = window.new_page()
    page.goto(site.url + "/relays")
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.harmed = true";
          document.body.append(script);
          const image = document.createElement("img");
          image.src = "http://127.0.0.1:9/picture.png";
          document.body.append(image);
        }"""
    )
    page.wait_for_function("window.violations.length >= 2")
    assert page.evaluate("window.harmed") is None
    assert {each.partition(":")[0] for each in violations(page)} == {"script-src-elem", "img-src"}
    page.close()
    site.wrong.clear()


def test_colours_are_those_of_the_system_unless_others_are_chosen(window: BrowserContext, site: Site) -> None:
    page = window.new_page()
    ground = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="light")
    page.goto(site.url + "/relays")
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert light != dark
    for shown in (dark, light, dark):  # dark, light, and the system's again
        page.get_by_role("button", name="Theme:").click()
        page.wait_for_load_state()
        assert page.evaluate(ground) == shown
    page.close()


def test_the_keyboard_is_enough(window: BrowserContext, site: Site) -> None:
    page = window.new_page()
    page.goto(site.url + "/subscriptions")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "find"
    page.keyboard.press("Tab")
    focused = "document.activeElement.textContent"
    assert page.evaluate(focused) == "billing.ChargeCard"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "find"
    page.keyboard.type("warehouse")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/subscription\?name=warehouse"))
    page.close()


def test_an_id_is_copied_whole(browser: Browser, site: Site) -> None:
    with context_of(browser, site, permissions=["clipboard-read", "clipboard-write"]) as context:
        page = context.new_page()
        page.goto(site.url + "/events")
        button = page.locator("button.copy").first
        whole = button.get_attribute("data-copy")
        button.click()
        page.wait_for_function("document.querySelector('button.copy.copied')")
        assert page.evaluate("navigator.clipboard.readText()") == whole


def test_a_page_is_fresh_without_being_loaded_again(window: BrowserContext, site: Site) -> None:
    page = window.new_page()
    page.goto(site.url + "/relays")
    page.wait_for_selector("#live-state:not([hidden])")
    page.evaluate("window.loaded = 'once'")
    page.locator("summary").first.click()
    page.locator("summary").first.focus()
    site.execute("UPDATE outbox_relays SET host = 'relay-new' WHERE host = 'relay-eu-2'")
    site.execute("UPDATE outbox_subscriptions SET revision = revision + 1")
    page.wait_for_selector("text=relay-new")
    assert page.evaluate("window.loaded") == "once"
    # What one has opened stays open, and the focus where it was.
    assert page.locator("details").first.get_attribute("open") is not None
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    site.execute("UPDATE outbox_relays SET host = 'relay-eu-2' WHERE host = 'relay-new'")
    page.close()


def test_what_is_fresh_is_the_whole_of_an_events_page(window: BrowserContext, site: Site) -> None:
    """The heading says what the table says, whichever of them somebody looks at."""
    page = window.new_page()
    page.goto(site.url + "/events?type=webshop.order.placed&state=dead")
    page.locator("td a.name").first.click()
    page.wait_for_selector("#live-state:not([hidden])")
    page.evaluate("window.loaded = 'once'")
    event = page.url.rpartition("/")[2]
    dead = f"event_id = '{event}' AND status = 'dead'"
    handlers = site.value(
        f"SELECT string_agg(quote_literal(handler), ', ') FROM outbox_deliveries WHERE {dead}"
    )
    for status, badge in (("waiting", "open"), ("dead", "dead")):
        site.execute(
            f"UPDATE outbox_deliveries SET status = '{status}' "
            f"WHERE event_id = '{event}' AND handler IN ({handlers})"
        )
        page.wait_for_selector(f"td .badge:text-is('{status}')")
        page.wait_for_selector(f"h1 .badge:text-is('{badge}')")
        assert page.locator("dt:text-is('Died')").count() == (status == "dead")
    assert page.evaluate("window.loaded") == "once"
    page.close()


def test_a_page_that_cannot_be_had_now_leaves_the_one_that_is_there(
    window: BrowserContext, site: Site
) -> None:
    page = window.new_page()
    page.goto(site.url + "/subscriptions")
    page.route("**/subscriptions", lambda route: route.fulfill(status=503, body="<main id=fresh>away</main>"))
    with page.expect_response("**/subscriptions"):
        page.evaluate("document.body.dispatchEvent(new CustomEvent('outbox:tick'))")
    assert page.locator("td a.name").first.text_content() == "billing.ChargeCard"
    page.close()
    site.wrong.clear()


def test_letters_are_chosen_one_by_one_or_all_at_once(window: BrowserContext, site: Site) -> None:
    page = window.new_page()
    page.goto(site.url + "/dead-letters/of?handler=stock.Reserve")
    retry = page.get_by_role("button", name="Retry chosen…")
    assert retry.is_disabled()
    page.locator("input[name=event]").first.check()
    assert page.locator("[data-chosen]").text_content() == "1 chosen"
    page.get_by_label("Choose all on this page").check()
    assert page.locator("[data-chosen]").text_content() == "6 chosen"
    assert retry.is_enabled()
    page.close()
