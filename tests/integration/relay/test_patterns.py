"""Handlers of patterns: given events as they are stored, of types that nobody here knows (K5, R2, R9)."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import attrs
import pytest

from outbox_kernel.kernel import DomainEvent, StoredEvent
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.domain import Noted
from tests.relaying import Recorder, Stage


@attrs.define(eq=False)
class Audit:
    """Takes notes of the form in which each event came."""

    seen: list[StoredEvent | DomainEvent] = attrs.Factory(list)

    def of(self, *patterns: str, events: tuple[type[DomainEvent], ...] = ()) -> HandlerRegistration:
        async def audit(event: StoredEvent | DomainEvent) -> None:
            self.seen.append(event)

        return HandlerRegistration("audit", audit, events, patterns=patterns)

    @property
    def types(self) -> list[str]:
        return [
            each.event_type if isinstance(each, StoredEvent) else type(each).__name__ for each in self.seen
        ]


async def test_an_event_whose_class_nobody_knows_comes_as_it_is_stored(stage: Stage) -> None:
    audit, wallet = Audit(), uuid4()
    await stage.put("a", of=wallet, event_type="shop.unheard_of", version=7, headers={"user_id": "u-1"})
    await stage.drain(audit.of("shop.*"))
    row, [seen] = await stage.event("a"), audit.seen
    assert isinstance(seen, StoredEvent)
    assert (seen.event_type, seen.event_version, seen.payload) == ("shop.unheard_of", 7, {"what": "a"})
    assert (seen.headers, seen.position, seen.event_id) == (
        {"user_id": "u-1"},
        row["position"],
        row["event_id"],
    )
    assert (seen.aggregate_type, seen.aggregate_id, seen.aggregate_version) == ("bank.wallet", wallet, 1)
    assert (seen.occurred_at, seen.aggregate_key) == (row["occurred_at"], None)
    assert await stage.events() == {"a": "delivered"}


@pytest.mark.parametrize(
    "moment",
    ["0001-01-01 00:00:01", "1969-07-20 20:17:40.000001", "2000-01-01", "9999-12-31 23:59:59"],
)
async def test_its_moment_comes_back_to_the_microsecond(stage: Stage, moment: str) -> None:
    """K8: whenever it was."""
    audit, expected = Audit(), datetime.fromisoformat(moment).replace(tzinfo=UTC)
    await stage.put("a")
    await stage.witness.execute("UPDATE outbox_events SET occurred_at = $1", expected)
    await stage.drain(audit.of("*"))
    [seen] = audit.seen
    assert isinstance(seen, StoredEvent)
    assert (seen.occurred_at, seen.occurred_at.tzinfo) == (expected, UTC)


@pytest.mark.parametrize(
    ("patterns", "types"),
    [
        (("*",), ["bank.noted", "shop.b"]),
        (("shop.*", "bank.*"), ["bank.noted", "shop.b"]),
        (("*.b",), ["shop.b"]),
    ],
)
async def test_it_gets_what_its_patterns_mean_and_nothing_else(
    stage: Stage, patterns: tuple[str, ...], types: list[str]
) -> None:
    audit = Audit()
    await stage.put("a")
    await stage.put("b", event_type="shop.b")
    await stage.drain(audit.of(*patterns))
    assert audit.types == types


async def test_what_is_for_a_class_comes_as_that_class_and_the_rest_as_it_is_stored(stage: Stage) -> None:
    """K5: a version that the class does not know included, since a pattern means it as well."""
    audit = Audit()
    await stage.put("a")
    await stage.put("b", version=2)
    await stage.put("c", event_type="bank.b")
    await stage.drain(audit.of("bank.*", events=(Noted,)))
    assert audit.types == ["Noted", "bank.noted", "bank.b"]


async def test_a_newer_version_of_a_class_that_no_pattern_means_waits_for_newer_code(stage: Stage) -> None:
    """R9."""
    audit = Audit()
    await stage.put("a", version=2)
    await stage.put("b", event_type="shop.b")
    await stage.drain(audit.of("shop.*", events=(Noted,)))
    assert audit.types == ["shop.b"]
    assert await stage.deliveries() == {("a", "audit"): "waiting"}


async def test_what_waited_is_tried_again_as_it_is_stored(stage: Stage) -> None:
    """R7: as a delivery, too, and in its aggregate's order."""
    recorder, wallet = Recorder(), uuid4()
    recorder.fail("a")

    async def note(event: StoredEvent) -> None:
        await recorder(attrs.make_class("Told", ["what"])(event.payload["what"]))

    registration = HandlerRegistration("note", note, (), patterns=("shop.*",))
    await stage.put("a", "b", of=wallet, event_type="shop.unheard_of")
    for at in (0, 10):
        await stage.drain(registration, at=at)
    assert recorder.seen == ["a", "a", "b"]
    assert await stage.events() == {"a": "delivered", "b": "delivered"}


@pytest.mark.parametrize(
    ("pattern", "sentences"),
    [
        ("bank.notd", ["if 'bank.noted' is meant, correct it"]),
        ("far.away.from_all", ["correct it if it is misspelt"]),
        ("bank.noted", []),
        ("bank.notd*", []),
    ],
)
async def test_a_name_that_no_event_here_has_is_told_at_the_start_with_the_nearest(
    stage: Stage, caplog: pytest.LogCaptureFixture, pattern: str, sentences: list[str]
) -> None:
    """K5: no error, since another service may record such events."""
    await stage.relay(Audit().of(pattern)).check()
    said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(said) == len(sentences)
    for found, sentence in zip(said, sentences, strict=True):
        assert (
            f"handler audit is for '{pattern}', and no event of that name is known here: {sentence}" in found
        )
