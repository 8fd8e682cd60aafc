"""What needs a person is said, the worst first, with what to do about it (O3)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import attrs

from outbox_kernel.infrastructure.operations.abilities import Relay, Stranded
from outbox_kernel.infrastructure.operations.attention import about, needs
from outbox_kernel.infrastructure.operations.glance import Glance, SubscriptionGlance
from outbox_kernel.infrastructure.operations.overview import StuckQueue

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
LIVE = Relay(
    id=UUID(int=1),
    epoch=1,
    host="host-1",
    process_id=7,
    started_at=NOW,
    renewed_at=NOW,
    expires_at=NOW,
    code_version="v1",
    abilities={},
    pauses={},
    patterns=None,
    live=True,
    lease_seconds_left=9.0,
)
FINE = SubscriptionGlance(name="bank.Letters", kind="handler", patterns=["bank.*"], carried_by=1)


def seen(**changes: Any) -> Glance:
    return Glance(
        **{
            "relays": [LIVE],
            "subscriptions": [FINE],
            "stranded": [],
            "queues": [],
            "events": 0,
            "events_are_estimated": False,
            **changes,
        }
    )


def told(glance: Glance) -> list[tuple[str, str, str | None]]:
    return [(need.state, need.kind, need.name) for need in needs(glance)]


def one(**changes: Any) -> list[tuple[str, str, str | None]]:
    return told(seen(subscriptions=[attrs.evolve(FINE, **changes)]))


def test_where_all_is_well_nothing_is_said() -> None:
    assert needs(seen()) == []


def test_without_a_relay_nothing_is_delivered_and_that_is_said_once() -> None:
    behind = attrs.evolve(FINE, carried_by=0, lag_events=3)
    assert told(seen(relays=[], subscriptions=[behind])) == [("fail", "relays", None)]


def test_a_relay_that_vanished_is_named() -> None:
    gone = attrs.evolve(LIVE, live=False, host="host-2")
    [need] = needs(seen(relays=[LIVE, gone]))
    assert (need.state, need.kind) == ("warn", "vanished")
    assert need.what == "A relay vanished: host-2, process 7"


def test_what_is_wrong_with_a_subscription_is_said() -> None:
    assert one(dead=3) == [("fail", "dead", "bank.Letters")]
    assert one(carried_by=0, lag_events=1) == [("fail", "unread", "bank.Letters")]
    assert one(carried_by=0) == []
    assert one(stands_still="the broker is away") == [("warn", "outage", "bank.Letters")]
    assert one(carried_no_more=["bank.closed"]) == [("warn", "left over", "bank.Letters")]
    assert one(paused_at=NOW) == [("info", "paused", "bank.Letters")]


def test_of_a_retired_one_nothing_is_said() -> None:
    assert one(retired_at=NOW, paused_at=NOW, dead=3, lag_events=3, carried_by=0) == []


def test_queues_and_what_nobody_can_run_are_said_before_what_is_only_to_be_known() -> None:
    glance = seen(
        subscriptions=[attrs.evolve(FINE, paused_at=NOW)],
        queues=[StuckQueue("letters", NOW, "host-1", 7, "it is not there")],
        stranded=[Stranded("bank.Letters", "bank.paid", 9, 1, 4, NOW, "nobody knows it", [])],
    )
    assert told(glance) == [
        ("fail", "queue", "letters"),
        ("fail", "stranded", "bank.Letters"),
        ("info", "paused", "bank.Letters"),
    ]
    assert "1 delivery of bank.paid, version 9, cannot be run: nobody knows it" in needs(glance)[1].what


def test_a_state_is_a_word_of_what_matters_most() -> None:
    for changes, state in (
        ({}, "delivering"),
        ({"dead": 1, "retrying": 1}, "dead letters"),
        ({"retrying": 1}, "retrying"),
        ({"carried_by": 0, "dead": 1}, "not carried"),
        ({"carried_by": 0, "lag_events": 2}, "unread"),
        ({"stands_still": "away", "carried_by": 0}, "stands still"),
        ({"paused_at": NOW, "stands_still": "away"}, "paused"),
        ({"kind": None}, "unknown"),
        ({"retired_at": NOW, "paused_at": NOW}, "retired"),
    ):
        assert attrs.evolve(FINE, **changes).state == state


def test_each_who_needs_a_person_is_told_its_own() -> None:
    queue = StuckQueue("bank.Letters", NOW, "host-1", 7, "it is not there")
    held, dead = attrs.evolve(FINE, name="held", paused_at=NOW), attrs.evolve(FINE, name="dead", dead=1)
    fed = attrs.evolve(FINE, name="fed", source="bank.Letters")
    glance = seen(subscriptions=[FINE, dead, fed, held], queues=[queue])
    every = needs(glance)
    # A queue may be called as a handler is.
    assert about(FINE, every) == []
    assert [need.kind for need in about(fed, every)] == ["queue"]
    assert [need.kind for need in about(dead, every)] == ["dead"]


def test_what_has_no_name_is_of_no_subscription() -> None:
    glance = seen(relays=[])
    assert [need.kind for need in needs(glance)] == ["relays"]
    assert about(FINE, needs(glance)) == []


def test_relays_are_told_apart_by_their_leases() -> None:
    gone = attrs.evolve(LIVE, live=False)
    glance = seen(relays=[LIVE, gone])
    assert (glance.live, glance.vanished) == ([LIVE], [gone])
