"""A search walks the log for a moment, and says how far it came (O3)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox_kernel.infrastructure.operations import searching
from outbox_kernel.infrastructure.operations.limits import SEARCH_SECONDS_MAX
from outbox_kernel.infrastructure.operations.searching import Found, Query, search
from outbox_kernel.infrastructure.operations.selection import AggregateKey, Moment
from outbox_kernel.kernel import DomainEvent, event, sensitive
from tests.integration.operations.conftest import Outbox


@event("search.noted")
class Noted(DomainEvent):
    note: str
    secret: str = sensitive()


def ids(found: Found) -> list[UUID]:
    return [each.event_id for each in found.events]


def noted(note: str, secret: str = "") -> dict[str, Any]:
    return {"note": note, "secret": secret}


async def test_the_newest_come_first_and_a_page_says_where_the_next_begins(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "FOUND_EVENTS_MAX", 2)
    events = [await outbox.event() for _ in range(5)]
    found, pages = await search(outbox.desk, Query()), []
    while found.events:
        pages.append(ids(found))
        if found.next is None:
            break
        found = await search(outbox.desk, Query(), found.next)
    assert pages == [[events[4], events[3]], [events[2], events[1]], [events[0]]]
    assert found.next is None


async def test_of_an_empty_log_there_is_nothing(outbox: Outbox) -> None:
    assert await search(outbox.desk, Query()) == Found([], None, 0, None)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (Query(event_type="bank.*"), [0, 1]),
        (Query(event_type="shop.paid"), [2]),
        (Query(event_type="shop"), []),
        (Query(since=Moment.parse("36h")), [1, 2]),
        (Query(until=Moment.parse("36h")), [0]),
        (Query(since=Moment.parse("80h"), until=Moment.parse("36h")), [0]),
        (Query(status="dead"), [1]),
        (Query(status="open"), []),
        (Query(status="pending"), [2]),
        (Query(status="delivered"), [0]),
        (Query(event_type="bank.*", status="dead"), [1]),
    ],
)
async def test_what_is_asked_is_found(outbox: Outbox, query: Query, wanted: list[int]) -> None:
    first = await outbox.event(days_old=3)
    second = await outbox.event(days_old=1)
    await outbox.subscription("bank.Letters", ("shop.*",))
    third = await outbox.event(event_type="shop.paid")
    await outbox.delivery(second, "dead")
    events = [first, second, third]
    assert query.asks
    assert sorted(ids(await search(outbox.desk, query))) == sorted(events[each] for each in wanted)


async def test_an_aggregate_is_found_by_type_and_by_id(outbox: Outbox) -> None:
    wallet = uuid4()
    mine = await outbox.event(wallet)
    await outbox.event(uuid4())
    for key in (AggregateKey(wallet), AggregateKey(wallet, "bank.wallet")):
        assert ids(await search(outbox.desk, Query(aggregate=key))) == [mine]
    assert ids(await search(outbox.desk, Query(aggregate=AggregateKey(wallet, "bank.other")))) == []


async def test_an_aggregate_is_found_however_far_back_its_events_lie(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its stream, and not by a walk through all that came since."""
    monkeypatch.setattr(searching, "STRETCH_EVENTS", 2)
    monkeypatch.setattr(searching, "SEARCH_SECONDS_MAX", 0.0)
    wallet = uuid4()
    old = [await outbox.event(wallet), await outbox.event(wallet, event_type="bank.opened")]
    for _ in range(10):
        await outbox.event()
    for key in (f"bank.wallet:{wallet}", str(wallet)):
        found = await search(outbox.desk, Query(aggregate=AggregateKey.parse(key)))
        assert (ids(found), found.looked_at) == (old[::-1], 2)
    query = Query(aggregate=AggregateKey.parse(str(wallet)), event_type="bank.opened")
    assert ids(await search(outbox.desk, query)) == [old[1]]


