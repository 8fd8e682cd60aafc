"""Every page tells what there is, of much and of nothing, and each link on it leads somewhere (O3)."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import UUID, uuid4

import pytest

from outbox_kernel.infrastructure.dashboard.pages import overview
from outbox_kernel.infrastructure.dashboard.security import HEADERS
from outbox_kernel.infrastructure.operations import dead_letters, glance, searching
from outbox_kernel.infrastructure.operations.limits import GROUPS_MAX
from outbox_kernel.infrastructure.sample.shop import SUBSCRIPTIONS
from outbox_kernel.kernel import catalogue
from tests.integration.operations.conftest import HANDLER, Outbox
from tests.visiting import Page, Visitor, query_of

LONG = SUBSCRIPTIONS[-3].name
PAGES = (
    "/",
    "/?window=1h",
    "/?window=7d",
    "/?window=never",
    "/events",
    "/events?type=webshop.order.*&state=dead",
    "/events?state=open",
    "/events?aggregate=order%3A10001",
    "/subscriptions",
    *(f"/subscription?name={quote(each.name)}" for each in SUBSCRIPTIONS),
    "/subscription?name=stock.Reserve&window=1h",
    "/dead-letters",
    "/dead-letters/of?handler=billing.ChargeCard",
    "/dead-letters/of?handler=billing.ChargeCard&type=webshop.order.placed&since=30d",
    "/dead-letters/of?handler=billing.ChargeCard&kind=nothing",
    "/relays",
    "/aggregate?key=product%3Ateapot",
    f"/aggregate?key={quote('product:Teekanne „Größe XL“')}",
    "/confirm/retry?handler=billing.ChargeCard",
    "/confirm/skip?handler=billing.ChargeCard&type=webshop.order.placed",
    "/confirm/rewind?name=stock.Reserve",
    "/confirm/rewind?name=stock.Reserve&since=24h&again=yes",
    "/confirm/rewind?name=stock.Reserve&position=1",
    "/confirm/retire?name=fraud.Score",
    "/confirm/retire?name=mail.Welcome&pattern=webshop.customer.imported",
    "/confirm/purge?days=3",
)
OF_AN_EMPTY_OUTBOX = ("/", "/events", "/subscriptions", "/dead-letters", "/relays", "/confirm/purge")


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_of_the_sample_is_shown_under_the_strict_policy(sample: Visitor, path: str) -> None:
    response = await sample.client.get(path)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    for name, value in HEADERS.items():
        assert response.headers[name] == value


@pytest.mark.parametrize("path", OF_AN_EMPTY_OUTBOX)
async def test_of_an_empty_outbox_every_page_says_what_to_do(
    outbox: Outbox, visitor: Visitor, path: str
) -> None:
    page = await visitor.get(path)
    said = {
        "/": "No relay lives: nothing is delivered",
        "/events": "No event yet",
        "/subscriptions": "Nobody has subscribed yet",
        "/dead-letters": "Nothing is dead",
        "/relays": "No relay has a lease",
        "/confirm/purge": "At most 0 events",
    }[path]
    assert said in page.text


async def test_every_link_leads_somewhere(sample: Visitor) -> None:
    waiting, seen = ["/"], {"/"}
    kinds: dict[str, int] = {}
    while waiting:
        path = waiting.pop()
        response = await sample.client.get(path, follow_redirects=True)
        assert response.status_code == 200, f"{path}: {response.text}"
        if not response.headers["content-type"].startswith("text/html"):
            continue
        for link in Page(response.text).links:
            kind = urlsplit(link).path if not link.startswith("/events/") else "/events/…"
            # A few of each kind: there are thousands.
            if link.startswith("/") and link not in seen and kinds.get(kind, 0) < 12:
                kinds[kind] = kinds.get(kind, 0) + 1
                seen.add(link)
                waiting.append(link)
    assert {"/events/…", "/aggregate", "/subscription", "/dead-letters/of", "/confirm/skip"} <= set(kinds)


async def test_the_overview_says_what_needs_a_person(sample: Visitor) -> None:
    text = (await sample.get("/")).text
    for words in (
        "billing.ChargeCard · 21 dead letters",
        "fraud.Score · No live relay carries it",
        "A relay vanished: relay-us-2",
        "mail.Welcome · Due for webshop.customer.imported",
        "takes nothing from shipments",
        "warehouse · It stands still: RabbitMQ at broker-2.example",
        "stock.Forecast · An operator holds it",
    ):
        assert words in text
    assert "loyalty.Points" not in text


async def test_where_all_is_well_the_overview_says_so(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.subscription()
    await outbox.relay({HANDLER: {"bank.paid": 1}}, patterns={HANDLER: ["bank.paid"]})
    assert "Nothing needs you" in (await visitor.get("/")).text


async def test_of_very_many_subscriptions_the_overview_shows_some_and_says_where_the_others_are(
    outbox: Outbox, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "SUBSCRIPTIONS_MAX", 1)
    for name in ("bank.A", "bank.B", "bank.C"):
        await outbox.subscription(name)
    page = await visitor.get("/")
    assert "And 2 more: all subscriptions" in page.text


async def test_a_chart_says_how_high_and_when(sample: Visitor) -> None:
    text = (await sample.get("/?window=24h")).text
    assert re.search(r"\b5 h 2\.5 h 0\b", text)
    assert re.search(r"(\d\d \w{3} \d\d:\d\d UTC ){2}now", text)


# --- events -------------------------------------------------------------------------------------------


async def test_events_are_listed_page_by_page(sample: Visitor) -> None:
    page = await sample.get("/events")
    [older] = [link for link in page.links if link.startswith("/events?from=")]
    second = await sample.get(older)
    assert {link for link in page.links if link.startswith("/events/")}.isdisjoint(
        link for link in second.links if link.startswith("/events/")
    )
    assert "Newest" in second.text


async def test_a_search_keeps_what_was_asked_and_says_how_far_it_looked(
    sample: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "STRETCH_EVENTS", 100)
    monkeypatch.setattr(searching, "SEARCH_SECONDS_MAX", 0.0)
    page = await sample.get("/events?type=webshop.nothing&since=7d")
    assert "Nothing found so far" in page.text
    assert "Looked at 100 events, back to" in page.text
    [further] = [link for link in page.links if "from=" in link]
    assert query_of(further)["type"] == "webshop.nothing"
    assert "Looked at 100 events" in (await sample.get(further)).text


async def test_the_types_that_relays_run_are_offered(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.relay({HANDLER: {"bank.paid": 1}, "bank.Other": {"bank.opened": 1}})
    await outbox.relay({HANDLER: {"bank.gone": 1}}, live=False)
    assert [each for each in (await visitor.get("/events")).suggestions if each] == [
        "bank.opened",
        "bank.paid",
    ]
    letters = await visitor.get(f"/dead-letters/of?handler={HANDLER}")
    assert letters.suggestions == ["bank.paid"]


async def test_a_search_that_finds_nothing_says_so(sample: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "SEARCH_SECONDS_MAX", 60.0)
    page = await sample.get("/events?type=webshop.nothing&since=1h&until=30m")
    assert "There is no such event" in page.text
    found = await sample.get("/events?aggregate=order%3A10001")
    assert "That is all: looked at" in found.text


async def test_what_cannot_be_looked_for_is_said_beside_its_field(sample: Visitor) -> None:
    page = await sample.get("/events?since=yesterday&until=%25&aggregate=%3A&state=lost&type=webshop.*")
    for words in ("or an age such as 90m, 24h, 7d", "write TYPE:ID, or ID", "choose from pending, open"):
        assert words in page.text
    assert ("type", "webshop.*") in page.form("/events").fields


async def test_a_page_that_there_is_none_of_is_said(sample: Visitor) -> None:
    for path, words in (
        ("/events?from=x", "There is no such page"),
        ("/events/nothing", "That is no event's id or position"),
        (f"/events/{uuid4()}", "There is no event"),
        ("/events/99999999", "There is no event 99999999"),
        ("/aggregate", "This address is not complete"),
        ("/aggregate?key=%3A", "names no aggregate"),
        ("/aggregate?key=order%3Anone", "the outbox has no event of aggregate order:none".capitalize()),
        ("/subscription?name=nobody", "There is no handler or publisher 'nobody'"),
        ("/dead-letters/of", "This address names no handler"),
        ("/confirm/retire?name=nobody", "There is no subscription 'nobody'"),
        ("/nowhere", "There is no such page"),
        ("/static/nothing.css", "There is no such page"),
    ):
        page = await sample.get(path, 404)
        assert words.lower() in page.text.lower(), path
        # Who is here has no terminal at hand.
        assert "outbox events" not in page.text
        assert "/events" in page.links
    for path in (
        "/confirm/retry?handler=a&event=x",
        "/confirm/purge?days=soon",
        "/confirm/purge?days=-1",
        "/confirm/purge?days=nan",
        "/dead-letters/of?handler=a&since=x",
        "/confirm/retry?handler=a&" + "&".join([f"event={uuid4()}"] * 501),
    ):
        await sample.get(path, 400)


async def story_of(outbox: Outbox, visitor: Visitor, event_id: UUID) -> Any:
    return await visitor.get(f"/events/{event_id}")


async def test_one_event_is_told_whole(
    outbox: Outbox, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of a class that is not known here, whatever other tests have defined.
    monkeypatch.setattr(catalogue.definitions, "event_by_name", {})
    await outbox.subscription()
    await outbox.subscription("bank.Books")
    event_id = await outbox.event(uuid4(), payload={"event_id": "kept", "what": "<b>10</b>"})
    await outbox.execute(
        "UPDATE outbox_events SET headers = $2::text::jsonb, not_before = now() WHERE event_id = $1",
        *(event_id, json.dumps({"request_id": "req-1", "causation_id": str(uuid4())})),
    )
    await outbox.passed()
    lease = await outbox.relay({HANDLER: {"bank.paid": 1}})
    await outbox.delivery(event_id, "leased", lease=lease, error="ValueError: <no>")
    await outbox.delivery(event_id, "dead", handler="bank.Never")
    await outbox.receipt(event_id, handler="bank.Old")
    page = await story_of(outbox, visitor, event_id)
    for words in (
        "bank.paid pending",
        "ValueError: <no>",
        "held by host-1, process 7",
        "bank.Never not due dead",
        "a relay: no live relay carries it",
        "What caused the first of these is not in the outbox any more",
        "Every field is masked",
        '"what": "***"',
        "bank.wallet",
        "request_id req-1",
        "Not before",
        "bank.Old: done",
    ):
        assert words in page.text, words
    assert "<b>10" not in page.text


async def test_an_event_by_its_position_and_without_anybody_due(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.event()
    assert "It waits for the first relay" in (await visitor.get("/events/1")).text
    await outbox.is_read()
    page = await visitor.get("/events/1")
    assert "Nobody is subscribed to this type" in page.text
    assert "It was recorded without any" in page.text


async def test_headers_that_are_no_object_are_shown_as_they_are(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.event()
    await outbox.execute("UPDATE outbox_events SET headers = '[1]'")
    assert "headers [1]" in (await visitor.get("/events/1")).text


async def test_the_tree_of_causes_is_links(sample: Visitor) -> None:
    page = await sample.get("/events?type=webshop.payment.charged")
    event = next(link for link in page.links if link.startswith("/events/"))
    told = await sample.get(event)
    for words in ("webshop.order.placed", "webshop.receipt.sent", '"card": "***"'):
        assert words in told.text


async def test_an_aggregate_is_told_by_pages(outbox: Outbox, visitor: Visitor) -> None:
    wallet = uuid4()
    for _ in range(52):
        await outbox.event(wallet)
    page = await visitor.get(f"/aggregate?key=bank.wallet:{wallet}")
    [older] = [link for link in page.links if "from=" in link]
    second = await visitor.get(older)
    assert len([link for link in second.links if link.startswith("/events/")]) == 2
    assert "Newest" in second.text
    assert not [link for link in second.links if "from=" in link]


async def test_an_id_of_several_aggregates_names_the_others(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.event(wallet := uuid4())
    other = await outbox.event(wallet)
    await outbox.execute("UPDATE outbox_events SET aggregate_type = 'bank.card' WHERE event_id = $1", other)
    page = await visitor.get(f"/aggregate?key={wallet}")
    assert f"This id is also that of bank.wallet:{wallet}" in page.text


# --- what is found by one field ------------------------------------------------------------------------


async def test_one_field_finds_whatever_somebody_has_at_hand(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.subscription()
    event_id = await outbox.event(wallet := uuid4())
    for words, path in (
        (str(event_id), f"/events/{event_id}"),
        ("1", "/events/1"),
        (HANDLER, f"/subscription?name={HANDLER}"),
        (str(wallet), f"/aggregate?key={wallet}"),
        (f"bank.wallet:{wallet}", f"/aggregate?key=bank.wallet%3A{wallet}"),
        ("bank.*", "/events?type=bank.%2A&missed=bank.%2A"),
        (str(missing := uuid4()), f"/events?missed={missing}"),
        (":", "/events?type=%3A&missed=%3A"),
        ("", "/events"),
    ):
        response = await visitor.client.get("/find", params={"q": words})
        assert (response.status_code, response.headers["location"]) == (303, path)


async def test_what_was_not_found_is_said(outbox: Outbox, visitor: Visitor) -> None:
    page = await visitor.get(f"/events?missed={(missing := uuid4())}")
    assert f"Nothing here is called {missing}" in page.text


async def test_what_was_not_found_may_stand_in_what_events_say(visitor: Visitor) -> None:
    """A caller knows the number of an order, and of no event: one press leads to where it is said."""
    page = await visitor.get("/events?missed=A-1042")
    assert "Look for it in what events say" in page.text
    assert "/events?text=A-1042" in page.links


async def test_the_rate_says_of_how_long_it_is(sample: Visitor) -> None:
    """Of a day the last step is a quarter of an hour, which somebody who looks for trouble takes for now."""
    texts = [(await sample.get(f"/?window={window}")).text for window in ("1h", "24h")]
    told = [re.findall(r"Delivered, last ([\d.]+ \w+)", text) for text in texts]
    assert [len(each) for each in told] == [1, 1]
    assert told[0] != told[1]


# --- dead letters --------------------------------------------------------------------------------------


async def test_dead_letters_are_grouped_by_what_they_died_of(sample: Visitor) -> None:
    text = (await sample.get("/dead-letters")).text
    for words in (
        "14 billing.ChargeCard PaymentRefused: the card of customer * was refused (code *): insufficient funds",
        "1 billing.ChargeCard kills the process",
        f"2 {LONG}",
    ):
        assert words in text, words


async def test_letters_of_more_kinds_than_are_told_apart_are_counted_all_the_same(
    outbox: Outbox, visitor: Visitor
) -> None:
    """Nobody looks well because others have died of more."""
    await outbox.subscription()
    await outbox.subscription("bank.Few")
    for number in range(GROUPS_MAX + 2):
        await outbox.failed_event(error=f"Error{number}: no")
    await outbox.failed_event(error="Zero: no", handler="bank.Few")
    await outbox.passed()
    text = (await visitor.get("/")).text
    assert "bank.Few · 1 dead letter" in text
    assert f"Dead letters {GROUPS_MAX + 3}" in text
    page = await visitor.get("/dead-letters")
    assert f"{GROUPS_MAX + 3}, by handler" in page.text
    assert "And 3 more, which died of something else." in page.text
    assert "/dead-letters/of?handler=bank.Few" in page.links
    one = await visitor.get(f"/subscription?name={HANDLER}")
    assert f"All {GROUPS_MAX + 2}, of other kinds too" in one.text


async def test_letters_of_one_kind_are_listed_to_choose_from(sample: Visitor) -> None:
    page = await sample.get("/dead-letters")
    kind = next(link for link in page.links if "PaymentRefused" in link and "/dead-letters/of" in link)
    letters = await sample.get(kind)
    assert "14 dead letters of PaymentRefused" in letters.text
    assert len(letters.checkboxes) == 15  # and one for all
    assert "half done" in (await sample.get("/dead-letters/of?handler=billing.ChargeCard")).text


async def test_a_page_that_has_looked_at_dead_ones_alone_does_not_say_that_nothing_waits(
    outbox: Outbox, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await outbox.subscription()
    for _ in range(2):
        await outbox.failed_event()
    await outbox.passed()
    path = f"/subscription?name={HANDLER}"
    assert "nothing waits behind what did" in (await visitor.get(path)).text
    monkeypatch.setattr(glance, "DELIVERIES_MAX", 2)
    page = await visitor.get(path)
    assert "All that were looked at are dead" in page.text
    assert "nothing waits" not in page.text


async def test_more_letters_than_fit_are_paged(outbox: Outbox, visitor: Visitor) -> None:
    for _ in range(52):
        await outbox.failed_event()
    page = await visitor.get(f"/dead-letters/of?handler={HANDLER}")
    [following] = [link for link in page.links if "from=" in link]
    second = await visitor.get(following)
    assert len(second.checkboxes) == 3
    assert "First" in second.text
    assert "There are no more" in (await visitor.get(f"/dead-letters/of?handler={HANDLER}&from=52")).text
    narrowed = await visitor.get(f"/dead-letters/of?handler={HANDLER}&type=bank.other")
    assert "None of them is like this" in narrowed.text
    assert "Nothing of it is dead" in (await visitor.get("/dead-letters/of?handler=bank.Other")).text


async def test_what_cannot_be_found_within_a_look_says_so(
    outbox: Outbox, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "LOOK_MAX", 2)
    for _ in range(3):
        await outbox.failed_event()
    page = await visitor.get(f"/dead-letters/of?handler={HANDLER}&type=bank.other")
    assert "None of the 2 that were looked at" in page.text
    assert "Look further" in page.text


# --- subscriptions and relays --------------------------------------------------------------------------


async def test_a_subscription_says_how_it_is(sample: Visitor) -> None:
    for name, words in (
        ("warehouse", "It stands still: RabbitMQ at broker-2.example"),
        ("fraud.Score", "No live relay carries it, and events stand behind it"),
        ("stock.Forecast", "An operator holds it"),
        ("stock.Forecast", "cannot be run: "),
        ("mail.Welcome", "Due for webshop.customer.imported, which no live relay carries"),
        ("shipping.Track", "takes nothing from shipments"),
        ("billing.ChargeCard", "21 dead letters Mend the cause"),
        ("billing.ChargeCard", "billing.ChargeCard dead letters"),
        ("mail.SendReceipt", "mail.SendReceipt retrying"),
        ("loyalty.Points", "It was retired"),
        ("shipping.Track", "of queue shipments"),
        ("search.IndexProducts", "takes events in any order"),
        ("mail.SendReceipt", "SMTPServerDisconnected"),
        ("mail.Welcome", "retire webshop.customer.imported"),
    ):
        assert words in (await sample.get(f"/subscription?name={name}")).text, name


async def test_a_subscription_with_more_in_hand_than_fits_says_how_much_more(
    outbox: Outbox, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glance, "OPEN_DELIVERIES_MAX", 2)
    await outbox.subscription()
    for _ in range(2):
        await outbox.failed_event(None, "waiting", attempts=0, error=None)
    assert "more. Those" not in (await visitor.get(f"/subscription?name={HANDLER}")).text
    for _ in range(2):
        await outbox.failed_event(None, "waiting", attempts=0, error=None)
    page = await visitor.get(f"/subscription?name={HANDLER}")
    assert "And 2 more. Those that have failed stand first." in page.text


async def test_a_subscription_says_that_no_relay_lives(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.subscription()
    page = await visitor.get(f"/subscription?name={HANDLER}")
    assert "No relay lives: nothing is delivered" in page.text


async def test_subscriptions_stand_by_name_and_those_that_need_a_person_say_why(sample: Visitor) -> None:
    """No row moves under a hand on its button, when another one begins to need somebody."""
    page = await sample.get("/subscriptions")
    names = [query_of(link)["name"] for link in page.links if link.startswith("/subscription?")]
    assert [*dict.fromkeys(names)] == sorted({*names})
    assert "fraud.Score unread No live relay carries it, and events stand behind it" in page.text


async def test_a_subscription_of_a_fleet_names_some_of_its_relays(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.subscription()
    for _ in range(8):
        await outbox.relay({HANDLER: {"bank.paid": 1}})
    page = await visitor.get(f"/subscription?name={HANDLER}")
    assert page.text.count("host-1, process 7") == 5
    assert "; 3 more" in page.text


async def test_what_waits_at_its_turn_leads_to_what_it_waits_behind(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.subscription()
    dead = await outbox.failed_event(wallet := uuid4())
    await outbox.failed_event(wallet, "waiting", attempts=0, error=None)
    page = await visitor.get(f"/subscription?name={HANDLER}")
    assert f"/events/{dead}" in page.links
    assert ", which is dead" in page.text


async def test_the_words_are_said_on_a_page_that_every_page_leads_to(
    outbox: Outbox, visitor: Visitor
) -> None:
    assert "/words" in (await visitor.get("/")).links
    assert "leased A relay has it in hand." in (await visitor.get("/words")).text


async def test_a_name_that_never_subscribed_has_a_page_of_what_it_left(
    outbox: Outbox, visitor: Visitor
) -> None:
    await outbox.failed_event(handler="bank.Gone")
    page = await visitor.get("/subscription?name=bank.Gone")
    assert "It has deliveries, and never subscribed" in page.text
    assert "/do/pause" not in [form.action for form in page.forms]


async def test_a_subscription_that_is_far_behind_says_about_how_far(
    outbox: Outbox, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glance, "GLANCE_LAG_EVENTS_MAX", 2)
    await outbox.subscription()
    for _ in range(4):
        await outbox.event()
    page = await visitor.get(f"/subscription?name={HANDLER}")
    assert "2+" in page.text
    assert "4 positions of the log lie ahead of it" in page.text


async def test_relays_say_who_lives_and_what_each_stands_still_with(sample: Visitor) -> None:
    text = (await sample.get("/relays")).text
    for words in (
        "vanished relay-us-2",
        "ran out",
        "11 subscriptions",
        "warehouse stands still",
        "2026.11.3",
    ):
        assert words in text
    assert "Takes nothing from queue shipments" in text


async def test_what_nobody_can_run_stands_with_the_subscriptions(sample: Visitor) -> None:
    text = (await sample.get("/subscriptions")).text
    assert "What no live relay can run" in text
    assert "know only older versions, up to 1" in text
