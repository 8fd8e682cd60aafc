"""Pages of an outbox with nothing in it, and of one with very much, look as they should in a real browser (O3)."""

from __future__ import annotations

from collections.abc import Iterator

import asyncpg
import pytest
from playwright.sync_api import Browser

from tests import servers
from tests.e2e.browser.conftest import (
    Site,
    context_of,
    empty_outbox,
    in_a_thread,
    looked_at,
    served,
)

# A large service: hundreds of handlers, a fleet of relays, and something that has broken in every way there is.
CROWD = """
INSERT INTO outbox_subscriptions (name, kind, patterns, since)
SELECT 'team' || number % 20 || '.HandlerThatDoesSomething' || number, 'handler', ARRAY['shop.order.*'],
       clock_timestamp() - interval '3 days'
FROM generate_series(1, 300) AS number;
INSERT INTO outbox_relays (id, epoch, expires_at, process_id, host, code_version, abilities, patterns)
SELECT gen_random_uuid(), 1, clock_timestamp() + interval '1 day', number, 'relay-' || number, '2026.11.' || number,
       (SELECT jsonb_object_agg(name, '{}'::jsonb) FROM outbox_subscriptions),
       (SELECT jsonb_object_agg(name, patterns) FROM outbox_subscriptions)
FROM generate_series(1, 60) AS number;
INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
                           payload, occurred_at)
SELECT gen_random_uuid(), 'shop.order.placed', 1, 'shop.order', md5(number::text)::uuid, 1, '{}', clock_timestamp()
FROM generate_series(1, 3000) AS number;
INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status, attempts, error_message)
SELECT event_id, position, 'team1.HandlerThatDoesSomething' || 1 + position % 3 * 20, event_id::text, 'dead', 10,
       'Error' || position % 150 || ': the card was refused'
FROM outbox_events;
"""
PAGES = {
    "overview": "/",
    "events": "/events",
    "subscriptions": "/subscriptions",
    "dead-letters": "/dead-letters",
    "letters": "/dead-letters/of?handler=team1.HandlerThatDoesSomething21",
    "subscription": "/subscription?name=team1.HandlerThatDoesSomething21",
    "relays": "/relays",
}
# What there is to do where there is nothing to see.
OF_NOTHING = {
    "overview": "Start one with outbox relay",
    "events": "Commit a unit of work whose aggregate records one",
    "subscriptions": "Nobody has subscribed yet",
    "dead-letters": "Nothing is dead",
    "relays": "Start one with outbox relay",
}


@pytest.fixture(scope="module")
def empty(postgres_server: servers.Server) -> Iterator[Site]:
    with empty_outbox(postgres_server) as url, served(url, mounted=False) as found:
        yield found


@pytest.fixture(scope="module")
def crowded(postgres_server: servers.Server) -> Iterator[Site]:
    async def crowd(url: str) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(CROWD)
        await connection.close()

    with empty_outbox(postgres_server) as url:
        in_a_thread(lambda: servers.run(crowd(url)))
        with served(url, mounted=False) as found:
            yield found


@pytest.mark.parametrize("name", OF_NOTHING)
def test_of_nothing_a_page_says_what_to_do(browser: Browser, empty: Site, name: str) -> None:
    with context_of(browser, empty) as context:
        page = context.new_page()
        page.goto(empty.url + PAGES[name])
        assert OF_NOTHING[name] in page.locator("main").inner_text()
        looked_at(page, empty, f"empty-{name}")


@pytest.mark.parametrize("name", PAGES)
def test_of_very_much_a_page_can_be_read(browser: Browser, crowded: Site, name: str) -> None:
    with context_of(browser, crowded) as context:
        page = context.new_page()
        page.goto(crowded.url + PAGES[name])
        assert page.locator("tbody tr").count() >= 50 or name == "subscription"
        looked_at(page, crowded, f"crowded-{name}")
