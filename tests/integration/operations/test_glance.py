"""A glance says how far each subscription is, and looks at no more than it shows (O3)."""

from __future__ import annotations

from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.operations import glance as module
from outbox_kernel.infrastructure.operations.glance import ahead_of, glance, glance_at, open_of, pulse
from tests.integration.operations.conftest import HANDLER, Outbox

CARRIES = {HANDLER: {"bank.paid": 1}}


async def test_of_an_empty_outbox_there_is_nothing_to_say(outbox: Outbox) -> None:
    seen = await glance(outbox.desk)
    assert (seen.relays, seen.subscriptions, seen.stranded, seen.queues) == ([], [], [], [])
    assert (seen.events, seen.events_are_estimated) == (0, False)


async def test_a_subscription_says_what_stands_ahead_of_it_and_since_when(outbox: Outbox) -> None:
    await outbox.relay(CARRIES)
    await outbox.event(days_old=3)
    await outbox.subscription()
    await outbox.event(days_old=2)
    await outbox.event(days_old=1)
    await outbox.event(event_type="bank.other")
    [found] = (await glance(outbox.desk)).subscriptions
    assert (found.name, found.state, found.carried_by) == (HANDLER, "delivering", 1)
    assert (found.lag_events, found.lag_is_at_least, found.lag_positions) == (2, False, 3)
    assert 1.9 < (found.lag_seconds or 0) / 86_400 < 2.1
    await outbox.passed()
    [found] = (await glance(outbox.desk)).subscriptions
    assert (found.lag_events, found.lag_seconds, found.lag_positions) == (0, None, 0)