@pytest.mark.parametrize("emitted_max", [1, 1_000])
async def test_an_aggregates_events_are_listed_page_by_page_with_a_number_or_without(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch, emitted_max: int
) -> None:
    """And so are those of one with more without a number than are put in order."""
    monkeypatch.setattr(searching, "FOUND_EVENTS_MAX", 2)
    monkeypatch.setattr(searching, "STRETCH_EVENTS", 3)
    monkeypatch.setattr(searching, "FOUND_EMITTED_MAX", emitted_max)
    wallet = uuid4()
    events = []
    for number in range(9):
        events.append(await outbox.event(wallet))
        await outbox.event()
        if number % 3 == 0:
            await outbox.execute(
                "UPDATE outbox_events SET aggregate_version = NULL WHERE event_id = $1", events[-1]
            )
    query = Query(aggregate=AggregateKey.parse(f"bank.wallet:{wallet}"))
    found = await search(outbox.desk, query)
    pages = ids(found)
    while found.next is not None:
        found = await search(outbox.desk, query, found.next)
        pages += ids(found)
    assert pages == events[::-1]


@pytest.mark.parametrize(
    "words", ["größe", "GRÖSSE XL", "50%", "under_score", 'a "quote', "\\", '"note": "Gr']
)
async def test_text_is_found_whatever_is_in_it(outbox: Outbox, words: str) -> None:
    note = 'Größe, GRÖSSE XL at 50% with under_score and a "quote" and \\'
    wanted = await outbox.event(event_type="search.noted", payload=noted(note))
    await outbox.event(event_type="search.noted", payload=noted("50 of underXscore"))
    assert ids(await search(outbox.desk, Query(words=words))) == [wanted]


async def test_a_secret_is_not_found_by_whoever_guesses_it(outbox: Outbox) -> None:
    wanted = await outbox.event(event_type="search.noted", payload=noted("plain", "token-4711"))
    await outbox.event(event_type="bank.unknown_class", payload={"note": "token-4711"})
    assert ids(await search(outbox.desk, Query(words="plain"))) == [wanted]
    for guess in ("token-4711", "token", "4711"):
        found = await search(outbox.desk, Query(words=guess))
        assert (found.events, found.next) == ([], None)


async def test_secrets_that_match_do_not_keep_what_may_be_seen_from_being_found(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "FOUND_EVENTS_MAX", 2)
    monkeypatch.setattr(searching, "PAYLOADS_MAX", 2)
    wanted = [
        await outbox.event(event_type="search.noted", payload=noted(f"x {number}")) for number in range(3)
    ]
    for _ in range(7):
        await outbox.event(event_type="search.noted", payload=noted("", "x"))
    found = await search(outbox.desk, Query(words="x"))
    assert ids(found) == [wanted[2], wanted[1]]
    assert ids(await search(outbox.desk, Query(words="x"), found.next)) == [wanted[0]]


def ticking() -> Iterator[float]:
    """A clock by which each look takes as long as all of them may."""
    yield from (SEARCH_SECONDS_MAX * number for number in count())


async def test_a_search_that_has_had_its_time_says_how_far_it_came(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "STRETCH_EVENTS", 3)
    old = await outbox.event(event_type="bank.old", days_old=5)
    for number in range(8):
        await outbox.event(days_old=4 - number / 10)
    clock = ticking()
    query, place, looked_at, founds = Query(event_type="bank.old"), None, 0, []
    for _ in range(4):
        found = await search(outbox.desk, query, place, now=lambda: next(clock))
        founds.append(found)
        looked_at, place = looked_at + found.looked_at, found.next
        if place is None:
            break
    assert [ids(each) for each in founds[:2]] == [[], []]
    assert founds[0].is_short
    assert founds[0].looked_at == 3
    reached = [each.reached_at for each in founds[:3] if each.reached_at]
    assert reached == sorted(reached, reverse=True)
    assert ids(founds[2]) == [old]
    assert looked_at == 9
    assert founds[-1].next is None
