"""Handlers of patterns: given events as they are stored, of types that nobody here knows (K5, R2, R9, T3)."""

from __future__ import annotations

from uuid import uuid4

import attrs
import pytest

from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.infrastructure.operations.health_of_work import examine_work
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.operations.subscriptions import retire_pattern
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.kernel import DomainEvent, StoredEvent
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.domain import Noted
from tests.relaying import Recorder, Stage
from tests.streams import Stream, handle, store


@attrs.define(eq=False)
class Audit:
    """Takes notes of the form in which each event came."""

    seen: list[StoredEvent | DomainEvent] = attrs.Factory(list)

    def of(
        self, *patterns: str, events: tuple[type[DomainEvent], ...] = (), queue: str | None = None
    ) -> HandlerRegistration:
        async def audit(event: StoredEvent | DomainEvent) -> None:
            self.seen.append(event)

        return HandlerRegistration("audit", audit, events, queue=queue, patterns=patterns)

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


@pytest.mark.parametrize("pattern", ["bank.*", "*"])
async def test_a_queues_handler_of_a_pattern_gets_what_that_queue_brings(stage: Stage, pattern: str) -> None:
    """T3: and nothing of other queues or of this database's own."""
    audit, stream = Audit(), Stream()
    await handle(stage, audit.of(pattern, queue="ledger"))
    await store(stage, "ledger", stream["ab"])
    await store(stage, "ledger/more", stream["c"])
    await store(stage, "other", stream["d"])
    await stage.put("own")
    await handle(stage, audit.of(pattern, queue="ledger"))
    assert [each.payload["what"] for each in audit.seen if isinstance(each, StoredEvent)] == ["a", "b"]


async def test_a_payload_that_is_no_object_is_its_own_failure(stage: Stage) -> None:
    """R9: written past us."""
    audit = Audit()
    await stage.put("a", event_type="shop.a", payload="[1]")
    await stage.drain(audit.of("shop.*"))
    assert audit.seen == []
    [message] = await stage.witness.fetchrow("SELECT error_message FROM outbox_deliveries")
    assert message == "MalformedPayload: the stored payload of event 'shop.a' is list, not an object"


async def test_doctor_sees_that_a_live_relay_can_run_what_a_pattern_means(stage: Stage) -> None:
    """R9, O1: and by which pattern of older code the rest is due."""
    desk, audit = Desk(stage.witness), Audit()
    await stage.relay(audit.of("shop.*", "bank.*")).run_once()
    relay = stage.relay(audit.of("shop.*"), at=None)
    await relay.run_once()
    await stage.witness.execute(
        "DELETE FROM outbox_relays WHERE NOT abilities->'audit' ? 'shop.*' OR abilities->'audit' ? 'bank.*'"
    )
    await stage.put("a", event_type="shop.a")
    await stage.put("b")
    await stage.relays[1].run_once()
    found = {each.check: each for each in await examine_work(desk, await overview(desk))}
    assert (found["abilities"].state, found["patterns"].state) == ("fail", "warn")
    assert "bank.noted" in found["abilities"].detail
    assert str(found["abilities"].remedy).endswith("`outbox retire audit --pattern 'bank.*'`")
    await retire_pattern(desk, "audit", "bank.*")
    found = {each.check: each for each in await examine_work(desk, await overview(desk))}
    assert found["abilities"].state == "ok"
    assert audit.types == ["shop.a"]


@pytest.mark.parametrize(
    ("pattern", "queue", "sentences"),
    [
        ("bank.notd", None, ["if 'bank.noted' is meant, correct it"]),
        ("bank.notd", "letters", ["if 'bank.noted' is meant, correct it"]),
        ("far.away.from_all", None, ["correct it if it is misspelt"]),
        ("far.away.from_all", "letters", []),
        ("bank.noted", None, []),
        ("bank.notd*", None, []),
    ],
)
async def test_a_name_that_no_event_here_has_is_told_at_the_start_with_the_nearest(
    stage: Stage, caplog: pytest.LogCaptureFixture, pattern: str, queue: str | None, sentences: list[str]
) -> None:
    """K5: no error, since another service may record such events."""
    audit = Audit().of(pattern, queue=queue)
    await OutboxRelay(stage.engine, stage.container, handlers=[audit], queues=queue and [queue]).check()
    said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(said) == len(sentences)
    for found, sentence in zip(said, sentences, strict=True):
        assert (
            f"handler audit is for '{pattern}', and no event of that name is known here: {sentence}" in found
        )