async def test_of_a_long_way_only_its_beginning_is_looked_at(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GLANCE_LAG_EVENTS_MAX", 3)
    monkeypatch.setattr(module, "DELIVERIES_MAX", 2)
    await outbox.subscription()
    for _ in range(5):
        await outbox.delivery(await outbox.event(), "waiting")
    [found] = (await glance(outbox.desk)).subscriptions
    assert (found.lag_events, found.lag_is_at_least, found.lag_positions) == (3, True, 5)
    assert (found.waiting, found.deliveries_are_at_least) == (2, True)
    assert found.state == "unread"


async def test_deliveries_are_counted_by_what_they_are_at(outbox: Outbox) -> None:
    await outbox.subscription()
    lease = await outbox.relay(CARRIES)
    for status, attempts in (("waiting", 0), ("waiting", 2), ("dead", 3), ("done", 1), ("skipped", 1)):
        await outbox.delivery(await outbox.event(days_old=1), status, attempts=attempts)
    await outbox.delivery(await outbox.event(), "leased", lease=lease)
    found = await glance_at(outbox.desk, HANDLER)
    assert found is not None
    assert (found.waiting, found.retrying, found.leased, found.dead) == (2, 1, 1, 1)
    assert found.oldest_seconds is not None


async def test_a_name_that_never_subscribed_shows_with_its_deliveries(outbox: Outbox) -> None:
    await outbox.failed_event(handler="bank.Gone")
    [found] = (await glance(outbox.desk)).subscriptions
    assert (found.name, found.kind, found.state, found.dead) == ("bank.Gone", None, "unknown", 1)
    assert await glance_at(outbox.desk, "bank.Gone") == found
    assert await glance_at(outbox.desk, "bank.Nobody") is None


async def test_what_a_relay_tells_is_told(outbox: Outbox) -> None:
    await outbox.subscription(patterns=("bank.paid", "bank.closed"))
    await outbox.relay(CARRIES, patterns={HANDLER: ["bank.paid"]})
    told = {
        HANDLER: {"reason": "the broker is away", "since": "2026-01-31T12:00:00+00:00"},
        "queue letters": {"reason": "it is not there", "since": "2026-01-31T12:00:00+00:00"},
    }
    await outbox.pauses(told)
    seen = await glance(outbox.desk)
    [found] = seen.subscriptions
    assert (found.state, found.stands_still) == ("stands still", "the broker is away")
    assert found.carried_no_more == ["bank.closed"]
    assert [queue.queue for queue in seen.queues] == ["letters"]


async def test_what_nobody_can_run_is_said_with_its_reason(outbox: Outbox) -> None:
    await outbox.subscription()
    await outbox.relay(CARRIES, patterns={HANDLER: []})
    for version, event_type in ((9, "bank.paid"), (1, "bank.unknown"), (1, "bank.paid")):
        await outbox.delivery(await outbox.event(version=version, event_type=event_type), "waiting")
    await outbox.subscription("bank.Retired")
    await outbox.execute("UPDATE outbox_subscriptions SET retired_at = now() WHERE name = 'bank.Retired'")
    await outbox.delivery(await outbox.event(), "waiting", handler="bank.Retired")
    stranded = (await glance(outbox.desk)).stranded
    assert [(each.handler, each.event_type, each.event_version, each.reason) for each in stranded] == [
        (HANDLER, "bank.paid", 9, "the live relays that carry it know only older versions, up to 1"),
        (HANDLER, "bank.unknown", 1, "the live relays that carry it do not know this event type"),
        ("bank.Retired", "bank.paid", 1, "the subscription is retired"),
    ]


async def test_a_pattern_that_nobody_carries_is_named_with_what_is_stranded_by_it(outbox: Outbox) -> None:
    await outbox.subscription(patterns=("bank.old*", "bank.paid"))
    await outbox.relay(CARRIES, patterns={HANDLER: ["bank.paid"]})
    await outbox.delivery(await outbox.event(event_type="bank.older"), "waiting")
    [stranded] = (await glance(outbox.desk)).stranded
    assert stranded.patterns == ["bank.old*"]


async def test_what_is_left_to_do_is_listed_those_first_that_have_failed(outbox: Outbox) -> None:
    await outbox.delivery(await outbox.event(), "waiting", attempts=0, error=None)
    wallet = uuid4()
    failed = await outbox.failed_event(wallet, "waiting", attempts=2)
    await outbox.failed_event(status="dead")
    found = await open_of(outbox.desk, HANDLER)
    assert [each.attempts for each in found] == [2, 0]
    assert (found[0].event_id, found[0].aggregate_id, found[0].event_type) == (failed, wallet, "bank.paid")


async def test_what_waits_names_the_event_that_it_waits_behind(outbox: Outbox) -> None:
    wallet = uuid4()
    other = await outbox.failed_event(uuid4(), "dead")
    dead = await outbox.failed_event(wallet, "dead")
    behind = await outbox.failed_event(wallet, "waiting", attempts=0, error=None)
    alone = await outbox.failed_event(uuid4(), "waiting", attempts=0, error=None)
    found = {
        each.event_id: (each.behind_event, each.behind_status) for each in await open_of(outbox.desk, HANDLER)
    }
    assert found == {behind: (dead, "dead"), alone: (None, None)}
    assert other not in found


async def test_how_much_there_is_from_a_position_on_is_counted_up_to_a_limit(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await outbox.subscription()
    for number in range(4):
        await outbox.event(event_type="bank.paid" if number % 2 else "bank.other")
    found = await ahead_of(outbox.desk, HANDLER, 1)
    assert (found.position, found.events, found.is_at_least) == (1, 2, False)
    assert found.since is not None
    monkeypatch.setattr(module, "DELIVERIES_MAX", 2)
    found = await ahead_of(outbox.desk, HANDLER, 1)
    assert (found.events, found.is_at_least) == (1, True)
    assert (await ahead_of(outbox.desk, HANDLER, 99)).since is None


async def test_the_pulse_differs_once_something_has_happened(outbox: Outbox) -> None:
    await outbox.subscription()
    before = await pulse(outbox.desk)
    assert await pulse(outbox.desk) == before
    await outbox.event()
    happened = await pulse(outbox.desk)
    assert happened != before
    await outbox.passed()
    assert await pulse(outbox.desk) != happened
